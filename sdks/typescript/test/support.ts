// Real servers, each with a data folder of its own, and a proxy that cuts connections. ATOLL_PROGRAM names the
// server's program; without it the one that cargo built is used.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server as Listener, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PROGRAM = process.env["ATOLL_PROGRAM"] ?? join(import.meta.dirname, "../../../target/debug/atoll");

/** A port that the kernel gives to no connection, so that it is free also while a server is restarted. */
async function freePort(except = 0): Promise<number> {
  for (let number = 0; number < 20_000; number += 1) {
    const port = 10_000 + ((process.pid * 8 + number) % 20_000);
    if (port === except) continue;
    const listener = createServer();
    const free = await new Promise<boolean>((resolve) => {
      listener.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
    });
    await new Promise((resolve) => listener.close(resolve));
    if (free) return port;
  }
  throw new Error("no free port");
}

export class Server {
  readonly key = "bootstrap-key-of-a-test";
  readonly #data = mkdtempSync(join(tmpdir(), "atoll-sdk-"));
  readonly #config = `${this.#data}.toml`;
  port = 0;
  #grpcPort = 0;
  #process: ChildProcess | undefined;

  /** Starts a server with this configuration, in TOML. */
  static async start(config = ""): Promise<Server> {
    const server = new Server();
    chmodSync(server.#data, 0o755);
    writeFileSync(server.#config, config);
    server.port = await freePort();
    server.#grpcPort = await freePort(server.port);
    await server.start();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get grpcUrl(): string {
    return `http://127.0.0.1:${this.#grpcPort}`;
  }

  get options(): { baseUrl: string; apiKey: string } {
    return { baseUrl: this.url, apiKey: this.key };
  }

  async start(): Promise<void> {
    const arguments_ = ["serve", "--listen", `127.0.0.1:${this.port}`, "--data-dir", this.#data, "--config", this.#config];
    const env = {
      ...process.env,
      ATOLL_BOOTSTRAP_KEY: this.key,
      ATOLL_GRPC_LISTEN: `127.0.0.1:${this.#grpcPort}`,
      ATOLL_SETTINGS_WARM_POOL_ENABLED: "false",
      ATOLL_EGRESS_ASK_INDEXES: "false",
      ATOLL_LOG: "warn",
    };
    const child = spawn(PROGRAM, arguments_, { env, stdio: ["ignore", "pipe", "inherit"] });
    this.#process = child;
    const lines = createInterface({ input: child.stdout });
    await new Promise<void>((resolve, reject) => {
      lines.once("line", (line) => (line.includes("http://") ? resolve() : reject(new Error(line))));
      child.once("exit", () => reject(new Error("the server did not start")));
    });
  }

  /** Ends the server as violently as possible. Sandboxes go on. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const ended = new Promise((resolve) => this.#process?.once("exit", resolve));
    this.#process?.kill(signal);
    await ended;
  }

  /** A key of another owner. */
  async newKey(name: string, tier?: string): Promise<string> {
    const made = await fetch(`${this.url}/api/v1/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
      body: JSON.stringify({ name, owner: name, scope: "user", tier }),
    });
    return ((await made.json()) as { key: string }).key;
  }

  async end(): Promise<void> {
    await this.kill("SIGTERM");
    execFileSync(PROGRAM, ["down", "--data-dir", this.#data, "--purge"], { stdio: "pipe" });
    for (const path of [this.#data, this.#config]) rmSync(path, { recursive: true, force: true });
  }
}

/** Passes connections on to a server. The next ones end after as many bytes of answers as `cuts` says; with 0 the
 * request arrives, and its answer is lost. As many as `limited` says are read whole and refused with 429. */
export class Proxy {
  cuts: number[] = [];
  limited = 0;
  #listener: Listener | undefined;
  #sockets = new Set<Socket>();

  static async start(server: Server): Promise<Proxy> {
    const proxy = new Proxy();
    const pass = (client: Socket) => proxy.#pass(client, connect(server.port, "127.0.0.1"));
    const listener = createServer((client) => (proxy.limited > 0 ? proxy.#refuse(client) : pass(client)));
    proxy.#listener = listener;
    await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#listener?.address() as AddressInfo).port}`;
  }

  /** Answers a request when all of it has come: the server's own refusal of too many requests. */
  #refuse(client: Socket): void {
    this.limited -= 1;
    this.#sockets.add(client);
    let request = "";
    client.on("error", () => client.destroy()).on("data", (piece) => {
      request += piece.toString("latin1");
      const [head = "", ...rest] = request.split("\r\n\r\n");
      const length = /content-length: *(\d+)/i.exec(head)?.[1];
      const whole = length === undefined ? request.endsWith("0\r\n\r\n") : rest.join("\r\n\r\n").length >= Number(length);
      if (!whole) return;
      const body = '{"error":{"code":"limit_exceeded","message":"too many requests"}}';
      const headers = `Retry-After: 0\r\nConnection: close\r\nContent-Length: ${body.length}`;
      client.end(`HTTP/1.1 429 Too Many Requests\r\n${headers}\r\n\r\n${body}`);
    });
  }

  #pass(client: Socket, upstream: Socket): void {
    let left = this.cuts.shift();
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.on("error", end).on("close", end);
    }
    client.on("data", (piece) => upstream.write(piece));
    upstream.on("data", (piece) => {
      if (left === undefined) {
        client.write(piece);
      } else if (piece.length >= left) {
        if (left) client.write(piece.subarray(0, left), end);
        else end();
        left = 0;
      } else {
        client.write(piece);
        left -= piece.length;
      }
    });
  }

  end(): void {
    this.#listener?.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** A `fetch` that keeps no connection, so that the next request has the proxy's next cut. */
export const fetchAnew: typeof fetch = (url, init) => {
  const headers = { ...(init?.headers as Record<string, string>), connection: "close" };
  return fetch(url, { ...init, headers });
};
