// Following a run to its end. A stream that breaks off is resumed after its last event, also on a server that was
// started anew; leaving the page ends the stream and not the run.
import type { QueryClient } from "@tanstack/react-query";
import { resumed, type SseEvent } from "@/api/sse";
import { after, change, IDLE, type Live, live, reading } from "./live";

export const MODES = ["values", "messages-tuple", "custom"];

/** A model writes faster than a page is worth drawing. */
const GATHER = 50;

/** What became of it by an event; one that cannot be read changes nothing. */
function afterEvent(before: Live, event: SseEvent): Live {
  try {
    return after(before, event);
  } catch (error) {
    console.warn("an event of a run cannot be read", error);
    return before;
  }
}

/** The events of a run, without a gap, until one is the last. A thread that was deleted has none. */
async function* runEvents(thread: string, run: string, signal: AbortSignal): AsyncGenerator<SseEvent> {
  const path = `/threads/${thread}/runs/${run}/stream?stream_mode=${MODES.join(",")}`;
  try {
    yield* resumed(path, { signal }, ({ kind }) => kind === "end" || kind === "error");
  } catch (error) {
    console.warn("the run cannot be followed", error);
  }
}

/** Writes what a run tells into the cache, and reads the thread again when it has ended. */
export async function follow(
  client: QueryClient,
  thread: string,
  run: string,
  signal: AbortSignal,
): Promise<void> {
  let now: Live = reading(client.getQueryData(live(thread).queryKey) ?? IDLE);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    clearTimeout(timer);
    timer = undefined;
    if (!signal.aborted) change(client, thread, () => ({ ...now, at: Date.now() }));
  };
  for await (const event of runEvents(thread, run, signal)) {
    now = afterEvent(now, event);
    timer ??= setTimeout(flush, GATHER);
  }
  flush();
  if (signal.aborted) return;
  // An answer that is on its way may be from before the end.
  await client.cancelQueries({ queryKey: ["thread", thread] });
  await client.invalidateQueries({ queryKey: ["thread", thread] });
  change(client, thread, (before) => ({ ...before, run: undefined }));
  void client.invalidateQueries({ queryKey: ["threads"] });
}
