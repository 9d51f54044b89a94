import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { useOwnerName } from "@/api/owners";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Id } from "@/components/id";
import { OutputBox, type Piece } from "@/components/output-box";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Bytes, Duration } from "@/components/time";
import { bytes } from "@/lib/format";
import { plain, visible, visibleLine } from "@/lib/plain-text";
import { curl } from "@/lib/shell";
import { Outcome } from "./outcome";
import type { Entry } from "./query";

export function Operation({ id, onClose }: { id: string; onClose: () => void }) {
  const params = { path: { operation_id: id } };
  const entry = useQuery({
    queryKey: ["audit", "one", id],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/audit/{operation_id}", { params, signal })),
  });
  const title = entry.data?.kind ?? "Operation";
  return (
    <SidePanel
      title={<code className="font-mono">{title}</code>}
      label={`The operation ${title}`}
      actions={<CopyAs cli={`atoll audit show ${id}`} curl={curl("GET", `/api/v1/audit/${id}`)} />}
      onClose={onClose}
    >
      {entry.error && <ErrorNote what="The operation cannot be shown" error={entry.error} />}
      {entry.isPending && <Loading />}
      {entry.data && <Details entry={entry.data} />}
    </SidePanel>
  );
}

function Details({ entry }: { entry: Entry }) {
  const name = useOwnerName();
  const { ended } = entry;
  return (
    <>
      {entry.detail && (
        <pre
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
          tabIndex={0}
          className="max-h-64 overflow-auto rounded border bg-surface p-2 font-mono text-xs break-words whitespace-pre-wrap"
        >
          {visible(entry.detail)}
          {entry.detail_length > entry.detail.length && `\n… ${bytes(entry.detail_length)} in all`}
        </pre>
      )}
      <Facts>
        <Fact name="Outcome">
          <Outcome entry={entry} />
        </Fact>
        <Fact name="Error">
          {ended?.error && (
            <span className="text-danger">
              {plain(ended.error.message)} ({ended.error.code})
            </span>
          )}
        </Fact>
        <Fact name="Row">{String(entry.seq)}</Fact>
        <Fact name="Id">
          <Id id={entry.operation_id} />
        </Fact>
        <Fact name="Begun">{new Date(entry.at).toLocaleString()}</Fact>
        <Fact name="Took">{ended && <Duration ms={ended.duration_ms} />}</Fact>
        <Fact name="Sandbox">
          {entry.sandbox_id && <Id id={entry.sandbox_id} to={`/sandboxes/${entry.sandbox_id}`} />}
        </Fact>
        <Fact name="Owner">{name(entry.owner)}</Fact>
        <Fact name="Key">
          {entry.key_id && <Id id={entry.key_id} to={`/keys?all=1&key=${entry.key_id}`} />}
        </Fact>
        <Fact name="By way of">{[entry.front, entry.address].filter(Boolean).join(", from ")}</Fact>
        <Fact name="Folder">{entry.working_directory && visibleLine(entry.working_directory)}</Fact>
        <Fact name="Variables">{entry.variables.join(", ")}</Fact>
        <Fact name="CPU time">{ended?.cpu_ms != null && <Duration ms={ended.cpu_ms} />}</Fact>
        <Fact name="Memory">
          {ended?.peak_memory_bytes != null && <Bytes count={ended.peak_memory_bytes} />}
        </Fact>
        <Fact name="Bytes">{ended?.bytes != null && <Bytes count={ended.bytes} />}</Fact>
        {Object.entries(entry.extra).map(([key, value]) => (
          <Fact key={key} name={key}>
            {visibleLine(value)}
          </Fact>
        ))}
        <Fact name="Files">{ended && ended.files.length > 0 && <Files ended={ended} />}</Fact>
        <Fact name="Network">
          {entry.egress &&
            entry.egress.length > 0 &&
            `${entry.egress.length} decisions, in the sandbox's page`}
        </Fact>
      </Facts>
      {(ended?.stdout?.kept || ended?.stderr?.kept) && <Kept id={entry.operation_id} />}
    </>
  );
}

function Files({ ended }: { ended: Schemas["AuditEnd"] }) {
  return (
    <ul className="font-mono text-xs">
      {ended.files.map((file) => (
        <li key={file.path} className="break-all">
          {file.action} {visibleLine(file.path)} {file.size != null && `(${bytes(file.size)})`}
        </li>
      ))}
      {ended.files_truncated && <li>… {ended.files_count} in all</li>}
    </ul>
  );
}

/** What is kept of what it wrote: the beginning and the end of each output. */
function Kept({ id }: { id: string }) {
  const params = { path: { operation_id: id } };
  const output = useQuery({
    queryKey: ["audit", "output", id],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/audit/{operation_id}/output", { params, signal })),
  });
  const pieces = (["stdout", "stderr"] as const).flatMap((stream): Piece[] => {
    const kept = output.data?.[stream];
    if (!kept) return [];
    const gap: Piece[] = kept.truncated ? [{ stream: "note", text: `\n[of ${bytes(kept.length)}]\n` }] : [];
    return [{ stream, text: text(kept, "head") }, ...gap, { stream, text: text(kept, "tail") }];
  });
  return (
    <OutputBox label="What is kept of its output" pieces={pieces} ended error={output.error ?? undefined} />
  );
}

function text(kept: Schemas["AuditKept"], part: "head" | "tail"): string {
  if (kept.encoding === "utf8") return kept[part];
  const raw = Uint8Array.from(atob(kept[part]), (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(raw);
}
