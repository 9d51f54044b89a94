import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import type { paths } from "@/api/schema";

export type Entry = Schemas["AuditEntry"];
export type Filters = NonNullable<paths["/api/v1/audit"]["get"]["parameters"]["query"]>;

const PAGE = 100;
const FIELDS = [
  "text",
  "kind",
  "outcome",
  "owner",
  "sandbox_id",
  "key_id",
  "exit_code",
  "since",
  "until",
] as const;
export type Field = (typeof FIELDS)[number];
export { FIELDS };

/** A local time of a form, as the API wants it. */
const instant = (text: string) => (text ? new Date(text).toISOString() : undefined);

/** The filters that the address names. */
export function filtersOf(at: (name: string) => string): Filters {
  const code = at("exit_code");
  return {
    text: at("text") || undefined,
    kind: at("kind") || undefined,
    outcome: (at("outcome") || undefined) as Filters["outcome"],
    owner: at("owner") || undefined,
    sandbox_id: at("sandbox_id") || undefined,
    key_id: at("key_id") || undefined,
    exit_code: code === "" ? undefined : Number(code),
    since: instant(at("since")),
    until: instant(at("until")),
    open: at("open") ? true : undefined,
  };
}

export const trail = (filters: Filters) =>
  infiniteQueryOptions({
    queryKey: ["audit", filters],
    queryFn: ({ pageParam, signal }) => {
      const query = { ...filters, before: pageParam, limit: PAGE };
      return unwrap(api.GET("/api/v1/audit", { params: { query }, signal }));
    },
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => page.next_before ?? undefined,
  });

export const summary = (filters: Filters) =>
  queryOptions({
    queryKey: ["audit", "summary", filters],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/audit/summary", { params: { query: filters }, signal })),
  });
