/**
 * A sandbox behind the server's gRPC endpoint, by gRPC-Web: what `sandbox.v1.SandboxService` has words for, in the types of
 * the HTTP API. Anything else is an UnsupportedError. The protocol has no Idempotency-Key, so a command or an
 * installation whose connection breaks is not sent again; a session is, because the client names it.
 */

import { type Client as Service, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import type { components } from "./api.js";
import { BrokenConnection, filePath, newKey } from "./calls.js";
import { type Client } from "./client.js";
import type { ExecOptions } from "./commands.js";
import { ApiError, AuthenticationError, errorOfCode, ExecFailedError, NotFoundError, UnsupportedError } from "./errors.js";
import type { Content } from "./files.js";
import { SandboxService, type SessionInfo } from "./gen/sandbox/v1/sandbox_pb.js";
import { requirements } from "./packages.js";
import { CodeResult, CommandResult } from "./results.js";
import type { CodeOptions, CreateOptions, InstallOptions } from "./sandbox.js";

type Installed = components["schemas"]["InstalledItem"];

/** The codes of the API by those of gRPC, which has fewer. */
const CODES: Partial<Record<Code, string>> = {
  [Code.InvalidArgument]: "invalid_argument",
  [Code.NotFound]: "not_found",
  [Code.AlreadyExists]: "already_exists",
  [Code.FailedPrecondition]: "conflict",
  [Code.PermissionDenied]: "permission_denied",
  [Code.ResourceExhausted]: "limit_exceeded",
  [Code.Aborted]: "rolled_back",
  [Code.Unimplemented]: "unsupported",
  [Code.Unavailable]: "unavailable",
  [Code.DeadlineExceeded]: "timeout",
};
const USUAL_TIMEOUT = 300;

/** A failed call, told apart from the caller's own abort and from a connection that broke. */
function failureOf(thrown: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (!(thrown instanceof ConnectError)) return thrown;
  if (thrown.cause instanceof TypeError) return new BrokenConnection(thrown.cause);
  const info = { retryAfter: Number(thrown.metadata.get("retry-after") ?? undefined) || undefined };
  if (thrown.code === Code.Unauthenticated) {
    return new AuthenticationError(thrown.rawMessage, { ...info, code: "permission_denied" });
  }
  return errorOfCode(CODES[thrown.code] ?? "internal", thrown.rawMessage, info);
}

function unsupported(what: string): UnsupportedError {
  return new UnsupportedError(`${what}: connect to the server's HTTP API`, { code: "unsupported" });
}

/** Fails where an option is given that this protocol cannot carry. */
function refuse(what: string, options: object, known: string[]): void {
  const other = Object.entries(options).find(([name, value]) => value !== undefined && !known.includes(name));
  if (other) throw unsupported(`${what} has no ${other[0]} over gRPC`);
}

/** Words of which a shell makes the same words. */
function quoted(words: string[]): string {
  return words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
}

/** A file error, of which the protocol tells only the text. */
function fileError(message: string | undefined): ApiError {
  const missing = /no such file|not found/i.test(message ?? "");
  return errorOfCode(missing ? "not_found" : "invalid_argument", message ?? "the file cannot be had");
}

export class GrpcSession {
  readonly id: string;
  readonly #client: Client;
  readonly #service: Service<typeof SandboxService>;

  private constructor(client: Client, id: string) {
    const { baseUrl, fetch, headers } = client.connection();
    const authorised: typeof fetch = (input, init) => {
      const all = new Headers(init?.headers);
      for (const [name, value] of Object.entries(headers)) all.set(name, value);
      return fetch(input, { ...init, headers: all });
    };
    this.id = id;
    this.#client = client;
    this.#service = createClient(SandboxService, createGrpcWebTransport({ baseUrl, fetch: authorised }));
  }

  static async create(client: Client, options: CreateOptions): Promise<GrpcSession> {
    const ofClient = ["client", "baseUrl", "apiKey", "retry", "fetch"];
    refuse("a session", options, ["allowedHosts", "networkEnabled", "sessionKey", "tenantId", "signal", ...ofClient]);
    // A session of this id is answered and not made twice.
    const session = new GrpcSession(client, options.sessionKey ?? newKey());
    const hosts = options.networkEnabled === false ? ["localhost"] : (options.allowedHosts ?? []);
    const tenant = options.tenantId === undefined ? {} : { tenantId: options.tenantId };
    const request = { sessionId: session.id, allowedHosts: hosts, ...tenant };
    await session.#call(true, options.signal, (call) => session.#service.createSession(request, call));
    return session;
  }

  static async connect(client: Client, id: string): Promise<GrpcSession> {
    const session = new GrpcSession(client, id);
    await session.info();
    return session;
  }

  async info(): Promise<SessionInfo> {
    const answer = await this.#call(true, undefined, (call) => this.#service.getSession({ sessionId: this.id }, call));
    if (!answer.session) throw new NotFoundError(`there is no session ${this.id}`, { code: "not_found" });
    return answer.session;
  }

  #call<T>(safe: boolean, signal: AbortSignal | undefined, once: (call: { signal?: AbortSignal }) => Promise<T>): Promise<T> {
    const attempt = () => once(signal ? { signal } : {}).catch((thrown) => Promise.reject(failureOf(thrown, signal)));
    return this.#client.repeat({ safe }, attempt, signal);
  }

  async exec(command: string | string[], options: ExecOptions = {}): Promise<CommandResult> {
    refuse("a command", options, ["cwd", "timeout", "onStdout", "onStderr", "check", "lossless", "signal"]);
    const line = typeof command === "string" ? command : quoted(command);
    const result = await this.#call(false, options.signal, () => this.#follow(line, options));
    return options.check ? result.check() : result;
  }

  /** Follows a command to its end. Its time is counted here: the protocol has no field for it. */
  async #follow(command: string, options: ExecOptions): Promise<CommandResult> {
    const begun = performance.now();
    const late = AbortSignal.timeout(Math.ceil((options.timeout ?? USUAL_TIMEOUT) * 1000));
    const left = new AbortController();
    const signal = AbortSignal.any([late, left.signal, ...(options.signal ? [options.signal] : [])]);
    const text = { stdout: "", stderr: "" };
    const ended = (exitCode: number, timedOut: boolean) => {
      const [stdout, stderr] = [new TextEncoder().encode(text.stdout), new TextEncoder().encode(text.stderr)];
      const durationMs = Math.round(performance.now() - begun);
      return CommandResult.of({ exitCode, timedOut, durationMs }, stdout, stderr);
    };
    let failure: unknown = new BrokenConnection(new Error("the stream ended before the command"));
    // Whether what is thrown is a listener's or the command's, and not the connection's.
    let own = false;
    try {
      const request = { sessionId: this.id, command, workdir: options.cwd ?? "" };
      for await (const event of this.#service.execStream(request, { signal })) {
        if (event.type === "exit") return ended(event.exitCode ?? -1, false);
        if (event.type === "error") {
          // The key's tier allows less time than this client does.
          if (event.exitCode !== undefined && event.data === "Command timed out") return ended(124, true);
          own = true;
          if (event.data !== "Session not found") throw new ExecFailedError(event.data, { code: "exec_failed" });
          throw new NotFoundError(`there is no session ${this.id}`, { code: "not_found" });
        }
        const stream = event.type === "stderr" ? "stderr" : "stdout";
        text[stream] += event.data;
        own = true;
        await (stream === "stdout" ? options.onStdout : options.onStderr)?.(event.data);
        own = false;
      }
    } catch (thrown) {
      if (late.aborted && !options.signal?.aborted) return ended(124, true);
      failure = own ? thrown : failureOf(thrown, options.signal);
    } finally {
      // Kills a command that still runs.
      left.abort();
    }
    throw failure;
  }

  async writeFile(path: string, content: Content): Promise<void> {
    filePath(path);
    const bytes = typeof content === "string" ? content : await new Response(content).bytes();
    const text = typeof bytes === "string" ? bytes : utf8(bytes);
    const request = { sessionId: this.id, path, content: text, mode: "w" };
    const answer = await this.#call(true, undefined, (call) => this.#service.writeFile(request, call));
    if (!answer.success) throw fileError(answer.error);
  }

  async readFile(path: string): Promise<string> {
    filePath(path);
    const answer = await this.#call(true, undefined, (call) => this.#service.readFile({ sessionId: this.id, path }, call));
    if (!answer.success) throw fileError(answer.error);
    return answer.content ?? "";
  }

  /** Runs Python code in an interpreter of its own: this protocol has none that keeps variables. */
  async runPython(code: string, options: CodeOptions = {}): Promise<CodeResult> {
    refuse("code", options, ["language", "timeout", "onStdout", "onStderr", "check", "signal"]);
    const file = `/tmp/.run-${newKey()}.py`;
    await this.writeFile(file, code);
    const { onStdout, onStderr, signal } = options;
    const listeners = { ...(onStdout && { onStdout }), ...(onStderr && { onStderr }), ...(signal && { signal }) };
    const line = `python3 - < ${file}; status=$?; rm -f ${file}; exit $status`;
    const result = CodeResult.of(await this.exec(line, { timeout: options.timeout ?? 30, ...listeners }));
    return options.check ? result.check() : result;
  }

  async pipInstall(packages: string[] | Record<string, string>, options: InstallOptions = {}): Promise<Installed> {
    refuse("an installation", options, ["check", "signal"]);
    const request = { sessionId: this.id, packages: requirements(packages) };
    const answer = await this.#call(false, options.signal, (call) => this.#service.pipInstall(request, call));
    return { success: answer.exitCode === 0, stdout: answer.stdout, stderr: answer.stderr };
  }

  async destroy(): Promise<void> {
    await this.#call(true, undefined, (call) => this.#service.destroySession({ sessionId: this.id }, call));
  }
}

/** Bytes as text, which is all that the protocol carries. */
function utf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unsupported("gRPC carries text alone");
  }
}
