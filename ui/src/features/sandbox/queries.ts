// What the pages of one sandbox ask for. Keys begin with ["sandbox", id], or with ["inside", id] where the sandbox itself
// must be asked, so an event of the sandbox reads them again.
import { queryOptions, useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { sandbox } from "@/api/queries";

export type Exec = Schemas["ExecItem"];
export type Operation = Schemas["AuditEntry"];
export type Decision = Schemas["EgressItem"];

/** The sandbox of this address. */
export function useSandboxId(): string {
  return useParams().id ?? "";
}

export const execs = (id: string) =>
  queryOptions({
    queryKey: ["inside", id, "execs"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/execs", { params: { path: { id } }, signal })),
  });

/** The commands that the sandbox remembers: it forgets all of them when it stops. One that is paused is not woken to be
 * asked. */
export function useExecs(id: string): { data?: Exec[]; error: unknown } {
  const status = useQuery(sandbox(id)).data?.status;
  const { data, error } = useQuery({ ...execs(id), enabled: status === "running" });
  if (status === "paused") return { data: data ?? [], error: null };
  if (status && status !== "running") return { data: [], error: null };
  return { data, error: data ? null : error };
}

/** The preview links that are valid. Making and revoking one is no event, so the page reads them again. */
export const previewTokens = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "preview-tokens"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/preview-tokens", { params: { path: { id } }, signal })),
  });

/** Samples have no event; they are read again at the pace at which the server takes them, while they are shown. */
export const metrics = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "metrics"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/metrics", { params: { path: { id } }, signal })),
    refetchInterval: ({ state }) => (state.data?.now ? state.data.interval_seconds * 1000 : false),
  });

/** The commands of the audit trail, the last begun first: it knows files, egress and commands of earlier starts. */
export const operations = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "operations"],
    queryFn: async ({ signal }) => {
      const query = { sandbox_id: id, kind: "exec", limit: 200 };
      return (await unwrap(api.GET("/api/v1/audit", { params: { query }, signal }))).entries;
    },
  });

/** What was forked from a sandbox, the last first: the audit trail knows, also of those that are destroyed. */
export const forksOf = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "forks"],
    queryFn: async ({ signal }) => {
      const query = { sandbox_id: id, kind: "sandbox.fork", outcome: "ok" as const, limit: 100 };
      return (await unwrap(api.GET("/api/v1/audit", { params: { query }, signal }))).entries;
    },
  });

/** The operation that made a sandbox of another one; nothing where it is no fork. */
export const originOf = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "origin"],
    queryFn: async ({ signal }) => {
      const query = { text: id, kind: "sandbox.fork", outcome: "ok" as const, limit: 1 };
      const { entries } = await unwrap(api.GET("/api/v1/audit", { params: { query }, signal }));
      return entries.find(({ extra }) => extra.fork === id) ?? null;
    },
  });

export const decisions = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "decisions"],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/sandboxes/{id}/egress/log", {
          params: { path: { id }, query: { limit: 200 } },
          signal,
        }),
      ),
  });

export const egress = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "egress"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/egress", { params: { path: { id } }, signal })),
  });

export const snapshots = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id, "snapshots"],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/sandboxes/{id}/snapshots", {
          params: { path: { id }, query: { page_size: 100 } },
          signal,
        }),
      ),
  });

/** The id of the command that an operation ran. */
export const execOf = (operation: Operation): string | undefined => operation.extra.exec_id;
