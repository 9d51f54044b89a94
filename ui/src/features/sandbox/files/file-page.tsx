// One file: its content, what can be done with it, and which commands changed it.
import { useQuery } from "@tanstack/react-query";
import { Download, History } from "lucide-react";
import { useState } from "react";
import { Link } from "react-router";
import { api, unwrap } from "@/api/client";
import { Button, buttonClass } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { FileView } from "@/components/file-view";
import { Bytes, Time } from "@/components/time";
import { fileUrl } from "@/lib/paths";
import { visible } from "@/lib/plain-text";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { Change } from "./change";
import { FileEditor } from "./file-editor";
import type { Item } from "./queries";

interface Props {
  sandbox: string;
  file: Item;
  readOnly: boolean;
  onShow: (path: string) => void;
}

export function FilePage({ sandbox, file, readOnly, onShow }: Props) {
  const [at, go] = useAddress();
  const history = at("history") !== "";
  // What the editor began with. A change inside is shown beside it and does not replace what is being typed.
  const [opened, setOpened] = useState(file);
  return (
    <section aria-label="File" className="flex min-h-0 flex-1 flex-col">
      <div className="flex flex-wrap items-center gap-1 border-b px-3 py-1 text-xs text-muted">
        <span className="mr-2">
          <Bytes count={file.size} /> · {file.mode} · changed <Time at={file.modified_at} suffix=" ago" />
        </span>
        <a className={buttonClass("quiet", true)} href={fileUrl(sandbox, file.path)} download={file.name}>
          <Download size={14} />
          Download
        </a>
        <Button
          kind="quiet"
          small
          icon={<History size={14} />}
          aria-expanded={history}
          onClick={() => go({ history: history ? "" : "1" })}
        >
          History
        </Button>
        <CopyAs
          cli={`atoll cp ${quote(`${sandbox}:${file.path}`)} .`}
          curl={`${curl("GET", fileUrl(sandbox, file.path))} -o ${quote(file.name)}`}
        />
        {!readOnly && <Change sandbox={sandbox} path={file.path} what="file" onShow={onShow} />}
      </div>
      {history && <FileHistory sandbox={sandbox} path={file.path} />}
      <div className="min-h-0 flex-1">
        {file.type === "other" ? (
          <p className="p-3 text-muted">This is neither a file nor a folder.</p>
        ) : (
          <FileView
            key={`${opened.path} ${opened.modified_at}`}
            sandbox={sandbox}
            file={opened}
            edit={
              readOnly
                ? undefined
                : (text) => (
                    <FileEditor
                      sandbox={sandbox}
                      opened={opened}
                      now={file}
                      text={text}
                      onOpened={setOpened}
                    />
                  )
            }
          />
        )}
      </div>
    </section>
  );
}

function FileHistory({ sandbox, path }: { sandbox: string; path: string }) {
  const { data, error } = useQuery({
    queryKey: ["sandbox", sandbox, "history", path],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/sandboxes/{id}/fs/history", {
          params: { path: { id: sandbox }, query: { path, limit: 50 } },
          signal,
        }),
      ),
  });
  if (error) return <ErrorNote what="Its history cannot be read" error={error} />;
  return (
    <ul aria-label="History" className="max-h-48 shrink-0 overflow-y-auto border-b text-xs">
      {data?.entries.length === 0 && (
        <li className="px-3 py-2 text-muted">The audit trail knows of no change of this file.</li>
      )}
      {data?.entries.map((entry) => (
        <li key={`${entry.operation_id} ${entry.at}`} className="flex h-7 items-center gap-3 px-3">
          <span className="w-16 shrink-0 text-muted">{entry.action}</span>
          <span className="w-24 shrink-0 text-muted">{entry.kind ?? "unknown"}</span>
          {entry.exec_id ? (
            <Link
              to={`/sandboxes/${sandbox}/commands?exec=${entry.exec_id}`}
              className="min-w-0 flex-1 truncate font-mono text-accent-text hover:underline"
            >
              {visible(entry.detail ?? "")}
            </Link>
          ) : (
            <span className="min-w-0 flex-1 truncate font-mono">{visible(entry.detail ?? "")}</span>
          )}
          <span className="text-muted">
            <Time at={entry.at} />
          </span>
        </li>
      ))}
    </ul>
  );
}
