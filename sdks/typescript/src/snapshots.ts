/** Snapshots: a sandbox's files as they were at one moment. */

import type { components } from "./api.js";
import { defined, get, isId, keyed } from "./calls.js";
import { type Client } from "./client.js";
import { NotFoundError } from "./errors.js";

type Schemas = components["schemas"];

/** The snapshots of a sandbox. Each is named by its id or its label. */
export class Snapshots {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `${sandbox}/snapshots`;
  }

  /** Makes a snapshot; with `kernels` the variables of Python kernels too. */
  create(label?: string, options: { kernels?: boolean } = {}): Promise<Schemas["SnapshotItem"]> {
    return this.#client.value(keyed(this.#path, defined({ label, kernels: options.kernels })));
  }

  /** The newest first. */
  list(): AsyncGenerator<Schemas["SnapshotItem"]> {
    return this.#client.pages(this.#path);
  }

  async get(snapshot: string): Promise<Schemas["SnapshotItem"]> {
    return this.#client.value(get(await this.#of(snapshot)));
  }

  async setLabel(snapshot: string, label: string | null): Promise<Schemas["SnapshotItem"]> {
    return this.#client.value({ method: "PATCH", path: await this.#of(snapshot), json: { label }, safe: true });
  }

  /** The files that differ from another snapshot, or from now. */
  async diff(snapshot: string, to = "now"): Promise<Schemas["SnapshotDiff"]> {
    return this.#client.value(get(`${await this.#of(snapshot)}/diff`, { to: await this.idOf(to) }));
  }

  /** Makes the files what they were. Commands that run end. */
  async rollback(
    snapshot: string,
    options: { kernels?: boolean; keepBefore?: boolean } = {},
  ): Promise<Schemas["RolledBackItem"]> {
    const body = { kernels: options.kernels ?? false, keep_before: options.keepBefore ?? true };
    return this.#client.value(keyed(`${await this.#of(snapshot)}/rollback`, body));
  }

  async delete(snapshot: string): Promise<void> {
    await this.#client.done({ method: "DELETE", path: await this.#of(snapshot), safe: true });
  }

  /** The id of a snapshot that has this id or label; the newest, where several have the label. */
  async idOf(snapshot: string): Promise<string> {
    if (snapshot === "now" || isId(snapshot)) return snapshot;
    for await (const found of this.list()) if (found.label === snapshot) return found.id;
    throw new NotFoundError(`there is no snapshot ${snapshot}`, { code: "not_found" });
  }

  async #of(snapshot: string): Promise<string> {
    return `${this.#path}/${await this.idOf(snapshot)}`;
  }
}
