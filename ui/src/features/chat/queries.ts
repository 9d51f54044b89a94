// What the chat asks for. Conversations have no events of their own: they are read again after what this page does, while
// one is at work, when the window is looked at again, and when the server is back.
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { ask, type ModelSettings, type Run, type Thread, type ThreadItem, type Values } from "@/api/agent";
import { api, unwrap } from "@/api/client";

const PAGE = 100;
/** How often the list is read while a conversation in it is at work, in milliseconds. */
const PACE = 3000;

const isAtWork = ({ items }: { items: ThreadItem[] }) => items.some(({ status }) => status === "busy");

/** The owner's conversations, the last one first. */
export const threads = () =>
  infiniteQueryOptions({
    queryKey: ["threads"],
    queryFn: async ({ pageParam, signal }) => {
      const select = ["thread_id", "metadata", "status", "updated_at"];
      const body = { limit: PAGE, offset: pageParam, sort_by: "updated_at", sort_order: "desc", select };
      const items = await ask<ThreadItem[]>("POST", "/threads/search", body, signal);
      return { items, next: items.length < PAGE ? undefined : pageParam + PAGE };
    },
    initialPageParam: 0,
    getNextPageParam: (page) => page.next,
    refetchOnWindowFocus: true,
    refetchInterval: ({ state }) => (state.data?.pages.some(isAtWork) ? PACE : false),
  });

/** Those that were last gone on with, to find one by its title. */
export const newestThreads = () =>
  queryOptions({
    queryKey: ["threads", "newest"],
    queryFn: ({ signal }) => {
      const select = ["thread_id", "metadata", "status", "updated_at"];
      const body = { limit: 1000, sort_by: "updated_at", sort_order: "desc", select };
      return ask<ThreadItem[]>("POST", "/threads/search", body, signal);
    },
  });

export const thread = (id: string) =>
  queryOptions({
    queryKey: ["thread", id],
    queryFn: ({ signal }) => ask<Thread>("GET", `/threads/${id}`, undefined, signal),
    refetchOnWindowFocus: true,
  });

/** Runs of one answer. */
const RUNS = 100;

/** Its newest runs, the newest first. */
export const runs = (id: string) =>
  queryOptions({
    queryKey: ["thread", id, "runs"],
    queryFn: ({ signal }) => ask<Run[]>("GET", `/threads/${id}/runs?limit=${RUNS}`, undefined, signal),
  });

export interface Checkpoint {
  id: string;
  metadata: { source: string; run_id?: string };
}

/** Of one answer. */
const MOST = 1000;

/** Its checkpoints without their states, the newest first, as far as they are asked for. */
export async function* checkpointsOf(id: string, signal?: AbortSignal): AsyncGenerator<Checkpoint> {
  for (let before: string | undefined; ; ) {
    const body = { id: 1, method: "state.listCheckpoints", params: { limit: MOST, before } };
    const path = `/threads/${id}/commands`;
    const answer = await ask<{ result?: { checkpoints: Checkpoint[] }; message?: string }>(
      "POST",
      path,
      body,
      signal,
    );
    if (!answer.result) throw new Error(answer.message ?? "the checkpoints cannot be read");
    const page = answer.result.checkpoints;
    yield* page;
    before = page.at(-1)?.id;
    if (page.length < MOST) return;
  }
}

/** All of them. */
export const checkpoints = (id: string) =>
  queryOptions({
    queryKey: ["thread", id, "checkpoints"],
    queryFn: async ({ signal }) => {
      const all: Checkpoint[] = [];
      for await (const each of checkpointsOf(id, signal)) all.push(each);
      return all;
    },
  });

/** The newest run that began with this message. */
export async function runOf(id: string, message: string): Promise<Run | undefined> {
  for (let offset = 0; ; offset += RUNS) {
    const page = await ask<Run[]>("GET", `/threads/${id}/runs?limit=${RUNS}&offset=${offset}`);
    const found = page.find(({ kwargs }) => kwargs.input?.messages?.at(-1)?.id === message);
    if (found || page.length < RUNS) return found;
  }
}

/** What was said up to a checkpoint. */
export const stateAt = (id: string, checkpoint: string) =>
  queryOptions({
    queryKey: ["thread", id, "at", checkpoint],
    queryFn: ({ signal }) =>
      ask<{ values: Values }>("GET", `/threads/${id}/state/${checkpoint}`, undefined, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });

/** What its sandboxes offer for download. */
export const exported = (id: string) =>
  queryOptions({
    queryKey: ["thread", id, "files"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/threads/{thread_id}/files", { params: { path: { thread_id: id } }, signal })),
  });

export const modelSettings = () =>
  queryOptions({
    queryKey: ["model-settings"],
    queryFn: ({ signal }) => ask<ModelSettings>("GET", "/settings", undefined, signal),
  });

/** What every run of this owner's console is asked with. */
export interface RunSettings {
  approval?: "none" | "write" | "network" | "all";
  max_iterations?: number;
  max_tokens?: number;
  max_seconds?: number;
}

const PLACE = { namespace: ["console"], key: "chat" };

export const runSettings = () =>
  queryOptions({
    queryKey: ["run-settings"],
    queryFn: async ({ signal }) => {
      const path = `/store/items?namespace=${PLACE.namespace.join(".")}&key=${PLACE.key}`;
      const item = await ask<{ value: RunSettings } | null>("GET", path, undefined, signal);
      return item?.value ?? {};
    },
  });

export const putRunSettings = (value: RunSettings) => ask<void>("PUT", "/store/items", { ...PLACE, value });
