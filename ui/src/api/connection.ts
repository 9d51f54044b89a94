// Whether the server answers and knows us. The event feed and failed requests say so; the shell shows it.
import { useSyncExternalStore } from "react";

export type Connection = "connecting" | "live" | "lost" | "signed-out";

let state: Connection = "connecting";
const listeners = new Set<() => void>();

function become(next: Connection): void {
  if (next === state) return;
  state = next;
  for (const each of listeners) each();
}

export const connection = {
  live: () => become("live"),
  /** A request had no answer. Once signed out, only signing in changes the state. */
  lost: () => state !== "signed-out" && become("lost"),
  signedOut: () => become("signed-out"),
  reset: () => become("connecting"),
  /** What is known now. */
  state: () => state,
};

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useConnection(): Connection {
  return useSyncExternalStore(subscribe, () => state);
}
