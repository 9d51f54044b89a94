/** Commands: run to their end, or in the background with a handle. */

import type { components } from "./api.js";
import { type Call, contentOf, defined, get, keyed, segment } from "./calls.js";
import { type Client } from "./client.js";
import { ApiError, AtollError, ConflictError, NotFoundError, NotRunningError } from "./errors.js";
import { ExecSource } from "./events.js";
import { type CommandResult, joined, type Output } from "./results.js";

type Schemas = components["schemas"];

export type Input = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;

/** What is called with output as it comes. A promise that it returns is waited for. */
export type Listener<T> = (value: T) => void | Promise<void>;

export interface StartOptions {
  /** Absolute, or relative to /workspace. */
  cwd?: string;
  env?: Record<string, string>;
  /** Variables too, whose values appear in no log of the server. */
  secrets?: Record<string, string>;
  user?: string;
  /** In seconds, counted by the server: 300 where nothing is said, in the background none. */
  timeout?: number;
}

export interface ExecOptions extends StartOptions {
  stdin?: Input;
  onStdout?: Listener<string>;
  onStderr?: Listener<string>;
  /** Throw CommandFailedError where the exit code is not 0. */
  check?: boolean;
  /** The command waits for its reader instead of losing its oldest output. */
  lossless?: boolean;
  /** Kills the command when it aborts. */
  signal?: AbortSignal;
}

export interface WaitOptions {
  onStdout?: Listener<string>;
  onStderr?: Listener<string>;
  check?: boolean;
  /** Ends the waiting when it aborts; the command goes on. */
  signal?: AbortSignal;
}

/** How long a command whose caller is gone is being killed for. */
const KILL_MS = 5000;
/** Text up to this length is sent with the request, which may be repeated; more is sent beside the output. */
const INLINE_INPUT = 256 * 1024;

function bodyOf(command: string | string[], options: StartOptions): Record<string, unknown> {
  return defined({
    ...(typeof command === "string" ? { command } : { arguments: command }),
    working_directory: options.cwd,
    env_vars: options.env,
    secrets: options.secrets,
    user: options.user,
    timeout_seconds: options.timeout,
  });
}

async function gather(client: Client, source: ExecSource, options: WaitOptions): Promise<CommandResult> {
  const kept = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const listeners = { stdout: options.onStdout, stderr: options.onStderr };
  for await (const { stream, data } of client.follow(source, options.signal)) {
    kept[stream].push(data);
    const text = listeners[stream] && decoders[stream].decode(data, { stream: true });
    if (text) await listeners[stream]?.(text);
  }
  for (const stream of ["stdout", "stderr"] as const) {
    const rest = listeners[stream] && decoders[stream].decode();
    if (rest) await listeners[stream]?.(rest);
  }
  const result = source.result(joined(kept.stdout), joined(kept.stderr));
  return options.check ? result.check() : result;
}

/** A command that runs in the background. It goes on when this object or this process ends. */
export class Command {
  readonly execId: string;
  readonly #client: Client;
  readonly #sandbox: string;

  constructor(client: Client, sandbox: string, execId: string) {
    this.#client = client;
    this.#sandbox = sandbox;
    this.execId = execId;
  }

  get #path(): string {
    return `${this.#sandbox}/execs/${segment(this.execId)}`;
  }

  status(): Promise<Schemas["ExecItem"]> {
    return this.#client.value(get(this.#path));
  }

  /** What it prints, from a byte on and to its end. A broken connection is resumed. */
  output(options: { offset?: number; signal?: AbortSignal } = {}): AsyncGenerator<Output> {
    const source = new ExecSource(this.#sandbox, { execId: this.execId, offset: options.offset ?? 0 });
    return this.#client.follow(source, options.signal);
  }

  /** Waits for its end. */
  wait(options: WaitOptions = {}): Promise<CommandResult> {
    return gather(this.#client, new ExecSource(this.#sandbox, { execId: this.execId }), options);
  }

  /** Ends it and everything that it started. */
  kill(signal?: AbortSignal): Promise<Schemas["ExecItem"]> {
    return this.#client.value({ method: "POST", path: `${this.#path}/kill`, safe: true }, signal);
  }

  sendSignal(signal: string | number): Promise<void> {
    return this.#client.done({ method: "POST", path: `${this.#path}/signal`, json: { signal } });
  }

  /** Gives it input, and returns how many bytes it took. It is never sent twice. */
  async writeStdin(data: Input, options: { close?: boolean; signal?: AbortSignal } = {}): Promise<number> {
    const call: Call = {
      method: "POST",
      path: `${this.#path}/stdin`,
      params: { close: options.close ?? false },
      ...contentOf(data),
    };
    return (await this.#client.value<Schemas["Written"]>(call, options.signal)).written;
  }

  /** Removes an ended command and its output. */
  forget(): Promise<void> {
    return this.#client.done({ method: "DELETE", path: this.#path, safe: true });
  }

  /** `await using` kills the command, if it still runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch((error: unknown) => {
      if (!(error instanceof NotRunningError || error instanceof NotFoundError)) throw error;
    });
  }
}

/** The commands of a sandbox. */
export class Commands {
  readonly #client: Client;
  readonly #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  /**
   * Runs a command: a line for the shell, or a program and its arguments. It is run once, also when the connection
   * breaks or the server is restarted meanwhile.
   */
  async run(command: string | string[], options: ExecOptions = {}): Promise<CommandResult> {
    options.signal?.throwIfAborted();
    const { stdin } = options;
    const inline = typeof stdin === "string" && stdin.length <= INLINE_INPUT;
    const body = {
      ...bodyOf(command, options),
      stream: true,
      ...(options.lossless ? { lossless: true } : {}),
      ...(stdin === undefined ? {} : inline ? { stdin } : { stdin_open: true }),
    };
    const begin = keyed(`${this.#sandbox}/exec`, body);
    const source = new ExecSource(this.#sandbox, { begin });
    const fed = stdin === undefined || inline ? undefined : this.#feed(source, stdin);
    try {
      const result = await gather(this.#client, source, { ...options, check: false });
      fed?.end.abort();
      const failure = await fed?.failure;
      if (failure) throw failure;
      return options.check ? result.check() : result;
    } catch (error) {
      fed?.end.abort();
      // Asking again for the id of a command that the server refused could start it.
      const refused = error instanceof ApiError && source.execId === undefined;
      if (!refused) await this.#abandon(source, begin);
      throw error;
    }
  }

  /** Sends input once the command has started, beside its output. */
  #feed(source: ExecSource, stdin: Input): { end: AbortController; failure: Promise<unknown> } {
    const end = new AbortController();
    const failure = new Promise<unknown>((resolve) => {
      end.signal.addEventListener("abort", () => resolve(undefined), { once: true });
      let begun = false;
      source.onStarted = (execId) => {
        if (begun) return;
        begun = true;
        const written = this.get(execId).writeStdin(stdin, { close: true, signal: end.signal });
        written.then(
          () => resolve(undefined),
          async (error: unknown) => {
            // A command may end before it has read everything.
            const ended = [NotRunningError, ConflictError, NotFoundError].some((kind) => error instanceof kind);
            if (ended || end.signal.aborted) return resolve(undefined);
            resolve(error);
            await this.#abandon(source);
          },
        );
      };
    });
    return { end, failure };
  }

  /** Kills a command whose caller is gone. Where its id never came, the same request asks for it: the key makes it
   * the same command. */
  async #abandon(source: ExecSource, begin?: Call): Promise<void> {
    if (source.ended || !source.asked) return;
    const limit = AbortSignal.timeout(KILL_MS);
    try {
      const execId = source.execId ?? (begin && (await this.#idOf(begin, limit)));
      if (execId !== undefined) await this.get(execId).kill(limit);
    } catch (error) {
      if (!(error instanceof AtollError || limit.aborted)) throw error;
    }
  }

  async #idOf(begin: Call, signal: AbortSignal): Promise<string | undefined> {
    const source = new ExecSource(this.#sandbox, { begin });
    const start = new AbortController();
    const either = AbortSignal.any([signal, start.signal]);
    source.onStarted = () => start.abort();
    try {
      for await (const _ of this.#client.follow(source, either));
    } catch (error) {
      if (source.execId === undefined || error instanceof ApiError) throw error;
    }
    return source.execId;
  }

  /** Starts a command in the background. With `stdinOpen`, `writeStdin` gives it more input. */
  async start(
    command: string | string[],
    options: StartOptions & { stdin?: string; stdinOpen?: boolean } = {},
  ): Promise<Command> {
    const body = {
      ...bodyOf(command, options),
      background: true,
      ...defined({ stdin: options.stdin, stdin_open: options.stdinOpen }),
    };
    const item = await this.#client.value<Schemas["ExecItem"]>(keyed(`${this.#sandbox}/exec`, body));
    return this.get(item.exec_id);
  }

  /** A handle of a command by its id. */
  get(execId: string): Command {
    return new Command(this.#client, this.#sandbox, execId);
  }

  /** The commands that the sandbox remembers, the latest first. */
  list(): Promise<Schemas["ExecItem"][]> {
    return this.#client.value(get(`${this.#sandbox}/execs`));
  }
}
