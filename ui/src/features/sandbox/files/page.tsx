// The files of a sandbox: a tree beside the folder or file that the address names.
import { useQuery } from "@tanstack/react-query";
import { sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { ErrorNote } from "@/components/error-note";
import { Loading } from "@/components/page";
import { folderOf, join, WORKSPACE } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";
import { useAddress } from "@/lib/use-address";
import { usePresent } from "@/lib/use-present";
import { useTyped } from "@/lib/use-typed";
import { useSandboxId } from "../queries";
import { FilePage } from "./file-page";
import { Found } from "./find";
import { FolderView } from "./folder-view";
import { stat, useWatch } from "./queries";
import { Tree } from "./tree";
import { Uploads, useUploads } from "./uploads";

export default function Files() {
  const id = useSandboxId();
  const [at, go] = useAddress();
  const path = at("path") || WORKSPACE;
  const readOnly = useSignedIn().scope === "read_only";
  const running = useQuery(sandboxQuery(id)).data?.status === "running";
  const shown = useQuery(stat(id, path));
  const uploads = useUploads(id);
  const [text, setText] = useTyped(at("find"), (find) => go({ find }));
  const wanted = at("find").trim();
  // Watching keeps the sandbox awake.
  useWatch(id, usePresent() && running);
  const show = (next: string) => go({ path: next === WORKSPACE ? "" : next, history: "" }, true);
  const here = shown.data;
  return (
    <div className="flex min-h-0 flex-1">
      <div className="flex w-64 shrink-0 flex-col border-r max-md:hidden">
        <div className="border-b p-2">
          <input
            type="search"
            aria-label="Find a file"
            placeholder="Find a file: *.py"
            value={text}
            onChange={(event) => setText(event.target.value)}
            className="h-7 w-full rounded border border-line-strong bg-surface px-2 text-xs"
          />
        </div>
        <nav aria-label="Files" className="min-h-0 flex-1 overflow-y-auto py-1">
          {wanted ? (
            <Found sandbox={id} text={wanted} onShow={show} />
          ) : (
            <Tree sandbox={id} path={WORKSPACE} shown={path} onShow={show} />
          )}
        </nav>
      </div>
      <div className="flex min-w-0 flex-1 flex-col bg-surface">
        <Crumbs path={path} onShow={show} />
        {shown.error && !here && (
          <div className="p-3">
            <ErrorNote
              what="This path cannot be shown"
              error={shown.error}
              retry={() => void shown.refetch()}
            />
          </div>
        )}
        {shown.isPending && <Loading />}
        {here?.is_directory && (
          <FolderView
            sandbox={id}
            path={path}
            readOnly={readOnly}
            onShow={show}
            onUpload={(chosen) => void uploads.start(path, chosen)}
          />
        )}
        {here && !here.is_directory && (
          <FilePage key={path} sandbox={id} file={here} readOnly={readOnly} onShow={show} />
        )}
        <Uploads list={uploads.list} onDrop={uploads.drop} />
      </div>
    </div>
  );
}

function Crumbs({ path, onShow }: { path: string; onShow: (path: string) => void }) {
  const parts = path.split("/").filter(Boolean);
  const above = parts.map((_, at) =>
    parts.slice(0, at + 1).reduce((folder, name) => join(folder, name), "/"),
  );
  return (
    <nav
      aria-label="Path"
      className="flex min-h-9 flex-wrap items-center gap-1 border-b px-3 font-mono text-xs"
    >
      <button type="button" className="text-muted hover:text-text" onClick={() => onShow("/")}>
        /
      </button>
      {above.map((each, at) => (
        <span key={each} className="flex min-w-0 items-center gap-1">
          {folderOf(each) !== "/" && <span className="text-muted">/</span>}
          <button
            type="button"
            aria-current={at === above.length - 1 || undefined}
            className="max-w-60 truncate text-muted hover:text-text aria-[current]:text-text"
            onClick={() => onShow(each)}
          >
            {visibleLine(parts[at] ?? "")}
          </button>
        </span>
      ))}
    </nav>
  );
}
