import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Select } from "@/components/field";
import { shortId } from "@/components/id";
import { Bytes } from "@/components/time";
import { visibleLine } from "@/lib/plain-text";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";

type Snapshot = Schemas["SnapshotItem"];

const SIGNS = { created: "+", modified: "~", deleted: "−" };

/** The files that differ between a snapshot and now, or another snapshot. */
export function Diff({ snapshot, others }: { snapshot: Snapshot; others: Snapshot[] }) {
  const [at, go] = useAddress();
  const to = at("to") || "now";
  const { sandbox_id: sandbox, id } = snapshot;
  const { data, error, isFetching } = useQuery({
    queryKey: ["sandbox", sandbox, "diff", id, to],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/sandboxes/{id}/snapshots/{sid}/diff", {
          params: { path: { id: sandbox, sid: id }, query: { to } },
          signal,
        }),
      ),
  });
  return (
    <div className="rounded border">
      <div className="flex items-center gap-2 border-b px-2 py-1 text-xs text-muted">
        what changed from it to
        <Select
          aria-label="Compare with"
          value={to}
          onChange={(event) => go({ to: event.target.value === "now" ? "" : event.target.value })}
          className="h-7 w-auto max-w-60 text-xs"
        >
          <option value="now">now</option>
          {others
            .filter((each) => each.id !== id)
            .map((each) => (
              <option key={each.id} value={each.id}>
                {shortId(each.id)} {each.label ?? each.kind.replace("_", " ")}
              </option>
            ))}
        </Select>
        {isFetching && <span role="status">comparing…</span>}
        <span className="flex-1" />
        <CopyAs
          small
          cli={`atoll snapshot diff ${sandbox} ${id}${to === "now" ? "" : ` ${to}`}`}
          curl={curl("GET", `/api/v1/sandboxes/${sandbox}/snapshots/${id}/diff?to=${to}`)}
        />
      </div>
      {error && <ErrorNote what="They cannot be compared" error={error} />}
      {data?.files.length === 0 && <p className="p-2 text-xs text-muted">No file differs.</p>}
      <ul aria-label="Files that differ" className="max-h-72 overflow-y-auto">
        {data?.files.map((file) => (
          <li key={file.path} className="flex h-7 items-center gap-2 px-2 text-xs">
            <span className="w-3 shrink-0 font-mono" title={file.action}>
              {SIGNS[file.action]}
            </span>
            <span className="sr-only">{file.action}</span>
            {file.action === "deleted" || to !== "now" ? (
              <span className="min-w-0 flex-1 truncate font-mono">{visibleLine(file.path)}</span>
            ) : (
              <Link
                to={`/sandboxes/${sandbox}/files?path=${encodeURIComponent(file.path)}`}
                className="min-w-0 flex-1 truncate font-mono text-accent-text hover:underline"
              >
                {visibleLine(file.path)}
              </Link>
            )}
            {file.action !== "deleted" && (
              <span className="text-muted">
                <Bytes count={file.size_bytes} />
              </span>
            )}
          </li>
        ))}
      </ul>
      {data?.truncated && <p className="p-2 text-xs text-muted">There may be more.</p>}
    </div>
  );
}
