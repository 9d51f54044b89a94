import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { ErrorNote } from "@/components/error-note";
import { bytes } from "@/lib/format";
import { plain } from "@/lib/plain-text";

type Kept = Schemas["AuditKept"];

function text({ encoding, head, tail, length }: Kept): string {
  const read = (part: string) =>
    encoding === "base64"
      ? new TextDecoder().decode(Uint8Array.from(atob(part), (letter) => letter.charCodeAt(0)))
      : part;
  const between = tail ? `\n[of ${bytes(length)} the first and the last are kept]\n` : "";
  return plain(read(head) + between + read(tail));
}

/** What the audit trail kept of the output of a command that the sandbox no longer remembers. */
export function PastOutput({ operation }: { operation: string }) {
  const { data, error } = useQuery({
    queryKey: ["operation", operation, "output"],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/audit/{operation_id}/output", {
          params: { path: { operation_id: operation } },
          signal,
        }),
      ),
  });
  if (error) return <ErrorNote what="The kept output cannot be read" error={error} />;
  const out = data?.stdout ? text(data.stdout) : "";
  const err = data?.stderr ? text(data.stderr) : "";
  return (
    <div className="rounded border bg-surface">
      <p className="border-b px-2 py-1 text-xs text-muted">output, as the audit trail keeps it</p>
      <pre
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
        className="max-h-96 overflow-auto p-2 font-mono text-xs break-words whitespace-pre-wrap"
      >
        {out}
        {err && <span className="text-warn">{err}</span>}
        {data && !out && !err && <span className="text-muted">It printed nothing.</span>}
      </pre>
    </div>
  );
}
