// What can be done in a folder: files and folders are made and uploaded, and all of it is downloaded.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Download, FilePlus, FolderPlus, Upload } from "lucide-react";
import { useRef, useState } from "react";
import { api, send, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { Button, buttonClass } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Input } from "@/components/field";
import { archiveUrl, fileUrl, join, nameOf, WORKSPACE } from "@/lib/paths";
import { curl, quote } from "@/lib/shell";
import { Change } from "./change";
import { present } from "./queries";
import type { Chosen } from "./uploads";

interface Props {
  sandbox: string;
  path: string;
  readOnly: boolean;
  onShow: (path: string) => void;
  onChosen: (chosen: Chosen[]) => void;
}

export function Tools({ sandbox, path, readOnly, onShow, onChosen }: Props) {
  const client = useQueryClient();
  const picker = useRef<HTMLInputElement>(null);
  const [making, setMaking] = useState<"file" | "folder">();
  const make = useMutation({
    mutationFn: async ({ kind, at }: { kind: "file" | "folder"; at: string }) => {
      if ((await present(sandbox, [at])).length > 0) throw new Error("something has that name already");
      if (kind === "file") return void (await send(fileUrl(sandbox, at), { method: "PUT", body: "" }));
      const params = { path: { id: sandbox } };
      await unwrap(
        api.POST("/api/v1/sandboxes/{id}/fs/mkdir", { params, body: { path: at, parents: true } }),
      );
    },
    onSuccess: async (_, { at }) => {
      setMaking(undefined);
      await refreshSandbox(client, sandbox);
      onShow(at);
    },
    meta: { failed: "It was not made" },
  });
  const archive = `${nameOf(path) === "/" ? "root" : nameOf(path)}.tar`;
  return (
    <div className="flex flex-wrap items-center gap-1 border-b px-3 py-1">
      <a className={buttonClass("quiet", true)} href={archiveUrl(sandbox, path)} download={archive}>
        <Download size={14} />
        Download as tar
      </a>
      <CopyAs
        cli={`atoll cp ${quote(`${sandbox}:${path}`)} .`}
        curl={`${curl("GET", archiveUrl(sandbox, path))} -o ${quote(archive)}`}
      />
      {!readOnly && (
        <>
          <Button kind="quiet" small icon={<Upload size={14} />} onClick={() => picker.current?.click()}>
            Upload
          </Button>
          <input
            ref={picker}
            type="file"
            multiple
            aria-label="Files to upload"
            className="sr-only"
            tabIndex={-1}
            onChange={(event) => {
              onChosen([...(event.target.files ?? [])].map((file) => ({ file, path: file.name })));
              event.target.value = "";
            }}
          />
          <Button kind="quiet" small icon={<FilePlus size={14} />} onClick={() => setMaking("file")}>
            New file
          </Button>
          <Button kind="quiet" small icon={<FolderPlus size={14} />} onClick={() => setMaking("folder")}>
            New folder
          </Button>
          {path.startsWith(`${WORKSPACE}/`) && (
            <Change key={path} sandbox={sandbox} path={path} what="folder" onShow={onShow} />
          )}
        </>
      )}
      {making && (
        <form
          className="flex items-center gap-1"
          onSubmit={(event) => {
            event.preventDefault();
            const name = String(new FormData(event.currentTarget).get("name")).trim();
            if (name) make.mutate({ kind: making, at: join(path, name) });
          }}
        >
          <Input
            name="name"
            aria-label={`Name of the new ${making}`}
            placeholder={`Name of the new ${making}`}
            autoFocus
            className="h-7 w-44 text-xs"
            onKeyDown={(event) => event.key === "Escape" && setMaking(undefined)}
          />
          <Button small type="submit" disabled={make.isPending}>
            Make
          </Button>
        </form>
      )}
    </div>
  );
}
