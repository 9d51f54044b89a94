/** Requests as data, and whether a failed one may be sent again. Nothing here does any I/O. */

import { ConflictError, ConnectionFailedError, LimitExceededError, NotFoundError, PathError, UnavailableError } from "./errors.js";

/** How long a client outlasts a server that does not answer, such as one that is being restarted. */
export interface RetryPolicy {
  /** From the first failure on; 30. With 0 every failure is an error at once. */
  seconds: number;
  /** Seconds; 0.1. */
  firstDelay: number;
  /** Seconds; 2. */
  longestDelay: number;
  /** A request that the server limits is repeated where `Retry-After` is at most this many seconds; 2. */
  longestWait: number;
}

export const DEFAULT_RETRY: RetryPolicy = { seconds: 30, firstDelay: 0.1, longestDelay: 2, longestWait: 2 };

export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below /api/v1/. */
  path: string;
  params?: Record<string, string | number | boolean | undefined>;
  json?: unknown;
  /** Makes the body, once for each attempt. */
  content?: () => BodyInit;
  /** Whether the body is a stream, which can be sent once. */
  once?: boolean;
  /** With an Idempotency-Key the server carries a request out once, however often it comes. */
  key?: string;
  /** Whether carrying it out twice is the same as once, also without a key. */
  safe?: boolean;
  headers?: Record<string, string>;
}

/** What decides whether a call may be sent again. */
export type Repeatable = Pick<Call, "key" | "safe" | "once">;

export function newKey(): string {
  return crypto.randomUUID();
}

/** An object without the fields that are undefined. */
export function defined<T extends object>(given: T): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}

export function get(path: string, params: Call["params"] = {}): Call {
  return { method: "GET", path, params, safe: true };
}

export function keyed(path: string, json: unknown): Call {
  return { method: "POST", path, json, key: newKey() };
}

/** Content as the body of a call. */
export function contentOf(content: BodyInit): Required<Pick<Call, "content" | "once">> {
  return { content: () => content, once: content instanceof ReadableStream };
}

/** A path of the sandbox as the rest of a URL. One that is absolute keeps its first slash. One with `..` would be
 * the path of another resource, or of another sandbox. */
export function filePath(path: string): string {
  if (path.split("/").includes("..")) {
    throw new PathError(`${path}: a path must not contain '..'`, { code: "path_outside_root", details: { field: "path" } });
  }
  return path.split("/").map(encodeURIComponent).join("/");
}

/** An id or a name as one segment of a URL, and never the path of another resource. */
export function segment(name: string): string {
  if (["", ".", ".."].includes(name)) throw new NotFoundError(`there is nothing called '${name}'`, { code: "not_found" });
  return encodeURIComponent(name);
}

const ID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;

/** Whether a name is an id of the server's, and not a label. */
export function isId(name: string): boolean {
  return ID.test(name);
}

/** A request that got no answer, or not all of it. */
export class BrokenConnection extends Error {
  /** Whether the request surely did not reach the server. */
  readonly neverSent: boolean;
  constructor(cause: unknown) {
    const inner = (cause as { cause?: { code?: string; message?: string } }).cause;
    super(inner?.message || inner?.code || (cause as Error).message, { cause });
    const codes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];
    this.neverSent = codes.includes(inner?.code ?? "");
  }
}

/** Decides whether a failed request is sent again, and when. */
export class Attempts {
  /** Whether an earlier attempt may have been carried out. */
  unclear = false;
  readonly #policy: RetryPolicy;
  #since: number | undefined;
  #delay: number;

  constructor(policy: RetryPolicy) {
    this.#policy = policy;
    this.#delay = policy.firstDelay;
  }

  /** The server answers: the next failure is the first of another outage. */
  progress(): void {
    this.#since = undefined;
    this.#delay = this.#policy.firstDelay;
  }

  /** Seconds to wait before the next attempt; undefined where there must not be one. */
  delay(call: Repeatable, failure: unknown): number | undefined {
    const wait = this.#wanted(call, failure);
    const now = performance.now() / 1000;
    this.#since ??= now;
    return wait === undefined || now + wait - this.#since > this.#policy.seconds ? undefined : wait;
  }

  #wanted(call: Repeatable, failure: unknown): number | undefined {
    // Its stream is used up, or locked, also where the server refused the request.
    if (call.once) return undefined;
    if (failure instanceof LimitExceededError) {
      // The server refuses before it does anything.
      const wait = failure.retryAfter;
      return wait !== undefined && wait <= this.#policy.longestWait ? wait : undefined;
    }
    if (failure instanceof ConflictError) {
      // The first attempt arrived and is still being carried out.
      return this.unclear && failure.message.includes("Idempotency-Key") ? this.#next() : undefined;
    }
    if (failure instanceof BrokenConnection && failure.neverSent) return this.#next();
    if (failure instanceof BrokenConnection || failure instanceof UnavailableError) {
      this.unclear = true;
      return call.key !== undefined || call.safe ? this.#next() : undefined;
    }
    return undefined;
  }

  #next(): number {
    const delay = this.#delay * (0.5 + Math.random() / 2);
    this.#delay = Math.min(this.#delay * 2, this.#policy.longestDelay);
    return delay;
  }
}

/** A failure as the caller gets it. */
export function final(failure: unknown, url: string): unknown {
  if (failure instanceof BrokenConnection) {
    return new ConnectionFailedError(`the server at ${url} cannot be reached: ${failure.message}`, { cause: failure.cause });
  }
  return failure;
}
