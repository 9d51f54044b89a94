import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";

export type Kernel = Schemas["KernelItem"];
export type Language = Kernel["language"];

export const kernels = (id: string) =>
  queryOptions({
    queryKey: ["inside", id, "kernels"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/kernels", { params: { path: { id } }, signal })),
  });

/** Everything that is done to a kernel beside running cells. */
export function useKernel(id: string, kid: string) {
  const client = useQueryClient();
  const path = { id, kid };
  const onSettled = () => refreshSandbox(client, id);
  const act = useMutation({
    mutationFn: (verb: "interrupt" | "restart"): Promise<unknown> =>
      verb === "interrupt"
        ? unwrap(api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/interrupt", { params: { path } }))
        : unwrap(api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/restart", { params: { path } })),
    onSettled,
    meta: { failed: "The kernel did not do that" },
  });
  const end = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/sandboxes/{id}/kernels/{kid}", { params: { path } })),
    onSettled,
    meta: { failed: "The kernel was not ended" },
  });
  const keep = useMutation({
    mutationFn: (name: string) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints", {
          params: { path },
          body: name ? { name } : {},
        }),
      ),
    onSettled,
    meta: { failed: "The checkpoint was not made" },
  });
  const rollback = useMutation({
    mutationFn: (cid: string) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints/{cid}/rollback", {
          params: { path: { ...path, cid } },
        }),
      ),
    onSettled,
    meta: { failed: "The kernel was not rolled back" },
  });
  const fork = useMutation({
    mutationFn: (checkpoint: string) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/fork", { params: { path }, body: { checkpoint } }),
      ),
    onSettled,
    meta: { failed: "The kernel was not forked" },
  });
  return { act, end, keep, rollback, fork };
}
