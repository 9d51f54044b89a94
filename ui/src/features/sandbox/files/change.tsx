// Another name for a file or folder, or none: it is deleted.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { Input } from "@/components/field";
import { folderOf, join, nameOf } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";

interface Props {
  sandbox: string;
  path: string;
  what: "file" | "folder";
  onShow: (path: string) => void;
}

export function Change({ sandbox, path, what, onShow }: Props) {
  const client = useQueryClient();
  const [removing, setRemoving] = useState(false);
  const [renaming, setRenaming] = useState(false);
  const params = { path: { id: sandbox } };
  const recursive = what === "folder";
  const shown = (next: string) => {
    onShow(next);
    return refreshSandbox(client, sandbox);
  };
  const remove = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/sandboxes/{id}/fs/remove", { params, body: { path, recursive } })),
    onSuccess: () => shown(folderOf(path)),
    meta: { failed: `The ${what} was not deleted` },
  });
  const rename = useMutation({
    mutationFn: (to: string) =>
      unwrap(api.POST("/api/v1/sandboxes/{id}/fs/move", { params, body: { from: path, to } })),
    onSuccess: (moved) => shown(moved.path),
    meta: { failed: `The ${what} was not renamed` },
  });
  return (
    <>
      {renaming ? (
        <form
          className="flex items-center gap-1"
          onSubmit={(event) => {
            event.preventDefault();
            const name = String(new FormData(event.currentTarget).get("name"));
            rename.mutate(name.startsWith("/") ? name : join(folderOf(path), name));
          }}
        >
          <Input
            name="name"
            aria-label="New name"
            defaultValue={nameOf(path)}
            autoFocus
            className="h-7 w-44 text-xs"
            onKeyDown={(event) => event.key === "Escape" && setRenaming(false)}
          />
          <Button small type="submit" disabled={rename.isPending}>
            Rename
          </Button>
        </form>
      ) : (
        <Button kind="quiet" small onClick={() => setRenaming(true)}>
          Rename
        </Button>
      )}
      <Button kind="quiet" small icon={<Trash2 size={14} />} onClick={() => setRemoving(true)}>
        Delete
      </Button>
      <Confirm
        open={removing}
        title={`Delete this ${what}?`}
        verb="Delete"
        busy={remove.isPending}
        onClose={() => setRemoving(false)}
        onConfirm={() => remove.mutate()}
      >
        <span className="font-mono break-all">{visibleLine(path)}</span>
        {recursive && " with all that is in it"} is lost, unless a snapshot has it.
      </Confirm>
    </>
  );
}
