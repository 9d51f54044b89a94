// The API lists events from an id on, the oldest first. The page begins with the latest, so it asks for a window of ids
// that ends with the newest, and for the windows before it one after the other.
import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";

export type Event = Schemas["EventItem"];
export interface Filters {
  kind?: string;
  owner?: string;
  sandbox_id?: string;
}

/** Ids in one window: the server answers with no more events at a time. */
const WINDOW = 1000;

export const eventWindows = (filters: Filters) =>
  infiniteQueryOptions({
    queryKey: ["events", filters],
    queryFn: async ({ pageParam, signal }) => {
      const ask = (after: number, limit: number) => {
        const params = { query: { ...filters, after, limit } };
        // The same path answers with a stream too, of which the client's types know nothing.
        const answer: Promise<unknown> = unwrap(api.GET("/api/v1/events", { params, signal }));
        return answer as Promise<Schemas["EventList"]>;
      };
      const last = pageParam ?? (await ask(Number.MAX_SAFE_INTEGER, 1)).newest;
      const after = Math.max(0, last - WINDOW);
      const list = await ask(after, WINDOW);
      const events = list.events.filter((event) => event.id <= last).reverse();
      return { events, after, missed: list.missed };
    },
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => (page.after > 0 && !page.missed ? page.after : undefined),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });

/** Whether an event that just came is one of those. An owner may be named by name or id. */
export function matches(event: Event, filters: Filters, name: (id: string) => string): boolean {
  const { kind, owner, sandbox_id } = filters;
  return (
    (!kind || kind.split(",").includes(event.kind)) &&
    (!owner || event.owner === owner || name(event.owner) === owner) &&
    (!sandbox_id || event.sandbox_id === sandbox_id)
  );
}
