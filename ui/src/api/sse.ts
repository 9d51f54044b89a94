// Server-sent events by fetch. EventSource cannot be used: it drops events of kinds that it was not told of, and
// takes the kind `error`, which the server sends, for a broken connection.
import { send } from "./client";
import { connection } from "./connection";
import { ApiError } from "./errors";

export interface SseEvent {
  /** Where to go on: of the last event that had one. */
  id: string;
  kind: string;
  data: string;
}

/** Splits a stream into events. A comment with an id, which the server sends as a sign of life, is one without data. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<SseEvent> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = "";
  let id = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      let end = text.indexOf("\n\n");
      while (end >= 0) {
        const event: SseEvent = { id, kind: "message", data: "" };
        const lines: string[] = [];
        for (const line of text.slice(0, end).split("\n")) {
          const colon = line.indexOf(":");
          const name = colon < 0 ? line : line.slice(0, colon);
          const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
          if (name === "id") id = event.id = value;
          else if (name === "event") event.kind = value;
          else if (name === "data") lines.push(value);
        }
        event.data = lines.join("\n");
        text = text.slice(end + 2);
        yield event;
        end = text.indexOf("\n\n");
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** The events of one request. Refusals are thrown as errors of the API. */
export async function* events(path: string, init: RequestInit = {}): AsyncGenerator<SseEvent> {
  const headers = { Accept: "text/event-stream", ...init.headers };
  const response = await send(path, { ...init, headers });
  if (response.body) yield* readEvents(response.body);
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 5000;

export const sleep = (ms: number, signal: AbortSignal) =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });

/** Refusals that end by themselves: no answer came, the session is to be renewed, it is too much at the moment, or the
 * server starts or ends. An error that is none of the API is a stream that broke off. */
const PASSING = [0, 401, 408, 429, 502, 503, 504];
const isPassing = (error: unknown) => !(error instanceof ApiError) || PASSING.includes(error.status);

/** Whether an event says that the stream ends and what it told of goes on. */
function isInterrupted({ kind, data }: SseEvent): boolean {
  if (kind !== "error" && !data.startsWith('{"type":"error"')) return false;
  const said = JSON.parse(data) as { code?: string; error?: { code?: string } };
  return (said.code ?? said.error?.code) === "unavailable";
}

/**
 * The events of something that goes on without its readers. A stream that breaks off is asked for again, at first soon and
 * then less often, after the last event that had an id, also of a server that was started anew. It ends with the event
 * that is the last; a refusal for good is thrown.
 */
export async function* resumed(
  path: string,
  init: RequestInit & { signal: AbortSignal },
  isLast: (event: SseEvent) => boolean,
): AsyncGenerator<SseEvent> {
  const { signal } = init;
  let last = "";
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    const begun = Date.now();
    try {
      // Without a session each attempt would be refused.
      if (connection.state() !== "signed-out") {
        const headers = { ...init.headers, ...(last && { "Last-Event-ID": last }) };
        for await (const event of events(path, { ...init, headers })) {
          if (isInterrupted(event)) break;
          if (event.id) last = event.id;
          yield event;
          if (isLast(event)) return;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!isPassing(error)) throw error;
    }
    // One that breaks off at once is not asked for again at once.
    if (Date.now() - begun > LONGEST_WAIT) wait = FIRST_WAIT;
    await sleep(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}
