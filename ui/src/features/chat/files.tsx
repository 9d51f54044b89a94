import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { sandboxPage } from "@/api/queries";
import { ErrorNote } from "@/components/error-note";
import { Id } from "@/components/id";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Status } from "@/components/status";
import { Bytes, Time } from "@/components/time";
import { nameOf } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";
import { exported } from "./queries";
import { downloadUrl } from "./tools";

/** What the agent offers for download, and the sandboxes that it works in. */
export function Files({ thread, onClose }: { thread: string; onClose: () => void }) {
  const files = useQuery(exported(thread));
  const sandboxes = useQuery(sandboxPage({ labels: `atoll.thread=${thread}`, page_size: 50 }));
  return (
    <SidePanel title="Files and sandboxes" label="Files and sandboxes" onClose={onClose}>
      <section>
        <h3 className="mb-2 text-xs font-medium text-muted">Exported</h3>
        {files.error && <ErrorNote what="The files cannot be listed" error={files.error} />}
        {files.isPending && <Loading />}
        {files.data?.length === 0 && (
          <p className="text-muted">Nothing yet. Ask the agent to export a file that you want to have.</p>
        )}
        <ul className="flex flex-col gap-1">
          {files.data?.map((file) => (
            <li key={`${file.session_id} ${file.path}`} className="flex items-center gap-2">
              <a
                href={downloadUrl(thread, { session: file.session_id, path: file.path })}
                download={file.is_directory ? `${nameOf(file.path)}.tar` : nameOf(file.path)}
                className="inline-flex min-w-0 flex-1 items-center gap-1 text-accent-text hover:underline"
              >
                <Download size={14} className="shrink-0" aria-hidden="true" />
                <span className="truncate font-mono text-xs">{visibleLine(file.path)}</span>
              </a>
              {file.size != null && (
                <span className="text-xs text-muted">
                  <Bytes count={file.size} />
                </span>
              )}
              <span className="text-xs text-muted">
                <Time at={file.exported_at} suffix=" ago" />
              </span>
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h3 className="mb-2 text-xs font-medium text-muted">Sandboxes</h3>
        {sandboxes.error && <ErrorNote what="The sandboxes cannot be listed" error={sandboxes.error} />}
        {sandboxes.data?.items.length === 0 && (
          <p className="text-muted">None. The agent makes one when it runs something.</p>
        )}
        <ul className="flex flex-col gap-1">
          {sandboxes.data?.items.map((sandbox) => (
            <li key={sandbox.id} className="flex items-center gap-3 text-xs">
              <Id id={sandbox.id} to={`/sandboxes/${sandbox.id}`} />
              <Status status={sandbox.status} reason={sandbox.status_reason} />
              <span className="truncate text-muted">{visibleLine(sandbox.image)}</span>
            </li>
          ))}
        </ul>
      </section>
    </SidePanel>
  );
}
