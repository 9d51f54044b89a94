// What was done with this sandbox and by whom: rows of the audit trail, the last begun first.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { api, unwrap } from "@/api/client";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Select } from "@/components/field";
import { Loading, Panel } from "@/components/page";
import { curl } from "@/lib/shell";
import { useSandboxId } from "../queries";
import { OperationRow } from "./operation-row";

const OUTCOMES = ["ok", "failed", "refused", "lost"] as const;
type Outcome = (typeof OUTCOMES)[number];

export default function Audit() {
  const id = useSandboxId();
  const [search, setSearch] = useSearchParams();
  const outcome = OUTCOMES.find((each) => each === search.get("outcome"));
  const text = search.get("text") ?? "";
  const opened = search.get("operation");
  const set = (name: string, value: string) => {
    const next = new URLSearchParams(search);
    if (value) next.set(name, value);
    else next.delete(name);
    setSearch(next, { replace: true });
  };
  const trail = useInfiniteQuery({
    queryKey: ["sandbox", id, "audit", outcome, text],
    initialPageParam: undefined as number | undefined,
    queryFn: ({ pageParam: before, signal }) =>
      unwrap(
        api.GET("/api/v1/audit", {
          params: {
            query: {
              sandbox_id: id,
              limit: 50,
              before,
              outcome: outcome as Outcome,
              text: text || undefined,
            },
          },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next_before ?? undefined,
  });
  const rows = trail.data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      <Panel
        title="Audit trail of this sandbox"
        actions={
          <>
            <Select
              aria-label="Outcome"
              value={outcome ?? ""}
              onChange={(event) => set("outcome", event.target.value)}
              className="h-7 w-auto text-xs"
            >
              <option value="">all</option>
              {OUTCOMES.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </Select>
            <input
              type="search"
              aria-label="Part of a command, code or path"
              placeholder="Part of a command, code or path"
              value={text}
              onChange={(event) => set("text", event.target.value)}
              className="h-7 w-52 rounded border border-line-strong bg-surface px-2 text-xs max-md:w-32"
            />
            <CopyAs curl={curl("GET", `/api/v1/audit?sandbox_id=${id}`)} />
          </>
        }
      >
        {trail.error && <ErrorNote what="The audit trail cannot be read" error={trail.error} />}
        {trail.isPending && <Loading />}
        {trail.isSuccess && rows.length === 0 && <p className="p-3 text-muted">No row is like that.</p>}
        {rows.map((row) => (
          <OperationRow
            key={row.operation_id}
            operation={row}
            open={opened === row.operation_id}
            onToggle={(open) => set("operation", open ? row.operation_id : "")}
          />
        ))}
        {trail.hasNextPage && (
          <div className="p-2">
            <Button small disabled={trail.isFetchingNextPage} onClick={() => void trail.fetchNextPage()}>
              Older rows
            </Button>
          </div>
        )}
      </Panel>
    </div>
  );
}
