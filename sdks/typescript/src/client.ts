/** The connection to a server: requests, repeated where that is safe, and streams that resume. */

import type { components } from "./api.js";
import { Attempts, BrokenConnection, type Call, DEFAULT_RETRY, final, get, keyed, defined, type Repeatable, type RetryPolicy, segment } from "./calls.js";
import { ApiError, errorOfResponse, GrpcEndpointError, NotFoundError } from "./errors.js";
import { EventParser, type Source } from "./events.js";

type Schemas = components["schemas"];

export interface ClientOptions {
  /** Defaults to the variable ATOLL_URL, or http://127.0.0.1:7300. */
  baseUrl?: string | undefined;
  /** Defaults to the variable ATOLL_API_KEY. */
  apiKey?: string | undefined;
  retry?: Partial<RetryPolicy> | undefined;
  /** Another `fetch`, such as one with a proxy. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** The server sends a sign of life every 15 seconds on every stream. */
const SILENCE_MS = 50_000;

function variable(name: string): string | undefined {
  const host = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return host.process?.env?.[name] || undefined;
}

/** Waits, unless the signal aborts: then it throws the signal's reason. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** A client of one server. Several sandboxes can share it. */
export class Client {
  readonly baseUrl: string;
  readonly retry: RetryPolicy;
  readonly volumes: Volumes;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof globalThis.fetch;
  #grpc: Promise<boolean> | undefined;

  constructor(options: ClientOptions = {}) {
    const baseUrl = options.baseUrl ?? variable("ATOLL_URL") ?? "http://127.0.0.1:7300";
    if (!/^https?:\/\/[^/]/.test(baseUrl)) {
      throw new TypeError(`baseUrl is "${baseUrl}": it must begin with http:// or https:// and name a host`);
    }
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    const key = options.apiKey ?? variable("ATOLL_API_KEY");
    this.#headers = key ? { authorization: `Bearer ${key}` } : {};
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.retry = { ...DEFAULT_RETRY, ...options.retry };
    this.volumes = new Volumes(this);
  }

  async health(signal?: AbortSignal): Promise<Schemas["Health"]> {
    return this.value(get("../../health"), signal);
  }

  /** The records of your sandboxes, page by page; `filters` are the query parameters of the list. */
  sandboxes(filters: Record<string, string | number> = {}): AsyncGenerator<Schemas["Sandbox"]> {
    return this.pages("sandboxes", filters);
  }

  // -- Requests.

  /** What another protocol on the same connection needs. */
  connection(): { baseUrl: string; fetch: typeof globalThis.fetch; headers: Record<string, string> } {
    return { baseUrl: this.baseUrl, fetch: this.#fetch, headers: this.#headers };
  }

  /** Whether the URL is that of the server's gRPC endpoint, which serves nothing else. Asked once. */
  isGrpc(): Promise<boolean> {
    const headers = { ...this.#headers, "content-type": "application/grpc-web+proto" };
    const url = `${this.baseUrl}/sandbox.v1.SandboxService/ListSessions`;
    this.#grpc ??= this.#fetch(url, { method: "POST", headers, body: new Uint8Array(5) })
      .then((answer) => answer.body?.cancel().then(() => answer.headers.get("content-type")?.startsWith("application/grpc")))
      .then(Boolean)
      .catch(() => {
        this.#grpc = undefined;
        return false;
      });
    return this.#grpc;
  }

  /** One attempt of a request. */
  async open(call: Call, signal?: AbortSignal): Promise<Response> {
    const url = new URL(`${this.baseUrl}/api/v1/${call.path}`);
    for (const [name, value] of Object.entries(call.params ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = { ...this.#headers, ...call.headers };
    if (call.key !== undefined) headers["idempotency-key"] = call.key;
    const request: RequestInit & { duplex?: "half" } = { method: call.method, headers, redirect: "error" };
    if (call.json !== undefined) {
      headers["content-type"] = "application/json";
      request.body = JSON.stringify(call.json);
    } else if (call.content) {
      headers["content-type"] = "application/octet-stream";
      request.body = call.content();
      request.duplex = "half";
    }
    if (signal) request.signal = signal;
    let response: Response;
    try {
      response = await this.#fetch(url, request);
      if (!response.ok) throw errorOfResponse(response.status, response.headers, await response.text());
    } catch (failure) {
      throw broken(failure, signal);
    }
    return response;
  }

  /** Sends a request until it is answered, as often as that does it at most once. */
  async request<T>(call: Call, read: (response: Response) => Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
    const once = async (attempts: Attempts) => {
      try {
        const response = await this.open(call, signal);
        return await read(response).catch((failure) => Promise.reject(broken(failure, signal)));
      } catch (failure) {
        if (!(failure instanceof NotFoundError)) throw failure;
        // The first attempt deleted it.
        if (call.method === "DELETE" && attempts.unclear) return undefined;
        throw failure.field === undefined && (await this.isGrpc()) ? new GrpcEndpointError(this.baseUrl) : failure;
      }
    };
    return this.repeat(call, once, signal);
  }

  /** Does something until it is answered, as often as `call` allows. */
  async repeat<T>(call: Repeatable, once: (attempts: Attempts) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const attempts = new Attempts(this.retry);
    for (;;) {
      let delay: number | undefined;
      try {
        return await once(attempts);
      } catch (failure) {
        delay = attempts.delay(call, failure);
        if (delay === undefined) throw final(failure, this.baseUrl);
      }
      await sleep(delay, signal);
    }
  }

  /** A request whose answer is JSON. */
  async value<T>(call: Call, signal?: AbortSignal): Promise<T> {
    return (await this.request(call, (response) => response.json(), signal)) as T;
  }

  /** A request whose answer is empty. */
  async done(call: Call, signal?: AbortSignal): Promise<void> {
    await this.request(call, (response) => response.arrayBuffer(), signal);
  }

  async *pages<T>(path: string, params: Record<string, string | number> = {}): AsyncGenerator<T> {
    for (let page = 1; ; page += 1) {
      const found = await this.value<{ items: T[]; page_size: number; total: number }>(get(path, { ...params, page }));
      yield* found.items;
      if (!found.items.length || page * found.page_size >= found.total) return;
    }
  }

  /** What happens to a source, to its end. A connection that breaks is made again where the source can resume. */
  async *follow<T>(source: Source<T>, signal?: AbortSignal): AsyncGenerator<T> {
    const attempts = new Attempts(this.retry);
    while (!source.ended) {
      const call = source.call();
      const opened = performance.now();
      let failure: unknown;
      try {
        for await (const item of this.#events(source, call, signal)) {
          attempts.progress();
          yield item;
        }
        failure = new BrokenConnection(new Error("the stream ended before what it tells of"));
      } catch (thrown) {
        failure = thrown;
      }
      if (source.ended) return;
      if (performance.now() - opened > this.retry.seconds * 1000) attempts.progress();
      const delay = attempts.delay(call, failure);
      if (delay === undefined) throw final(failure, this.baseUrl);
      await sleep(delay, signal);
    }
  }

  async *#events<T>(source: Source<T>, call: Call, signal?: AbortSignal): AsyncGenerator<T> {
    // One connection, which ends with its reader, with the caller's signal, or when it is silent for too long.
    const connection = new AbortController();
    const aborted = () => connection.abort(signal?.reason);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", aborted, { once: true });
    try {
      const response = await audible(connection, () => this.open(call, connection.signal));
      const parser = new EventParser();
      const decoder = new TextDecoder();
      for await (const piece of chunks(response, connection)) {
        for (const event of parser.feed(decoder.decode(piece, { stream: true }))) {
          yield* source.take(event);
          if (source.ended) return;
        }
      }
    } catch (failure) {
      throw broken(failure, signal);
    } finally {
      signal?.removeEventListener("abort", aborted);
      connection.abort();
    }
  }
}

async function* chunks(response: Response, connection: AbortController): AsyncGenerator<Uint8Array> {
  if (!response.body) return;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await audible(connection, () => reader.read());
    if (done) return;
    yield value;
  }
}

/** Waits for the server, and gives the connection up where it is silent for too long. */
async function audible<T>(connection: AbortController, wait: () => Promise<T>): Promise<T> {
  const silent = setTimeout(() => connection.abort(new Error("the server is silent")), SILENCE_MS);
  try {
    return await wait();
  } finally {
    clearTimeout(silent);
  }
}

/** A failure of fetch, told apart from an answer and from the caller's own abort. */
export function broken(failure: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (failure instanceof ApiError || failure instanceof BrokenConnection) return failure;
  return new BrokenConnection(failure);
}

/** Volumes, which outlive sandboxes and are attached to several of them. */
export class Volumes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  create(name: string, options: { diskMb?: number } = {}): Promise<Schemas["Volume"]> {
    return this.#client.value(keyed("volumes", defined({ name, disk_mb: options.diskMb })));
  }

  get(name: string): Promise<Schemas["Volume"]> {
    return this.#client.value(get(`volumes/${segment(name)}`));
  }

  list(): AsyncGenerator<Schemas["Volume"]> {
    return this.#client.pages("volumes");
  }

  resize(name: string, diskMb: number): Promise<Schemas["Volume"]> {
    return this.#client.value({ method: "PATCH", path: `volumes/${segment(name)}`, json: { disk_mb: diskMb }, safe: true });
  }

  delete(name: string): Promise<void> {
    return this.#client.done({ method: "DELETE", path: `volumes/${segment(name)}`, safe: true });
  }
}
