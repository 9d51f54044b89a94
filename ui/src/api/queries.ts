// What several features ask for. Keys begin with what an event invalidates: ["sandboxes", …] for lists, ["sandbox", id, …]
// for what the server knows of one, ["usage", …] for what the rows of a list show of several, and ["inside", id, …] for what
// it must ask the sandbox itself, which wakes a paused one.
import { keepPreviousData, type Query, type QueryClient, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "./client";
import type { paths } from "./schema";

export type ListQuery = NonNullable<paths["/api/v1/sandboxes"]["get"]["parameters"]["query"]>;

/** One page of the list of sandboxes; of all owners for an admin who asks for that. */
export const sandboxPage = (query: ListQuery, everyone = false) => {
  const path = everyone ? "/api/v1/admin/sandboxes" : "/api/v1/sandboxes";
  return queryOptions({
    queryKey: ["sandboxes", everyone, query],
    queryFn: ({ signal }) => unwrap(api.GET(path, { params: { query }, signal })),
    placeholderData: keepPreviousData,
  });
};

export const sandbox = (id: string) =>
  queryOptions({
    queryKey: ["sandbox", id],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandboxes/{id}", { params: { path: { id } }, signal })),
  });

export const images = () =>
  queryOptions({
    queryKey: ["images"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandbox-images", { signal })),
  });

/** Only admin keys may read them. */
export const settings = () =>
  queryOptions({
    queryKey: ["settings"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/settings/sandbox", { signal })),
  });

/** Reads again what is shown of a sandbox; what is inside of it only while it runs, so that no page wakes it. */
export async function refreshSandbox(client: QueryClient, id: string): Promise<void> {
  await client.invalidateQueries({ queryKey: ["sandbox", id] });
  const { status } = client.getQueryData(sandbox(id).queryKey) ?? {};
  if (status === "running") await client.invalidateQueries({ queryKey: ["inside", id] });
}

/** The same of what is inside alone. */
export async function refreshInside(client: QueryClient, id: string): Promise<void> {
  const { status } = await client.fetchQuery({ ...sandbox(id), staleTime: 0 });
  if (status === "running") await client.invalidateQueries({ queryKey: ["inside", id] });
}

/** Of queries whose data are this page's own, and no copy of the server's. */
export const LOCAL = { local: true };

/** Reads everything of the server again that is shown. */
export async function refreshAll(client: QueryClient): Promise<void> {
  const isOutside = ({ queryKey, meta }: Query) => queryKey[0] !== "inside" && meta !== LOCAL;
  await client.invalidateQueries({ predicate: isOutside });
  const inside = client.getQueryCache().findAll({ queryKey: ["inside"] });
  const ids = new Set(inside.map(({ queryKey }) => String(queryKey[1])));
  await Promise.all([...ids].map((id) => refreshSandbox(client, id)));
}
