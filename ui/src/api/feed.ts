// The feed: one stream of events for the whole page, from sign-in to sign-out. An event invalidates what it is about in
// TanStack Query; nothing is polled. After a loss it reconnects by itself after the last event that it saw.
import type { QueryClient } from "@tanstack/react-query";
import type { Schemas } from "./client";
import { connection } from "./connection";
import { ApiError } from "./errors";
import { refreshAll, refreshSandbox } from "./queries";
import { events, sleep } from "./sse";

export type FeedEvent = Schemas["EventItem"];
type Listener = (event: FeedEvent) => void;

const listeners = new Set<Listener>();
const LONGEST_WAIT = 5000;

/** Calls a listener with every event. Returns what ends that. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Many events come at once when many sandboxes change; lists are read again at most this often. */
const GATHER = 250;

function invalidator(client: QueryClient): (event: FeedEvent) => void {
  let waits = false;
  const changed = new Set<string>();
  return (event) => {
    if (event.sandbox_id) changed.add(event.sandbox_id);
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      void client.invalidateQueries({ queryKey: ["sandboxes"] });
      void client.invalidateQueries({ queryKey: ["usage"] });
      for (const id of changed) void refreshSandbox(client, id);
      changed.clear();
    }, GATHER);
  };
}

/** Follows the events until the signal ends it. */
export async function follow(client: QueryClient, signal: AbortSignal): Promise<void> {
  const invalidate = invalidator(client);
  let last = "";
  let wait = 250;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = last ? { "Last-Event-ID": last } : {};
      for await (const event of events("/api/v1/events?follow=true", { headers, signal })) {
        if (wait > 250) void refreshAll(client);
        wait = 250;
        connection.live();
        if (event.id) last = event.id;
        if (event.kind === "missed") void refreshAll(client);
        else if (event.data && event.kind !== "error") {
          const item = JSON.parse(event.data) as FeedEvent;
          invalidate(item);
          for (const each of listeners) each(item);
        }
      }
      connection.lost();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.isSignedOut) return;
      connection.lost();
    }
    await sleep(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}
