// What a sandbox was forked from, and what was forked from it: a tree, read from the audit trail as it is opened.
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useState } from "react";
import { Link } from "react-router";
import { ErrorNote } from "@/components/error-note";
import { shortId } from "@/components/id";
import { Panel } from "@/components/page";
import { Time } from "@/components/time";
import { forksOf, type Operation, originOf } from "../queries";

export function Forks({ sandbox }: { sandbox: string }) {
  const origin = useQuery(originOf(sandbox));
  const forks = useQuery(forksOf(sandbox));
  const error = origin.error ?? forks.error;
  if (!error && !origin.data && !forks.data?.length) return null;
  return (
    <Panel title="Forks">
      {error && <ErrorNote what="Its forks cannot be listed" error={error} />}
      {origin.data && (
        <p className="border-b px-3 py-1.5 text-xs last:border-b-0">
          <span className="text-muted">forked from </span>
          <SandboxLink id={origin.data.sandbox_id ?? ""} />
          <From operation={origin.data} />
        </p>
      )}
      {forks.data && forks.data.length > 0 && (
        <ul aria-label="Forks" className="py-1">
          {forks.data.map((each) => (
            <Fork key={each.operation_id} operation={each} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Fork({ operation }: { operation: Operation }) {
  const id = operation.extra.fork ?? "";
  const [open, setOpen] = useState(false);
  const { data, error } = useQuery({ ...forksOf(id), enabled: open && id !== "" });
  const Chevron = open ? ChevronDown : ChevronRight;
  return (
    <li className="pl-3 text-xs">
      <span className="flex min-h-7 items-center gap-2 pr-3">
        <button
          type="button"
          aria-expanded={open}
          aria-label={`Forks of ${shortId(id)}`}
          onClick={() => setOpen(!open)}
          className="rounded p-1 text-muted hover:text-text"
        >
          <Chevron size={12} />
        </button>
        <SandboxLink id={id} />
        <From operation={operation} />
        <span className="flex-1" />
        <span className="text-muted">
          <Time at={operation.at} />
        </span>
      </span>
      {open && error && <ErrorNote what="Its forks cannot be listed" error={error} />}
      {open && data?.length === 0 && <p className="pb-1 pl-8 text-muted">Nothing was forked from it.</p>}
      {open && data && data.length > 0 && (
        <ul>
          {data.map((each) => (
            <Fork key={each.operation_id} operation={each} />
          ))}
        </ul>
      )}
    </li>
  );
}

function SandboxLink({ id }: { id: string }) {
  return (
    <Link to={`/sandboxes/${id}/snapshots`} className="font-mono text-accent-text hover:underline">
      {shortId(id)}
    </Link>
  );
}

/** The snapshot that it was made of, where it was not the files of that moment. */
function From({ operation }: { operation: Operation }) {
  const snapshot = operation.extra.snapshot_id;
  if (!snapshot) return null;
  return <span className="text-muted"> at the snapshot {shortId(snapshot)}</span>;
}
