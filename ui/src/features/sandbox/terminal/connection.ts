// One terminal over its WebSocket. The terminal belongs to the sandbox: a connection that is lost is made again after the
// last byte that came, and what was typed meanwhile is sent then, once.
import { api, unwrap } from "@/api/client";
import { connection } from "@/api/connection";

export interface Ended {
  code: number;
  signal: number | null;
}

export interface Handlers {
  /** Output, in order. `replayed`: it was printed before this page came. */
  onOutput: (data: Uint8Array, replayed: boolean) => void;
  onReady: (exec: string) => void;
  onEnd: (ended: Ended) => void;
  /** It was refused, or ended by something else than itself. */
  onError: (message: string) => void;
  onState: (state: "connecting" | "open" | "lost") => void;
}

interface Frame {
  type: "ready" | "dropped" | "exit" | "error";
  exec_id?: string;
  offset?: number;
  bytes?: number;
  exit_code?: number;
  signal?: number | null;
  code?: string;
  message?: string;
}

const LONGEST_WAIT = 5000;
/** How often a server that answers may refuse in a row. A browser is not told why a socket is not opened. */
const MOST_REFUSALS = 5;
/** What is typed without a connection is kept up to this, in bytes; a person does not type more. */
const MOST_UNSENT = 64 * 1024;
/** Refusals that end by themselves, or when the reader signs in again. */
const PASSING = ["unavailable", "permission_denied", "limit_exceeded"];

export class TerminalConnection {
  private socket?: WebSocket;
  private timer?: ReturnType<typeof setTimeout>;
  private wait = 250;
  private over = false;
  /** Since the terminal was last there. */
  private refusals = 0;
  private offset?: number;
  private printed = 0;
  /** The server has said that the terminal is there. */
  private attached = false;
  private unsent: Uint8Array<ArrayBuffer>[] = [];

  constructor(
    private readonly sandbox: string,
    private exec: string | undefined,
    private size: { rows: number; cols: number },
    private readonly handlers: Handlers,
  ) {
    void this.begin();
  }

  private async begin(): Promise<void> {
    // One that is left at once, as React's strict mode does, opens nothing.
    await Promise.resolve();
    if (this.exec) {
      try {
        const params = { path: { id: this.sandbox, eid: this.exec } };
        const known = await unwrap(api.GET("/api/v1/sandboxes/{id}/execs/{eid}", { params }));
        this.printed = known.output_bytes;
      } catch (error) {
        this.over = true;
        return this.handlers.onError(error instanceof Error ? error.message : String(error));
      }
    }
    if (!this.over) this.connect();
  }

  private connect(): void {
    // Without a session each attempt would be refused.
    if (connection.state() === "signed-out") {
      this.later();
      return;
    }
    this.handlers.onState("connecting");
    const query = new URLSearchParams({ rows: String(this.size.rows), cols: String(this.size.cols) });
    if (this.exec) query.set("exec_id", this.exec);
    if (this.offset !== undefined) query.set("from", String(this.offset));
    const origin = location.origin.replace(/^http/, "ws");
    const socket = new WebSocket(`${origin}/api/v1/sandboxes/${this.sandbox}/terminal?${query}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data === "string") this.read(JSON.parse(data) as Frame);
      else this.print(new Uint8Array(data));
    };
    let answered = false;
    socket.addEventListener("message", () => {
      answered = true;
    });
    socket.onclose = () => {
      this.attached = false;
      if (this.over) return;
      if (!answered && connection.state() === "live") this.refusals += 1;
      if (this.refusals < MOST_REFUSALS) {
        this.later();
        return;
      }
      this.over = true;
      this.handlers.onError("the server does not open one");
    };
    this.socket = socket;
  }

  private later(): void {
    this.handlers.onState("lost");
    this.timer = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  private print(data: Uint8Array): void {
    const replayed = (this.offset ?? 0) < this.printed;
    this.offset = (this.offset ?? 0) + data.length;
    this.handlers.onOutput(data, replayed);
  }

  private read(frame: Frame): void {
    if (frame.type === "ready") {
      this.wait = 250;
      this.refusals = 0;
      this.exec = frame.exec_id;
      this.offset = frame.offset;
      this.handlers.onState("open");
      if (frame.exec_id) this.handlers.onReady(frame.exec_id);
      this.resize(this.size);
      this.attached = true;
      for (const data of this.unsent.splice(0)) this.type(data);
    } else if (frame.type === "dropped") this.offset = (this.offset ?? 0) + (frame.bytes ?? 0);
    else if (frame.type === "exit") {
      this.over = true;
      this.handlers.onEnd({ code: frame.exit_code ?? 0, signal: frame.signal ?? null });
    } else if (frame.type === "error") {
      // One that was there is attached to again.
      this.refusals += 1;
      if (this.offset !== undefined && PASSING.includes(frame.code ?? "") && this.refusals < MOST_REFUSALS)
        return;
      this.over = true;
      this.handlers.onError(frame.message ?? "the terminal broke");
    }
  }

  private get open(): WebSocket | undefined {
    return this.socket?.readyState === WebSocket.OPEN ? this.socket : undefined;
  }

  type(data: Uint8Array<ArrayBuffer>): void {
    if (this.attached && this.open) this.open.send(data);
    else if (!this.over && this.unsentBytes() + data.length <= MOST_UNSENT) this.unsent.push(data);
  }

  private unsentBytes(): number {
    return this.unsent.reduce((sum, data) => sum + data.length, 0);
  }

  resize(size: { rows: number; cols: number }): void {
    this.size = size;
    this.open?.send(JSON.stringify({ type: "resize", ...size }));
  }

  kill(): void {
    this.open?.send(JSON.stringify({ type: "kill" }));
  }

  /** Leaves; the terminal stays. */
  leave(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }
}
