// The commands of a sandbox: those that it remembers, then those of the audit trail from before its last start.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { useSignedIn } from "@/api/session";
import { CommandRow } from "@/components/command-row";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, Panel } from "@/components/page";
import { decisions, type Exec, execOf, type Operation, operations, useExecs, useSandboxId } from "../queries";
import { Details, pastExec } from "./details";
import { PastOutput } from "./past-output";
import { RowActions } from "./row-actions";
import { RunForm } from "./run-form";

interface Row {
  exec: Exec;
  operation?: Operation;
  /** The sandbox no longer has it; the audit trail does. */
  past: boolean;
}

function rowsOf(live: Exec[], trail: Operation[]): Row[] {
  const byExec = new Map(trail.map((operation) => [execOf(operation), operation]));
  const known = new Set(live.map((exec) => exec.exec_id));
  return [
    ...live.map((exec) => ({ exec, operation: byExec.get(exec.exec_id), past: false })),
    ...trail
      .filter((operation) => !known.has(execOf(operation) ?? "") && operation.ended)
      .map((operation) => ({ exec: pastExec(operation), operation, past: true })),
  ];
}

export default function Commands() {
  const id = useSandboxId();
  const [search, setSearch] = useSearchParams();
  const readOnly = useSignedIn().scope === "read_only";
  const live = useExecs(id);
  const trail = useQuery(operations(id));
  const log = useQuery(decisions(id));
  const wanted = search.get("text")?.toLowerCase() ?? "";
  const opened = search.get("exec");
  const rows = useMemo(() => {
    const all = rowsOf(live.data ?? [], trail.data ?? []);
    return all.filter((row) => row.exec.command.toLowerCase().includes(wanted));
  }, [live.data, trail.data, wanted]);
  const set = (name: string, value: string | null) => {
    const next = new URLSearchParams(search);
    if (value) next.set(name, value);
    else next.delete(name);
    setSearch(next, { replace: true });
  };
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      {!readOnly && <RunForm sandbox={id} onStarted={(exec) => set("exec", exec)} />}
      {live.error != null && <ErrorNote what="The commands cannot be listed" error={live.error} />}
      <Panel
        title="Commands"
        actions={
          <input
            type="search"
            aria-label="Part of a command"
            placeholder="Part of a command"
            value={search.get("text") ?? ""}
            onChange={(event) => set("text", event.target.value)}
            className="h-7 w-48 rounded border border-line-strong bg-surface px-2 text-xs"
          />
        }
      >
        {!live.data && !live.error && <Loading />}
        {live.data && trail.isFetched && rows.length === 0 && (
          <Empty
            title={wanted ? "No command has that in it" : "No command has run yet"}
            command={wanted ? undefined : `atoll exec ${id} --shell 'echo hello'`}
          />
        )}
        {rows.map(({ exec, operation, past }) => (
          <CommandRow
            key={exec.exec_id}
            sandbox={id}
            exec={exec}
            open={opened === exec.exec_id}
            onToggle={(open) => set("exec", open ? exec.exec_id : null)}
            output={past && operation ? <PastOutput operation={operation.operation_id} /> : undefined}
            actions={
              !readOnly && (
                <RowActions
                  sandbox={id}
                  exec={exec}
                  operation={operation}
                  onStarted={(next) => set("exec", next)}
                />
              )
            }
          >
            <Details
              sandbox={id}
              exec={exec}
              operation={operation}
              decisions={(log.data?.entries ?? []).filter(
                (each) => operation && each.operation_id === operation.operation_id,
              )}
            />
          </CommandRow>
        ))}
      </Panel>
    </div>
  );
}
