// Where a tool really did its work: the sandbox, the command, and by its id the row of the audit trail with the files that
// it changed and what it asked of the network.
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useState } from "react";
import { Link } from "react-router";
import type { Facts } from "@/api/agent";
import { api, unwrap } from "@/api/client";
import { DecisionRow } from "@/components/decision-row";
import { ErrorNote } from "@/components/error-note";
import { Loading } from "@/components/page";
import { Bytes } from "@/components/time";
import { visibleLine } from "@/lib/plain-text";

const linkClass = "text-accent-text hover:underline";

/** Ids of sandboxes in addresses have hyphens. */
const hyphenated = (id: string) => id.replace(/^(\w{8})(\w{4})(\w{4})(\w{4})(\w{12})$/, "$1-$2-$3-$4-$5");

const PAGE = 500;

/** The row of a command or a cell in the audit trail, which is looked for where the message does not name it. */
async function findOperation(
  sandbox: string,
  { exec_id, cell_id, operation_ids }: Facts,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (operation_ids?.length) return operation_ids.at(-1);
  let before: number | undefined;
  do {
    const query = { sandbox_id: sandbox, kind: exec_id ? "exec" : "kernel.execute", limit: PAGE, before };
    const page = await unwrap(api.GET("/api/v1/audit", { params: { query }, signal }));
    const found = page.entries.find(({ extra }) =>
      exec_id ? extra.exec_id === exec_id : extra.cell_id === cell_id,
    );
    if (found) return found.operation_id;
    before = page.next_before ?? undefined;
  } while (before !== undefined);
  return undefined;
}

/** The operation of a command or a cell, with what it asked of the network. */
function operationOf(sandbox: string, facts: Facts) {
  return {
    queryKey: ["sandbox", sandbox, "operation", facts.exec_id ?? facts.cell_id],
    queryFn: async ({ signal }: { signal: AbortSignal }) => {
      const operation_id = await findOperation(sandbox, facts, signal);
      if (!operation_id) return null;
      const path = { operation_id };
      return unwrap(api.GET("/api/v1/audit/{operation_id}", { params: { path }, signal }));
    },
  };
}

export function ToolFacts({ facts }: { facts: Facts }) {
  const [open, setOpen] = useState(false);
  if (!facts.sandbox_id) return null;
  const sandbox = hyphenated(facts.sandbox_id);
  const { exec_id, cell_id, operation_ids = [] } = facts;
  const known = exec_id !== undefined || cell_id !== undefined;
  return (
    <div className="flex flex-col gap-1 text-xs">
      <p className="flex flex-wrap items-center gap-x-3 gap-y-1">
        {known && (
          <button
            type="button"
            aria-expanded={open}
            onClick={() => setOpen(!open)}
            className="inline-flex items-center gap-1 rounded text-muted hover:text-text"
          >
            {open ? <ChevronDown size={12} /> : <ChevronRight size={12} />}
            Files, network, audit
          </button>
        )}
        {exec_id && (
          <Link to={`/sandboxes/${sandbox}/commands?exec=${exec_id}`} className={linkClass}>
            command
          </Link>
        )}
        {operation_ids.map((id, at) => (
          <Link key={id} to={`/audit?operation=${id}`} className={linkClass}>
            {operation_ids.length > 1 ? `audit row ${at + 1}` : "audit row"}
          </Link>
        ))}
        <Link to={`/sandboxes/${sandbox}`} className={linkClass}>
          sandbox
        </Link>
      </p>
      {open && <Operation sandbox={sandbox} facts={facts} />}
    </div>
  );
}

function Operation({ sandbox, facts }: { sandbox: string; facts: Facts }) {
  const { data, error, isPending } = useQuery(operationOf(sandbox, facts));
  if (error) return <ErrorNote what="The audit trail cannot be read" error={error} />;
  if (isPending) return <Loading />;
  if (!data) return <p className="text-muted">The audit trail has no row of it any more.</p>;
  const files = data.ended?.files ?? [];
  const egress = data.egress ?? [];
  return (
    <div className="flex flex-col gap-1 border-l-2 pl-3">
      {files.length === 0 && <p className="text-muted">It changed no files.</p>}
      {files.map((file) => (
        <p key={file.path} className="flex items-center gap-2">
          <span className="w-16 shrink-0 text-muted">{file.action}</span>
          {file.action === "deleted" ? (
            <span className="font-mono wrap-anywhere">{visibleLine(file.path)}</span>
          ) : (
            <Link
              to={`/sandboxes/${sandbox}/files?path=${encodeURIComponent(`/workspace/${file.path}`)}`}
              className={`font-mono wrap-anywhere ${linkClass}`}
            >
              {visibleLine(file.path)}
            </Link>
          )}
          {file.size != null && (
            <span className="text-muted">
              <Bytes count={file.size} />
            </span>
          )}
        </p>
      ))}
      {egress.length === 0 && <p className="text-muted">It asked nothing of the network.</p>}
      {egress.map((decision) => (
        <DecisionRow key={decision.seq} sandbox={sandbox} decision={decision} />
      ))}
      <p className="flex gap-3">
        {egress.length > 0 && (
          <Link to={`/sandboxes/${sandbox}/network`} className={linkClass}>
            network of the sandbox
          </Link>
        )}
        {!facts.operation_ids?.length && (
          <Link to={`/audit?operation=${data.operation_id}`} className={linkClass}>
            audit row
          </Link>
        )}
      </p>
    </div>
  );
}
