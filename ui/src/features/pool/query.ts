import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

/** It begins with "sandboxes", so that each event about a sandbox reads the pool again. */
export const POOL = ["sandboxes", "pool"];

export const poolQuery = () =>
  queryOptions({
    queryKey: POOL,
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/pool", { signal })),
  });
