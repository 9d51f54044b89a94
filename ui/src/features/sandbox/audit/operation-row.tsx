import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { Link } from "react-router";
import { api, unwrap } from "@/api/client";
import { DecisionRow } from "@/components/decision-row";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Bytes, Duration, Time } from "@/components/time";
import { cx } from "@/lib/cx";
import { plain, visible, visibleLine } from "@/lib/plain-text";
import { execOf, type Operation } from "../queries";

interface Props {
  operation: Operation;
  open: boolean;
  onToggle: (open: boolean) => void;
}

export function OperationRow({ operation, open, onToggle }: Props) {
  const { ended, detail, kind, at } = operation;
  const Chevron = open ? ChevronDown : ChevronRight;
  const outcome = ended?.outcome ?? "running";
  const bad = outcome !== "ok" && outcome !== "running";
  return (
    <div className="border-b last:border-b-0">
      <button
        type="button"
        aria-expanded={open}
        onClick={() => onToggle(!open)}
        className="flex min-h-9 w-full items-center gap-2 px-3 text-left text-xs hover:bg-raised"
      >
        <Chevron size={14} className="shrink-0" />
        <span className={cx("w-14 shrink-0", bad ? "text-danger" : "text-muted")}>{outcome}</span>
        <span className="w-36 shrink-0 truncate max-md:w-24">{kind}</span>
        <span className="min-w-0 flex-1 truncate font-mono">{visible(detail)}</span>
        <span className="text-muted max-md:hidden">{ended && <Duration ms={ended.duration_ms} />}</span>
        <span className="w-12 shrink-0 text-right text-muted">
          <Time at={at} />
        </span>
      </button>
      {open && <OperationDetails operation={operation} />}
    </div>
  );
}

function OperationDetails({ operation }: { operation: Operation }) {
  const { operation_id, ended, sandbox_id } = operation;
  const { data, error } = useQuery({
    queryKey: ["operation", operation_id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/audit/{operation_id}", { params: { path: { operation_id } }, signal })),
  });
  const exec = execOf(operation);
  return (
    <div className="flex flex-col gap-2 px-3 pb-3 pl-9 text-xs">
      <pre
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
        className="max-h-48 overflow-auto font-mono break-words whitespace-pre-wrap"
      >
        {visible(operation.detail)}
      </pre>
      <Facts>
        <Fact name="Row">{operation.seq}</Fact>
        <Fact name="Operation">{operation_id}</Fact>
        <Fact name="By way of">{operation.front}</Fact>
        <Fact name="Key">{operation.key_id}</Fact>
        <Fact name="Address">{operation.address}</Fact>
        <Fact name="Began">{new Date(operation.at).toLocaleString()}</Fact>
        <Fact name="Exit code">{ended?.exit_code != null && String(ended.exit_code)}</Fact>
        <Fact name="Error">{ended?.error && `${ended.error.code}: ${plain(ended.error.message)}`}</Fact>
        <Fact name="Bytes">{ended?.bytes != null && <Bytes count={ended.bytes} />}</Fact>
        <Fact name="Variables">{operation.variables.join(", ")}</Fact>
        <Fact name="Files">
          {ended?.files.map((file) => (
            <span key={file.path} className="block font-mono">
              {file.action} {visibleLine(file.path)}
            </span>
          ))}
        </Fact>
        <Fact name="Output">{ended?.stdout?.sha256 && `sha256 ${ended.stdout.sha256}`}</Fact>
        <Fact name="Command">
          {exec && (
            <Link
              to={`/sandboxes/${sandbox_id}/commands?exec=${exec}`}
              className="text-accent-text hover:underline"
            >
              {exec}
            </Link>
          )}
        </Fact>
      </Facts>
      {error && <ErrorNote what="The rest of it cannot be read" error={error} />}
      {sandbox_id &&
        data?.egress?.map((each) => <DecisionRow key={each.seq} sandbox={sandbox_id} decision={each} />)}
    </div>
  );
}
