import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, Trash2 } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button, buttonClass } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Field, inputClass } from "@/components/field";
import { Id } from "@/components/id";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Bytes, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { cx } from "@/lib/cx";

type Skill = Schemas["SkillItem"];

export function SkillDetails({ id, onClose }: { id: string; onClose: () => void }) {
  const { scope } = useSignedIn();
  const params = { path: { skill_id: id } };
  const query = useQuery({
    queryKey: ["skills", "one", id],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/skills/{skill_id}", { params, signal })),
  });
  const skill = query.data;
  const writable = scope !== "read_only";
  return (
    <SidePanel
      title={<span className="font-mono">{skill?.name ?? "Skill"}</span>}
      label={`The skill ${skill?.name ?? id}`}
      onClose={onClose}
    >
      {query.error && <ErrorNote what="The skill cannot be shown" error={query.error} />}
      {query.isPending && <Loading />}
      {skill && (
        <>
          <p>{skill.description}</p>
          <Facts>
            <Fact name="Id">
              <Id id={skill.id} />
            </Fact>
            <Fact name="Owner">{skill.user_name}</Fact>
            <Fact name="Files">{String(skill.files)}</Fact>
            <Fact name="Package">
              <Bytes count={skill.package_size_bytes} />
            </Fact>
            <Fact name="Digest">
              <code className="font-mono text-xs break-all">{skill.digest}</code>
            </Fact>
            <Fact name="Changed">
              <Time at={skill.updated_at} suffix=" ago" />
            </Fact>
          </Facts>
          <CopyLine text={`atoll skill install SANDBOX ${skill.name}`} />
          <div className="flex gap-2">
            <a
              className={buttonClass()}
              href={`/api/v1/skills/${skill.id}/package`}
              download={`${skill.name}.zip`}
            >
              <Download size={14} /> Package
            </a>
            {writable && <Delete skill={skill} onClose={onClose} />}
          </div>
          <Text key={skill.digest} skill={skill} writable={writable} />
        </>
      )}
    </SidePanel>
  );
}

/** The instructions, changed here. Sandboxes that have the skill keep what they have. */
function Text({ skill, writable }: { skill: Skill; writable: boolean }) {
  const client = useQueryClient();
  const [text, setText] = useState(skill.skill_md_content ?? "");
  const params = { path: { skill_id: skill.id } };
  const save = useMutation({
    mutationFn: () =>
      unwrap(api.PATCH("/api/v1/skills/{skill_id}", { params, body: { skill_md_content: text } })),
    onSuccess: () => {
      notify(`${skill.name} was changed`, "Sandboxes keep what they have until it is installed again.");
      void client.invalidateQueries({ queryKey: ["skills"] });
    },
  });
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <Field label="SKILL.md">
        {(props) => (
          <textarea
            {...props}
            rows={16}
            spellCheck={false}
            readOnly={!writable}
            value={text}
            onChange={(event) => setText(event.target.value)}
            className={cx(inputClass, "h-auto py-1 font-mono text-xs")}
          />
        )}
      </Field>
      {save.error && <ErrorNote what="The skill was not changed" error={save.error} />}
      {writable && (
        <div>
          <Button type="submit" disabled={text === skill.skill_md_content || save.isPending}>
            Save
          </Button>
        </div>
      )}
    </form>
  );
}

function Delete({ skill, onClose }: { skill: Skill; onClose: () => void }) {
  const client = useQueryClient();
  const [asks, setAsks] = useState(false);
  const remove = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/skills/{skill_id}", { params: { path: { skill_id: skill.id } } })),
    meta: { failed: `The skill ${skill.name} was not deleted` },
    onSuccess: () => {
      notify(`The skill ${skill.name} was deleted`);
      onClose();
      void client.invalidateQueries({ queryKey: ["skills"] });
    },
    onSettled: () => setAsks(false),
  });
  return (
    <>
      <Button kind="danger" icon={<Trash2 size={14} />} onClick={() => setAsks(true)}>
        Delete
      </Button>
      <Confirm
        open={asks}
        title={`Delete the skill ${skill.name}?`}
        verb="Delete"
        busy={remove.isPending}
        onConfirm={() => remove.mutate()}
        onClose={() => setAsks(false)}
      >
        Its package is lost. What sandboxes have installed of it stays.
      </Confirm>
    </>
  );
}
