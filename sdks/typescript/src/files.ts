/** Files of a sandbox. Paths are absolute, or relative to /workspace. */

import type { components } from "./api.js";
import { Attempts, type Call, contentOf, defined, filePath, final, get } from "./calls.js";
import { broken, type Client, sleep } from "./client.js";
import { ConflictError, NotFoundError } from "./errors.js";
import { WatchSource } from "./events.js";
import { joined } from "./results.js";

type Schemas = components["schemas"];

export type Content = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;

/** The files of a sandbox. */
export class Files {
  readonly #client: Client;
  readonly #sandbox: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#sandbox = sandbox;
  }

  async read(path: string, signal?: AbortSignal): Promise<string> {
    return new TextDecoder().decode(await this.readBytes(path, signal));
  }

  async readBytes(path: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.stream(path, { ...(signal && { signal }) })) pieces.push(piece);
    return joined(pieces);
  }

  /** The bytes of a file as they come. A broken download is resumed, unless the file changed meanwhile. */
  async *stream(path: string, options: { start?: number; signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array> {
    const { signal } = options;
    const before = await this.stat(path, { follow: true });
    const attempts = new Attempts(this.#client.retry);
    let at = options.start ?? 0;
    for (;;) {
      if (at && at >= before.size) return;
      const call: Call = { method: "GET", path: this.#of(path), safe: true };
      if (at) call.headers = { range: `bytes=${at}-` };
      let delay: number | undefined;
      try {
        const response = await this.#client.open(call, signal);
        for await (const piece of response.body ?? []) {
          attempts.progress();
          at += piece.length;
          yield piece;
        }
        return;
      } catch (thrown) {
        const failure = broken(thrown, signal);
        delay = attempts.delay(call, failure);
        if (delay === undefined) throw final(failure, this.#client.baseUrl);
      }
      await sleep(delay, signal);
      const now = await this.stat(path, { follow: true });
      if (at && (now.size !== before.size || now.modified_at !== before.modified_at)) {
        throw new ConflictError(`${path} changed while it was read`, { code: "conflict" });
      }
    }
  }

  /**
   * Writes a file, whole or not at all, and the folders above it. `force` replaces one that is read-only. A stream is
   * sent once; anything else again, if the connection breaks.
   */
  async write(path: string, content: Content, options: { force?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    const params = { overwrite: options.force ? "force" : undefined };
    if (typeof content !== "string" && typeof content !== "object") throw new TypeError(`${path}: there is no content to write`);
    return this.#client.done({ method: "PUT", path: this.#of(path), params, safe: true, ...contentOf(content) }, options.signal);
  }

  /** A folder as a tar archive. */
  async pack(path = ".", signal?: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#client.open(get(`${this.#sandbox}/fs/tar`, { path }), signal).catch((failure) => {
      throw final(failure, this.#client.baseUrl);
    });
    return response.body ?? new Blob([]).stream();
  }

  /** Unpacks a tar archive into a folder. */
  unpack(archive: Content, path = ".", signal?: AbortSignal): Promise<Schemas["UnpackResult"]> {
    const target = `${this.#sandbox}/fs/tar`;
    return this.#client.value({ method: "PUT", path: target, params: { path }, safe: true, ...contentOf(archive) }, signal);
  }

  /** All entries of a folder, by name. */
  async list(path = "."): Promise<Schemas["FileItem"][]> {
    const found: Schemas["FileItem"][] = [];
    for (;;) {
      let more = false;
      const params = { path, after: found.at(-1)?.name };
      const page = await this.#client.request(get(`${this.#sandbox}/files`, params), (response) => {
        more = response.headers.get("atoll-truncated") === "true";
        return response.json() as Promise<Schemas["FileItem"][]>;
      });
      found.push(...(page ?? []));
      if (!more) return found;
    }
  }

  stat(path: string, options: { follow?: boolean } = {}): Promise<Schemas["FileItem"]> {
    return this.#client.value(get(`${this.#sandbox}/fs/stat`, { path, follow: options.follow ?? false }));
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError && error.field === "path") return false;
      throw error;
    }
  }

  /** Makes a folder and those above it. One that is there is no error. */
  mkdir(path: string): Promise<Schemas["FileItem"]> {
    return this.#client.value({ ...this.#post("mkdir", { path, parents: true }), safe: true });
  }

  move(from: string, to: string, options: { overwrite?: boolean } = {}): Promise<Schemas["FileItem"]> {
    return this.#client.value(this.#post("move", { from, to, overwrite: options.overwrite ?? false }));
  }

  remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    return this.#client.done(this.#post("remove", { path, recursive: options.recursive ?? false }));
  }

  find(query: Schemas["FindBody"]): Promise<Schemas["FindResult"]> {
    return this.#client.value({ ...this.#post("find", query), safe: true });
  }

  grep(query: Schemas["GrepBody"]): Promise<Schemas["GrepResult"]> {
    return this.#client.value({ ...this.#post("grep", query), safe: true });
  }

  /** What changes in a folder; the first event is `ready`. A connection that breaks is an error: what changed
   * meanwhile is not known. */
  watch(path = ".", options: { recursive?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<Schemas["WatchItem"]> {
    const params = { path, recursive: options.recursive ?? true };
    const source = new WatchSource({ method: "GET", path: `${this.#sandbox}/fs/watch`, params });
    return this.#client.follow(source, options.signal);
  }

  /** Which commands, cells and requests changed a file, the latest first. */
  history(path: string): Promise<Schemas["FileHistoryPage"]> {
    return this.#client.value(get(`${this.#sandbox}/fs/history`, { path }));
  }

  #of(path: string): string {
    return `${this.#sandbox}/files/${filePath(path)}`;
  }

  #post(what: string, body: object): Call {
    return { method: "POST", path: `${this.#sandbox}/fs/${what}`, json: defined(body) };
  }
}
