import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, FileInput, Input } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { notify } from "@/components/toast";
import { bytes } from "@/lib/format";
import { curl, quote } from "@/lib/shell";
import { upload } from "@/lib/upload";
import { useAddress } from "@/lib/use-address";
import { Replace } from "./new-build";
import { fullName, type Image } from "./queries";

export function ImportForm({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const [, go] = useAddress();
  const [name, setName] = useState("");
  const [disk, setDisk] = useState("");
  const [file, setFile] = useState<File>();
  const [replace, setReplace] = useState(false);
  const [sent, setSent] = useState(0);
  const ends = useRef<AbortController>(undefined);
  // A closed panel ends the upload: the server then keeps nothing of it.
  useEffect(() => () => ends.current?.abort(), []);
  const query = new URLSearchParams({ name });
  if (replace) query.set("replace", "true");
  if (disk) query.set("disk_mb", disk);
  const path = `/api/v1/sandbox-images/import?${query}`;
  const send = useMutation({
    mutationFn: (body: File) => {
      ends.current = new AbortController();
      return upload<Image>(path, { method: "POST", body, onSent: setSent, signal: ends.current.signal });
    },
    onSuccess: (image) => {
      notify(`${fullName(image)} is there`);
      void client.invalidateQueries({ queryKey: ["images"] });
      go({ add: "", image: image.id });
    },
  });
  return (
    <SidePanel title="Import an archive" label="Import an archive" onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          if (file) send.mutate(file);
        }}
      >
        <Field
          label="Archive"
          hint="What docker save writes, an OCI layout, or a root filesystem: a tar archive, also compressed."
        >
          {(props) => (
            <FileInput {...props} required onChange={(event) => setFile(event.target.files?.[0])} />
          )}
        </Field>
        <Field label="Name" hint="NAME or NAME:TAG">
          {(props) => (
            <Input {...props} required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <Field label="Disk in MiB" hint="As the setting images.max_mb where it is empty.">
          {(props) => (
            <Input
              {...props}
              type="number"
              min={1}
              value={disk}
              onChange={(event) => setDisk(event.target.value)}
            />
          )}
        </Field>
        <Replace checked={replace} onChange={setReplace} />
        {send.isPending && file && (
          <div role="status" className="text-xs text-muted">
            {sent < file.size
              ? `${bytes(sent)} of ${bytes(file.size)} sent`
              : "All of it is sent; a sandbox unpacks it"}
            <progress className="mt-1 block w-full" max={file.size} value={sent} />
          </div>
        )}
        {send.error && <ErrorNote what="The image was not imported" error={send.error} />}
        <div className="flex items-center gap-2">
          <Button kind="primary" type="submit" disabled={!file || !name || send.isPending}>
            Import
          </Button>
          {send.isPending && <Button onClick={() => ends.current?.abort()}>Cancel</Button>}
          <CopyAs
            cli={`atoll image import ${quote(file?.name ?? "FILE")} --name ${quote(name || "NAME")}`}
            curl={`${curl("POST", path)} --data-binary @${quote(file?.name ?? "FILE")}`}
          />
        </div>
      </form>
    </SidePanel>
  );
}
