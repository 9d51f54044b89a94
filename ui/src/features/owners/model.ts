// Owners, what they have and what they may have.
import { keepPreviousData, queryOptions, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { useFeed } from "@/api/use-feed";

export type Settings = Schemas["SettingsItem"];

/** The plan of owners that have no other. */
export const DEFAULT_PLAN = "free";
/** Owners of one page of the list. */
export const SIZE = 100;
/** However many events there are, what owners have is read again at most this often, in milliseconds. */
const PACE = 2000;

export const QUOTAS = [
  ["max_per_user", "Sandboxes at a time"],
  ["sandboxes", "Sandboxes in all"],
  ["volumes", "Volumes"],
  ["disk_mb", "Disk in MiB"],
  ["skills", "Skills"],
  ["skills_mb", "Skills in MiB"],
  ["execs_per_second", "Commands a second"],
  ["exec_burst", "Commands at once"],
] as const;
export type Quota = Record<(typeof QUOTAS)[number][0], number>;

/** What owners with this plan may have, with nothing left out. */
export function quotaOf(settings: Settings, plan: string): Quota {
  const base = { max_per_user: settings.default_max_per_user, ...settings.atoll.plan };
  return { ...base, ...settings.atoll.plans[plan] };
}

export type Owner = Schemas["OwnerItem"];

/** A page of all owners, each with what it has. */
export const owners = (page: number, search: string) =>
  queryOptions({
    queryKey: ["owners", "page", page, search],
    queryFn: ({ signal }) => {
      const query = { page, page_size: SIZE, ...(search && { search }) };
      return unwrap(api.GET("/api/v1/admin/owners", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });

/** One of them by its id, whatever page it is on. */
export const owner = (id: string) =>
  queryOptions({
    queryKey: ["owners", "one", id],
    queryFn: async ({ signal }) => {
      const query = { search: id, page_size: SIZE };
      const found = await unwrap(api.GET("/api/v1/admin/owners", { params: { query }, signal }));
      return found.items.find((each) => each.owner_id === id) ?? null;
    },
  });

/** What an owner did, as sums of the trail. */
export const operationsOf = (id: string) =>
  queryOptions({
    queryKey: ["owners", "operations", id],
    queryFn: async ({ signal }) => {
      const asked = api.GET("/api/v1/audit/summary", { params: { query: { owner: id } }, signal });
      return (await unwrap(asked)).total;
    },
  });

/** Reads what owners have again when something of a sandbox or a volume changes. */
export function useFreshOwners(): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useFeed(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      for (const what of ["page", "one"]) void client.invalidateQueries({ queryKey: ["owners", what] });
    }, PACE);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
}
