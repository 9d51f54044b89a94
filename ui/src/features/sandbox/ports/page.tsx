// The ports that something listens on inside, and links that open one to anyone who has them, for a while.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { RefreshCw } from "lucide-react";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs, CopyLine } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Select } from "@/components/field";
import { Loading, Panel } from "@/components/page";
import { curl } from "@/lib/shell";
import { previewTokens, useSandboxId } from "../queries";
import { Links, type MadeLink } from "./links";

const LIVES = [
  [600, "10 minutes"],
  [3600, "an hour"],
  [86_400, "a day"],
  [604_800, "a week"],
] as const;

export default function Ports() {
  const id = useSandboxId();
  const readOnly = useSignedIn().scope === "read_only";
  const status = useQuery(sandboxQuery(id)).data?.status;
  const [life, setLife] = useState<number>(3600);
  const client = useQueryClient();
  const [made, setMade] = useState<MadeLink[]>([]);
  const { data, error, refetch, isFetching } = useQuery({
    queryKey: ["inside", id, "ports"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandboxes/{id}/ports", { params: { path: { id } }, signal })),
    enabled: status === "running",
  });
  const make = useMutation({
    mutationFn: (port: number) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/preview-tokens", {
          params: { path: { id } },
          body: { port, ttl_seconds: life },
        }),
      ),
    onSuccess: (link) => {
      setMade((before) => [link, ...before]);
      return client.invalidateQueries(previewTokens(id));
    },
    meta: { failed: "The link was not made" },
  });
  if (status && status !== "running") {
    return (
      <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
        <Empty title={`The sandbox is ${status}, so nothing listens inside`} />
        <Links sandbox={id} made={made} readOnly={readOnly} />
      </div>
    );
  }
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      <Panel
        title="Ports with a listener"
        actions={
          <>
            {!readOnly && (
              <Select
                aria-label="How long a link lives"
                value={life}
                onChange={(event) => setLife(Number(event.target.value))}
                className="h-7 w-auto text-xs"
              >
                {LIVES.map(([seconds, words]) => (
                  <option key={seconds} value={seconds}>
                    links live {words}
                  </option>
                ))}
              </Select>
            )}
            <Button kind="quiet" small disabled={isFetching} onClick={() => void refetch()}>
              <RefreshCw size={14} />
              Look again
            </Button>
          </>
        }
      >
        {error && <ErrorNote what="The ports cannot be listed" error={error} />}
        {!data && !error && <Loading />}
        {data?.length === 0 && (
          <Empty
            title="Nothing listens inside"
            command={`atoll exec ${id} --detach -- python3 -m http.server 8000`}
          />
        )}
        <ul aria-label="Ports">
          {data?.map(({ port }) => (
            <li
              key={port}
              className="flex min-h-9 flex-wrap items-center gap-2 border-b px-3 py-1 last:border-b-0"
            >
              <span className="w-16 font-mono">{port}</span>
              <CopyLine text={`atoll port-forward ${id} ${port}`} />
              <span className="flex-1" />
              {!readOnly && (
                <>
                  <Button small disabled={make.isPending} onClick={() => make.mutate(port)}>
                    Make a preview link
                  </Button>
                  <CopyAs
                    small
                    cli={`atoll preview ${id} ${port} --ttl ${life}s`}
                    curl={curl("POST", `/api/v1/sandboxes/${id}/preview-tokens`, { port, ttl_seconds: life })}
                  />
                </>
              )}
            </li>
          ))}
        </ul>
      </Panel>
      <Links sandbox={id} made={made} readOnly={readOnly} />
    </div>
  );
}
