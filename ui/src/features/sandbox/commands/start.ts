// Starts a command and leaves it running: with an Idempotency-Key it does not end when the page goes, and unlike a
// command in the background it reports the files that it changes.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { refreshSandbox } from "@/api/queries";
import { events } from "@/api/sse";

export interface Wanted {
  command: string;
  working_directory?: string;
  timeout_seconds?: number;
}

/** Runs a command as far as its start. Returns its id. */
async function start(sandbox: string, wanted: Wanted): Promise<string> {
  const reading = new AbortController();
  const headers = { "Content-Type": "application/json", "Idempotency-Key": randomKey() };
  const body = JSON.stringify({ ...wanted, stream: true });
  const path = `/api/v1/sandboxes/${sandbox}/exec`;
  try {
    for await (const event of events(path, { method: "POST", headers, body, signal: reading.signal })) {
      if (!event.data) continue;
      const said = JSON.parse(event.data) as { type: string; exec_id?: string; message?: string };
      if (said.exec_id) return said.exec_id;
      if (said.type === "error") throw new Error(said.message ?? "it did not start");
    }
    throw new Error("the server ended its answer before the command began");
  } finally {
    reading.abort();
  }
}

/** Pages over plain HTTP from another machine have no crypto.randomUUID. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

export function useStart(sandbox: string, onStarted: (exec: string) => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (wanted: Wanted) => start(sandbox, wanted),
    onSuccess: async (exec) => {
      onStarted(exec);
      await refreshSandbox(client, sandbox);
    },
    meta: { failed: "The command was not run" },
  });
}
