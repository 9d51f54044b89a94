import { queryOptions, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { ApiError } from "@/api/errors";
import { refreshInside, sandbox } from "@/api/queries";
import { events, sleep } from "@/api/sse";
import { folderOf } from "@/lib/paths";

export type Item = Schemas["FileItem"];

async function entriesOf(id: string, path: string, signal?: AbortSignal) {
  const answer = await api.GET("/api/v1/sandboxes/{id}/files", {
    params: { path: { id }, query: { path, limit: 2000 } },
    signal,
  });
  const items = await unwrap(Promise.resolve(answer));
  return { items, truncated: answer.response.headers.get("Atoll-Truncated") === "true" };
}

/** A folder by name, folders first. */
export const folder = (id: string, path: string) =>
  queryOptions({
    queryKey: ["inside", id, "folder", path],
    queryFn: async ({ signal }) => {
      const { items, truncated } = await entriesOf(id, path, signal);
      const rank = (item: Item) => (item.is_directory ? 0 : 1);
      return { items: [...items].sort((a, b) => rank(a) - rank(b)), truncated };
    },
  });

/** Nothing where there is nothing. */
async function found<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

/** Which of these paths something is at now. Each folder is asked for once. */
export async function present(id: string, paths: string[]): Promise<string[]> {
  const there: string[] = [];
  for (const above of new Set(paths.map(folderOf))) {
    const within = paths.filter((path) => folderOf(path) === above);
    const entries = await found(entriesOf(id, above));
    if (!entries) continue;
    const known = new Set(entries.items.map((item) => item.path));
    for (const path of within) {
      if (known.has(path) || (entries.truncated && (await found(readStat(id, path))))) there.push(path);
    }
  }
  return there;
}

export const stat = (id: string, path: string) =>
  queryOptions({
    queryKey: ["inside", id, "stat", path],
    queryFn: ({ signal }) => readStat(id, path, signal),
  });

export const readStat = (id: string, path: string, signal?: AbortSignal) =>
  unwrap(
    api.GET("/api/v1/sandboxes/{id}/fs/stat", {
      params: { path: { id }, query: { path, follow: true } },
      signal,
    }),
  );

/** Many changes come at once; what is shown is read again at most this often, in milliseconds. */
const GATHER = 200;

/** How long after a break the stream is asked for again, in milliseconds. */
const AGAIN = 1000;

/** Reads the files again when something inside changes them. A sandbox that does not run is not woken for it. */
export function useWatch(id: string, running: boolean): void {
  const client = useQueryClient();
  useEffect(() => {
    if (!running) return;
    const end = new AbortController();
    const { signal } = end;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      for await (const event of events(`/api/v1/sandboxes/${id}/fs/watch`, { signal })) {
        if (!event.data || timer) continue;
        // It breaks off when the sandbox is paused, and when the server ends.
        if ((JSON.parse(event.data) as Schemas["WatchItem"]).event === "error") return;
        timer = setTimeout(() => {
          timer = undefined;
          void refreshInside(client, id);
        }, GATHER);
      }
    };
    const goOn = async () => {
      while (!signal.aborted) {
        // Without the stream the feed of events still reads them again after every command.
        await read().catch(() => {});
        await sleep(AGAIN, signal);
        // A server that is away says nothing of the sandbox; one that is back does.
        const known = await client.fetchQuery({ ...sandbox(id), staleTime: 0 }).catch(() => undefined);
        if (known && known.status !== "running") return;
      }
    };
    void goOn();
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [client, id, running]);
}
