/** How commands and code went. */

import type { components } from "./api.js";
import { CodeFailedError, CommandFailedError, CommandTimeoutError } from "./errors.js";

type Schemas = components["schemas"];

/** A piece of a command's output. */
export interface Output {
  stream: "stdout" | "stderr";
  /** Of its first byte, over both outputs. */
  offset: number;
  data: Uint8Array;
}

/** The last event of a command, as the server sends it. */
export type ExitEvent = Schemas["ExecItem"] & {
  files_changed?: Schemas["ChangedFile"][];
  files_changed_truncated?: boolean;
};

export class CommandResult {
  readonly execId: string;
  /** 124 after a timeout, 127 or 126 when it could not start, 128 and the signal. */
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly killed: boolean;
  readonly oomKilled: boolean;
  readonly signal: number | undefined;
  readonly durationMs: number;
  /** Why its program could not be started. */
  readonly failure: Schemas["FailureItem"] | undefined;
  /** Undefined where it is not known: of a background command, or after the connection broke. */
  readonly filesChanged: Schemas["ChangedFile"][] | undefined;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** Whether some output was lost, because the command printed faster than it was read. */
  readonly truncated: boolean;

  constructor(exit: ExitEvent, stdout: Uint8Array, stderr: Uint8Array, truncated: boolean) {
    this.execId = exit.exec_id;
    this.exitCode = exit.exit_code ?? -1;
    this.timedOut = exit.timed_out;
    this.killed = exit.killed;
    this.oomKilled = exit.oom_killed;
    this.signal = exit.signal ?? undefined;
    this.durationMs = exit.duration_ms;
    this.failure = exit.failure ?? undefined;
    this.filesChanged = exit.files_changed;
    this.stdoutBytes = stdout;
    this.stderrBytes = stderr;
    this.truncated = truncated;
  }

  /** A result that no event tells of. */
  static of(given: Pick<CommandResult, "exitCode" | "timedOut" | "durationMs">, stdout: Uint8Array, stderr: Uint8Array): CommandResult {
    const { exitCode: exit_code, timedOut: timed_out, durationMs: duration_ms } = given;
    const exit = { exec_id: "", exit_code, timed_out, killed: timed_out, oom_killed: false, duration_ms } as ExitEvent;
    return new CommandResult(exit, stdout, stderr, false);
  }

  get stdout(): string {
    return new TextDecoder().decode(this.stdoutBytes);
  }

  get stderr(): string {
    return new TextDecoder().decode(this.stderrBytes);
  }

  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** What `console.log` and `JSON.stringify` show: text instead of bytes. */
  toJSON(): object {
    const { stdoutBytes: _, stderrBytes: __, ...rest } = this;
    return { ...rest, stdout: this.stdout, stderr: this.stderr };
  }

  [Symbol.for("nodejs.util.inspect.custom")](): object {
    return this.toJSON();
  }

  summary(): string {
    if (this.timedOut) return `the command's time was over after ${this.durationMs} ms`;
    if (this.oomKilled) return `the command ended with ${this.exitCode}: the sandbox's memory was not enough for it`;
    if (this.failure) return this.failure.message;
    const last = this.stderr.trim().split("\n").at(-1);
    return `the command ended with ${this.exitCode}${last ? `: ${last}` : ""}`;
  }

  /** Throws CommandFailedError unless the exit code is 0. */
  check(): this {
    if (this.timedOut) throw new CommandTimeoutError(this);
    if (!this.ok) throw new CommandFailedError(this);
    return this;
  }
}

/** Something that code showed: a picture, a table, a chart, a sound. */
export class Display {
  readonly mime: string;
  /** Text, or base64 where the type is not text, SVG or JSON. */
  readonly data: string;

  constructor(item: Schemas["DisplayItem"]) {
    this.mime = item.type;
    this.data = item.data;
  }

  /** The bytes of a file with it. */
  get content(): Uint8Array {
    const plain = this.mime.startsWith("text/") || /(\+xml|json)$/.test(this.mime);
    return plain ? new TextEncoder().encode(this.data) : fromBase64(this.data);
  }
}

export class CodeResult {
  readonly success: boolean;
  readonly stdout: string;
  readonly stderr: string;
  /** The value of the last expression, by MIME type. */
  readonly values: Record<string, string>;
  readonly error: Schemas["CellErrorItem"] | undefined;
  readonly displays: Display[];
  readonly timedOut: boolean;
  readonly interrupted: boolean;
  /** Variables of before are lost: the interpreter died, or would not be interrupted. */
  readonly stateLost: boolean;
  /** The whole answer. */
  readonly details: Schemas["CellResult"];

  constructor(cell: Schemas["CellResult"]) {
    this.success = cell.success;
    this.stdout = cell.stdout;
    this.stderr = cell.stderr;
    this.values = cell.result ?? {};
    this.error = cell.error ?? undefined;
    this.displays = cell.display_outputs.map((item) => new Display(item));
    this.timedOut = cell.timed_out;
    this.interrupted = cell.interrupted;
    this.stateLost = cell.state_lost;
    this.details = cell;
  }

  /** Code that a program ran: its last line of stderr is the error, and there is no value. */
  static of(ran: CommandResult): CodeResult {
    const { stdout, stderr, timedOut: timed_out, durationMs: duration_ms } = ran;
    const [, type = "Error", message = ran.summary()] = /^([\w.]+): (.*)$/.exec(stderr.trim().split("\n").at(-1) ?? "") ?? [];
    const error = ran.ok ? null : { type, message, traceback: stderr };
    const cell = { success: ran.ok, stdout, stderr, result: null, error, display_outputs: [], timed_out, duration_ms };
    return new CodeResult({ ...cell, interrupted: false, state_lost: false } as unknown as Schemas["CellResult"]);
  }

  /** The value of the last expression as text. */
  get text(): string | undefined {
    return this.values["text/plain"];
  }

  get images(): Display[] {
    return this.displays.filter((display) => display.mime.startsWith("image/"));
  }

  summary(): string {
    if (this.error) return `${this.error.type}: ${this.error.message}`;
    return this.timedOut ? "the code's time was over" : "the code failed";
  }

  /** Throws CodeFailedError unless the code succeeded. */
  check(): this {
    if (!this.success) throw new CodeFailedError(this);
    return this;
  }
}

export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function joined(pieces: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
