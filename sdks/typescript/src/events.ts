/** Streams of events: parsing them, and knowing where to resume. Nothing here does any I/O. */

import type { components } from "./api.js";
import { type Call, segment } from "./calls.js";
import { errorOfCode } from "./errors.js";
import { CodeResult, CommandResult, Display, type ExitEvent, fromBase64, type Output } from "./results.js";

type Schemas = components["schemas"];

export interface ServerEvent {
  id?: string;
  data: string;
}

/** Server-sent events from text as it comes. */
export class EventParser {
  #rest = "";

  *feed(piece: string): Generator<ServerEvent> {
    this.#rest += piece;
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

function parsed(block: string): ServerEvent | undefined {
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "").replace(/\r$/, "");
    if (name === "id") id = value;
    else if (name === "data") data.push(value);
  }
  if (!data.length) return undefined;
  return id === undefined ? { data: data.join("\n") } : { id, data: data.join("\n") };
}

/** What is followed: the request that begins or resumes it, and what its events say. */
export interface Source<T> {
  readonly ended: boolean;
  call(): Call;
  take(event: ServerEvent): T[];
}

interface Said {
  type: string;
  offset: number;
  next?: number;
  data: string;
  encoding?: string;
  error: { code: string; message: string };
}

/** A command. Its request has a key, so it is begun once; then its output is read on from the byte where it broke off. */
export class ExecSource implements Source<Output> {
  execId: string | undefined;
  offset: number;
  /** Whether its request may have reached the server. */
  asked = false;
  ended = false;
  onStarted: (execId: string) => void = () => {};
  readonly #sandbox: string;
  readonly #begin: Call | undefined;
  readonly #ends = { stdout: 0, stderr: 0 };
  #exit: ExitEvent | undefined;
  #lost = false;

  constructor(sandbox: string, start: { begin?: Call; execId?: string; offset?: number }) {
    this.#sandbox = sandbox;
    this.#begin = start.begin;
    this.execId = start.execId;
    this.offset = start.offset ?? 0;
  }

  call(): Call {
    if (this.execId === undefined && this.#begin) {
      this.asked = true;
      return this.#begin;
    }
    const params = { follow: true, from: this.offset };
    return { method: "GET", path: `${this.#sandbox}/execs/${segment(this.execId ?? "")}/output`, params, safe: true };
  }

  take(event: ServerEvent): Output[] {
    const said = JSON.parse(event.data) as Said;
    let outputs: Output[] = [];
    if (said.type === "started") {
      this.execId = (said as unknown as Schemas["ExecItem"]).exec_id;
      this.onStarted(this.execId);
      return [];
    }
    if (said.type === "stdout" || said.type === "stderr") outputs = this.#output(said.type, said);
    else if (said.type === "dropped") this.#lost = true;
    else if (said.type === "error") throw errorOfCode(said.error.code, said.error.message);
    else if (said.type === "exit") {
      this.#exit = said as unknown as ExitEvent;
      this.ended = true;
    }
    if (event.id !== undefined) this.offset = Math.max(this.offset, Number(event.id));
    return outputs;
  }

  #output(stream: "stdout" | "stderr", said: Said): Output[] {
    const data = said.encoding === "base64" ? fromBase64(said.data) : new TextEncoder().encode(said.data);
    // After a resumption the first events may repeat what came before. One with `next` is a single character
    // with bytes of the other output between its own.
    let known = Math.max(0, this.#ends[stream] - said.offset);
    if (said.next !== undefined && known) known = data.length;
    this.#ends[stream] = Math.max(this.#ends[stream], said.next ?? said.offset + data.length);
    return known < data.length ? [{ stream, offset: said.offset + known, data: data.subarray(known) }] : [];
  }

  result(stdout: Uint8Array, stderr: Uint8Array): CommandResult {
    if (!this.#exit) throw new Error("the command has not ended");
    return new CommandResult(this.#exit, stdout, stderr, this.#lost);
  }
}

export type CellEvent = { stream: "stdout" | "stderr"; text: string } | { display: Display };

/** A cell. Its request has a key; sent again, it joins the cell, whose events then come from the first on. */
export class CellSource implements Source<CellEvent> {
  cellId: string | undefined;
  ended = false;
  readonly #begin: Call;
  readonly #delivered = { stdout: 0, stderr: 0, display: 0 };
  #seen = { stdout: 0, stderr: 0, display: 0 };
  #answer: Schemas["CellResult"] | undefined;

  constructor(begin: Call) {
    this.#begin = begin;
  }

  call(): Call {
    this.#seen = { stdout: 0, stderr: 0, display: 0 };
    return this.#begin;
  }

  /** How many of the next ones are known from an earlier connection. */
  #known(kind: "stdout" | "stderr" | "display", length: number): number {
    const known = Math.min(length, Math.max(0, this.#delivered[kind] - this.#seen[kind]));
    this.#seen[kind] += length;
    this.#delivered[kind] = Math.max(this.#delivered[kind], this.#seen[kind]);
    return known;
  }

  take(event: ServerEvent): CellEvent[] {
    const said = JSON.parse(event.data);
    switch (said.type) {
      case "started":
        this.cellId = said.cell_id;
        return [];
      case "output": {
        const text: string = said.text.slice(this.#known(said.stream, said.text.length));
        return text ? [{ stream: said.stream, text }] : [];
      }
      case "display":
        return this.#known("display", 1) ? [] : [{ display: new Display(said.display) }];
      case "error":
        throw errorOfCode(said.error.code, said.error.message);
      case "ended":
        this.#answer = said;
        this.ended = true;
        return [];
      default:
        return [];
    }
  }

  result(): CodeResult {
    if (!this.#answer) throw new Error("the cell has not ended");
    return new CodeResult(this.#answer);
  }
}

/** A folder. Changes are lost while there is no connection, so a broken one ends it. */
export class WatchSource implements Source<Schemas["WatchItem"]> {
  readonly ended = false;
  readonly #begin: Call;

  constructor(begin: Call) {
    this.#begin = begin;
  }

  call(): Call {
    return this.#begin;
  }

  take(event: ServerEvent): Schemas["WatchItem"][] {
    const item = JSON.parse(event.data) as Schemas["WatchItem"];
    if (item.event === "error") {
      throw errorOfCode(item.code ?? "internal", item.message ?? "the folder cannot be followed further");
    }
    return [item];
  }
}
