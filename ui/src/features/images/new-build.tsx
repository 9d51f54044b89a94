import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, inputClass } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { cx } from "@/lib/cx";
import { curl } from "@/lib/shell";

/** Starts a build and goes to its log. */
export function useStartBuild() {
  const client = useQueryClient();
  const navigate = useNavigate();
  return useMutation({
    mutationFn: (body: Schemas["BuildBody"]) => unwrap(api.POST("/api/v1/sandbox-images", { body })),
    onSuccess: (build) => {
      void client.invalidateQueries({ queryKey: ["images"] });
      void navigate(`/images/builds?build=${build.build_id}`);
    },
  });
}

export function BuildForm({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [dockerfile, setDockerfile] = useState("FROM host\n");
  const [disk, setDisk] = useState("");
  const [replace, setReplace] = useState(false);
  const start = useStartBuild();
  const body = { name, dockerfile, replace, disk_mb: disk ? Number(disk) : undefined };
  const fields = start.error ? asApiError(start.error).fields : {};
  return (
    <SidePanel title="Build from a Dockerfile" label="Build from a Dockerfile" onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          start.mutate(body);
        }}
      >
        <Field label="Name" error={fields.name} hint="NAME or NAME:TAG">
          {(props) => (
            <Input {...props} required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <Field
          label="Dockerfile"
          error={fields.dockerfile}
          hint="FROM names an image of this page. Files are copied by the CLI alone: atoll image build DIR."
        >
          {(props) => (
            <textarea
              {...props}
              required
              rows={12}
              spellCheck={false}
              value={dockerfile}
              onChange={(event) => setDockerfile(event.target.value)}
              className={cx(inputClass, "h-auto py-1 font-mono text-xs")}
            />
          )}
        </Field>
        <Field
          label="Disk in MiB"
          error={fields.disk_mb}
          hint="As the setting images.max_mb where it is empty."
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
        <Replace checked={replace} onChange={setReplace} />
        {start.error && <ErrorNote what="The build was not started" error={start.error} />}
        <div className="flex items-center gap-2">
          <Button kind="primary" type="submit" disabled={!name || start.isPending}>
            Build
          </Button>
          <CopyAs curl={curl("POST", "/api/v1/sandbox-images", body)} />
        </div>
      </form>
    </SidePanel>
  );
}

export function Replace({ checked, onChange }: { checked: boolean; onChange: (checked: boolean) => void }) {
  return (
    <label className="flex items-center gap-2 text-sm">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} />
      Take the tag from the image that has it
    </label>
  );
}
