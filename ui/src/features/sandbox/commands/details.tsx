// What a command left behind: files that it changed, what it asked of the network, what it cost.
import { Link } from "react-router";
import { DecisionRow } from "@/components/decision-row";
import { Bytes } from "@/components/time";
import { duration } from "@/lib/format";
import { plain, visibleLine } from "@/lib/plain-text";
import { type Decision, type Exec, execOf, type Operation } from "../queries";

interface Props {
  sandbox: string;
  exec: Exec;
  operation?: Operation;
  decisions: Decision[];
}

/** A command of the audit trail in the shape of one that is remembered. */
export function pastExec(operation: Operation): Exec {
  const { ended } = operation;
  const error = ended?.error;
  return {
    exec_id: execOf(operation) ?? operation.operation_id,
    status: ended ? "ended" : "running",
    command: operation.detail,
    pid: 0,
    exit_code: ended?.exit_code ?? null,
    signal: ended?.signal ?? null,
    timed_out: false,
    killed: ended?.outcome === "lost",
    oom_killed: false,
    failure: error ? { errno: 0, message: error.message, stage: error.code } : null,
    started_at: operation.at,
    duration_ms: Math.round(ended?.duration_ms ?? 0),
    cpu_user_ms: Math.round(ended?.cpu_ms ?? 0),
    cpu_system_ms: 0,
    peak_memory_bytes: ended?.peak_memory_bytes ?? 0,
    output_bytes: ended?.stdout?.length ?? 0,
    first_offset: 0,
    dropped_bytes: 0,
    descendants_alive: false,
    terminal: null,
  };
}

export function Details({ sandbox, exec, operation, decisions }: Props) {
  const files = operation?.ended?.files ?? [];
  const more = (operation?.ended?.files_count ?? 0) - files.length;
  return (
    <div className="flex flex-col gap-1 text-xs">
      {exec.failure && <p className="text-danger">{plain(exec.failure.message)}</p>}
      {files.map((file) => (
        <p key={file.path} className="flex items-center gap-2">
          <span className="w-16 shrink-0 text-muted">{file.action}</span>
          {file.action === "deleted" ? (
            <span className="truncate font-mono">{visibleLine(file.path)}</span>
          ) : (
            <Link
              to={`/sandboxes/${sandbox}/files?path=${encodeURIComponent(`/workspace/${file.path}`)}`}
              className="truncate font-mono text-accent-text hover:underline"
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
      {more > 0 && <p className="text-muted">and {more} more files</p>}
      {operation?.ended?.files_truncated && <p className="text-muted">There may be more files.</p>}
      {decisions.map((each) => (
        <DecisionRow key={each.seq} sandbox={sandbox} decision={each} />
      ))}
      <p className="flex flex-wrap gap-x-3 text-muted">
        <span>CPU {duration(exec.cpu_user_ms + exec.cpu_system_ms)}</span>
        <span>
          peak <Bytes count={exec.peak_memory_bytes} />
        </span>
        {exec.pid > 0 && <span>pid {exec.pid}</span>}
        {exec.descendants_alive && <span className="text-warn">something that it started still runs</span>}
        {operation && (
          <Link
            to={`/sandboxes/${sandbox}/audit?operation=${operation.operation_id}`}
            className="text-accent-text hover:underline"
          >
            audit
          </Link>
        )}
      </p>
    </div>
  );
}
