import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { curl, quote } from "@/lib/shell";

interface Props {
  onClose: () => void;
  onMade: (volume: Schemas["Volume"]) => void;
}

export function CreateVolume({ onClose, onMade }: Props) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [disk, setDisk] = useState("");
  const body = { name, disk_mb: disk ? Number(disk) : undefined };
  const create = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/volumes", { body })),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ["volumes"] });
      onMade(made);
    },
  });
  const fields = create.error ? asApiError(create.error).fields : {};
  const cli = `atoll volume create ${quote(name || "NAME")}${disk ? ` --disk ${disk}m` : ""}`;
  return (
    <SidePanel title="Create a volume" label="Create a volume" onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          create.mutate();
        }}
      >
        <Field
          label="Name"
          error={fields.name}
          hint="Small letters, digits, dot, underscore, hyphen. It never changes."
        >
          {(props) => (
            <Input {...props} required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <Field
          label="Limit in MiB"
          error={fields.disk_mb}
          hint="As much as a sandbox's disk where it is empty."
        >
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
        {create.error && Object.keys(fields).length === 0 && (
          <ErrorNote what="The volume was not made" error={create.error} />
        )}
        <div className="flex items-center gap-2">
          <Button kind="primary" type="submit" disabled={!name || create.isPending}>
            Create
          </Button>
          <CopyAs cli={cli} curl={curl("POST", "/api/v1/volumes", body)} />
        </div>
      </form>
    </SidePanel>
  );
}
