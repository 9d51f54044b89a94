import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { ErrorNote } from "@/components/error-note";
import { Loading } from "@/components/page";
import { join, WORKSPACE } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";
import { kindIcon } from "./tree";

/** Files and folders below /workspace with a text in their names. A glob is taken as it is. */
export function Found({
  sandbox,
  text,
  onShow,
}: {
  sandbox: string;
  text: string;
  onShow: (path: string) => void;
}) {
  const pattern = /[*?[{]/.test(text) ? text : `*${text}*`;
  const { data, error } = useQuery({
    queryKey: ["inside", sandbox, "found", pattern],
    queryFn: ({ signal }) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/fs/find", {
          params: { path: { id: sandbox } },
          body: { pattern, limit: 200 },
          signal,
        }),
      ),
  });
  if (error) return <ErrorNote what="The search failed" error={error} />;
  if (!data) return <Loading what="Searching" />;
  return (
    <ul aria-label="Found">
      {data.entries.length === 0 && <li className="p-3 text-xs text-muted">Nothing has that name.</li>}
      {data.entries.map((entry) => (
        <li key={entry.path}>
          <button
            type="button"
            onClick={() => onShow(entry.path.startsWith("/") ? entry.path : join(WORKSPACE, entry.path))}
            className="flex h-7 w-full items-center gap-1.5 px-2 text-left text-xs hover:bg-raised"
          >
            {kindIcon(entry)}
            <span className="truncate">{visibleLine(entry.path)}</span>
          </button>
        </li>
      ))}
      {data.truncated && <li className="p-2 text-xs text-muted">There may be more.</li>}
    </ul>
  );
}
