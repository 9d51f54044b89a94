// A skill comes from the catalogue, from a package, or from instructions that are written here.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { Field, FileInput, Input, inputClass } from "@/components/field";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { cx } from "@/lib/cx";
import { upload } from "@/lib/upload";

type Skill = Schemas["SkillItem"];
interface Props {
  onMade: (skill: Skill) => void;
}

/** Reads the list again and shows the new one. */
function useMade(onMade: Props["onMade"]) {
  const client = useQueryClient();
  return (skill: Skill) => {
    void client.invalidateQueries({ queryKey: ["skills"] });
    onMade(skill);
  };
}

export function AddSkill({ onClose, onMade }: Props & { onClose: () => void }) {
  return (
    <SidePanel title="Add a skill" label="Add a skill" onClose={onClose}>
      <FromCatalogue onMade={onMade} />
      <FromPackage onMade={onMade} />
      <FromText onMade={onMade} />
    </SidePanel>
  );
}

function FromCatalogue({ onMade }: Props) {
  const params = { path: { source: "builtin" }, query: {} };
  const catalogue = useQuery({
    queryKey: ["skills", "catalogue"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/skills/catalog/{source}", { params, signal })),
  });
  const add = useMutation({
    mutationFn: (skill_name: string) =>
      unwrap(api.POST("/api/v1/skills/import", { body: { source: "builtin", skill_name } })),
    onSuccess: useMade(onMade),
  });
  return (
    <section className="flex flex-col gap-2">
      <h3 className="font-medium">That ship with the server</h3>
      {catalogue.error && <ErrorNote what="The catalogue cannot be listed" error={catalogue.error} />}
      {catalogue.isPending && <Loading />}
      {add.error && <ErrorNote what="The skill was not added" error={add.error} />}
      <ul className="rounded border bg-surface">
        {catalogue.data?.items.map((each) => (
          <li key={each.name} className="flex items-center gap-2 border-b px-3 py-1.5 last:border-b-0">
            <div className="min-w-0 flex-1">
              <code className="font-mono text-xs">{each.name}</code>
              <p className="text-xs text-muted">{each.description}</p>
            </div>
            <Button
              small
              aria-label={`Add ${each.name}`}
              disabled={add.isPending}
              onClick={() => add.mutate(each.name)}
            >
              Add
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function FromPackage({ onMade }: Props) {
  const [file, setFile] = useState<File>();
  const [replace, setReplace] = useState(false);
  const send = useMutation({
    mutationFn: (chosen: File) => {
      const body = new FormData();
      body.set("file", chosen);
      return upload<Skill>(`/api/v1/skills/upload?replace=${replace}`, { method: "POST", body });
    },
    onSuccess: useMade(onMade),
  });
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (file) send.mutate(file);
      }}
    >
      <h3 className="font-medium">From a package</h3>
      <Field label="ZIP archive" hint="With one SKILL.md; at most 10 MiB.">
        {(props) => (
          <FileInput {...props} accept=".zip" onChange={(event) => setFile(event.target.files?.[0])} />
        )}
      </Field>
      <label className="flex items-center gap-2">
        <input type="checkbox" checked={replace} onChange={(event) => setReplace(event.target.checked)} />
        Replace the skill that has its name
      </label>
      {send.error && <ErrorNote what="The package was not taken" error={send.error} />}
      <div>
        <Button type="submit" disabled={!file || send.isPending}>
          Upload
        </Button>
      </div>
    </form>
  );
}

function FromText({ onMade }: Props) {
  const [body, setBody] = useState({ name: "", description: "", skill_md_content: "" });
  const set = (change: Partial<typeof body>) => setBody((before) => ({ ...before, ...change }));
  const outlines = useQuery({
    queryKey: ["skills", "outlines"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/skills/templates", { signal })),
  });
  const create = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/skills", { body })),
    onSuccess: useMade(onMade),
  });
  const fields = create.error ? asApiError(create.error).fields : {};
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate();
      }}
    >
      <h3 className="font-medium">Written here</h3>
      <div className="flex flex-wrap items-center gap-2 text-xs text-muted">
        Begin with
        {outlines.data?.items.map((outline) => (
          <Button
            key={outline.name}
            small
            title={outline.description}
            onClick={() => set({ skill_md_content: outline.skill_md_content })}
          >
            {outline.name}
          </Button>
        ))}
      </div>
      <Field label="Name" error={fields.name} hint="Small letters, digits and single hyphens.">
        {(props) => (
          <Input {...props} value={body.name} onChange={(event) => set({ name: event.target.value })} />
        )}
      </Field>
      <Field label="Description" error={fields.description} hint="When an agent should read it.">
        {(props) => (
          <Input
            {...props}
            value={body.description}
            onChange={(event) => set({ description: event.target.value })}
          />
        )}
      </Field>
      <Field label="SKILL.md" error={fields.skill_md_content}>
        {(props) => (
          <textarea
            {...props}
            rows={10}
            spellCheck={false}
            value={body.skill_md_content}
            onChange={(event) => set({ skill_md_content: event.target.value })}
            className={cx(inputClass, "h-auto py-1 font-mono text-xs")}
          />
        )}
      </Field>
      {create.error && Object.keys(fields).length === 0 && (
        <ErrorNote what="The skill was not made" error={create.error} />
      )}
      <div>
        <Button type="submit" disabled={!body.name || !body.skill_md_content || create.isPending}>
          Create
        </Button>
      </div>
    </form>
  );
}
