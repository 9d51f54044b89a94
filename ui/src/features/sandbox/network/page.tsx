// What a sandbox may reach and what it asked for: decisions stand under the command that caused them.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { useSignedIn } from "@/api/session";
import { CopyAs } from "@/components/copy-as";
import { DecisionRow } from "@/components/decision-row";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Select } from "@/components/field";
import { Loading, Panel } from "@/components/page";
import { Bytes } from "@/components/time";
import { count } from "@/lib/format";
import { visible } from "@/lib/plain-text";
import { curl } from "@/lib/shell";
import { type Decision, decisions, egress, execOf, operations, useSandboxId } from "../queries";
import { PolicyForm } from "./policy-form";

export default function Network() {
  const id = useSandboxId();
  const readOnly = useSignedIn().scope === "read_only";
  const { data, error, refetch } = useQuery(egress(id));
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      {error && (
        <ErrorNote what="The network policy cannot be shown" error={error} retry={() => void refetch()} />
      )}
      {!data && !error && <Loading />}
      {data && (
        <>
          {data.problem && (
            <ErrorNote what="Nothing gets out though it should" error={new Error(data.problem)} />
          )}
          <p className="flex flex-wrap items-center gap-x-4 gap-y-1 text-xs text-muted">
            <span>{data.served ? "in force" : "in force when it runs"}</span>
            <span>{count(data.allowed)} allowed</span>
            <span>{count(data.refused)} refused</span>
            <span>{count(data.connections_open)} open connections</span>
            <span>
              <Bytes count={data.bytes_sent} /> sent, <Bytes count={data.bytes_received} /> received
            </span>
            <span className="flex-1" />
            <CopyAs cli={`atoll egress show ${id}`} curl={curl("GET", `/api/v1/sandboxes/${id}/egress`)} />
          </p>
          <PolicyForm key={JSON.stringify(data.policy)} sandbox={id} info={data} readOnly={readOnly} />
        </>
      )}
      <Decisions sandbox={id} />
    </div>
  );
}

interface Group {
  operation: string;
  entries: Decision[];
}

/** In the order of their last decisions; those whose command is not known stand together. */
function grouped(entries: Decision[]): Group[] {
  const groups = new Map<string, Decision[]>();
  for (const entry of entries) {
    const key = entry.operation_id ?? "";
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return [...groups].map(([operation, all]) => ({ operation, entries: all }));
}

function Decisions({ sandbox }: { sandbox: string }) {
  const [search, setSearch] = useSearchParams();
  const verdict = search.get("verdict") ?? "";
  const { data, error } = useQuery(decisions(sandbox));
  const commands = useQuery(operations(sandbox));
  const byId = useMemo(
    () => new Map(commands.data?.map((operation) => [operation.operation_id, operation])),
    [commands.data],
  );
  const groups = useMemo(
    () => grouped((data?.entries ?? []).filter((entry) => !verdict || entry.verdict === verdict)),
    [data, verdict],
  );
  return (
    <Panel
      title="Decisions"
      actions={
        <Select
          aria-label="Which decisions"
          value={verdict}
          onChange={(event) =>
            setSearch(event.target.value ? { verdict: event.target.value } : {}, { replace: true })
          }
          className="h-7 w-auto text-xs"
        >
          <option value="">all</option>
          <option value="allowed">allowed</option>
          <option value="refused">refused</option>
        </Select>
      }
    >
      {error && <ErrorNote what="The decisions cannot be listed" error={error} />}
      {data && groups.length === 0 && (
        <Empty
          title="It has asked for nothing"
          command={`atoll exec ${sandbox} -- curl -s http://example.com/`}
        />
      )}
      {groups.map(({ operation, entries }) => {
        const command = byId.get(operation);
        return (
          <div key={operation} className="border-b px-3 py-2 last:border-b-0">
            {command ? (
              <Link
                to={`/sandboxes/${sandbox}/commands?exec=${execOf(command)}`}
                className="block truncate font-mono text-xs text-accent-text hover:underline"
              >
                {visible(command.detail)}
              </Link>
            ) : (
              <span className="text-xs text-muted">
                {operation ? `operation ${operation}` : "by something whose command is not known"}
              </span>
            )}
            <div className="pl-4">
              {entries.map((entry) => (
                <DecisionRow key={entry.seq} sandbox={sandbox} decision={entry} />
              ))}
            </div>
          </div>
        );
      })}
    </Panel>
  );
}
