// The skills of a sandbox: packages of instructions and files below /workspace/skills.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, unwrap } from "@/api/client";
import { refreshSandbox, sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, Panel } from "@/components/page";
import { Bytes, Time } from "@/components/time";
import { notify, notifyError } from "@/components/toast";
import { useSandboxId } from "../queries";

export default function Skills() {
  const id = useSandboxId();
  const client = useQueryClient();
  const readOnly = useSignedIn().scope === "read_only";
  const installed = useQuery(sandboxQuery(id)).data?.skills ?? [];
  const known = useQuery({
    queryKey: ["skills"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/skills", { params: { query: { limit: 100 } }, signal })),
  });
  const install = useMutation({
    mutationFn: (skill: string) =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/skills", {
          params: { path: { id } },
          body: { skill_ids: [skill] },
        }),
      ),
    onSuccess: (done) => {
      const wrong = done.extraction_errors[0];
      if (wrong) notifyError("The skill was not installed", new Error(wrong.message));
      else notify(done.installed.length > 0 ? "The skill is installed" : "It was installed already");
      return refreshSandbox(client, id);
    },
    meta: { failed: "The skill was not installed" },
  });
  const have = new Set(installed.map((skill) => skill.id));
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      <Panel title="Installed">
        {installed.length === 0 && <p className="p-3 text-muted">No skill is installed in this sandbox.</p>}
        {installed.map((skill) => (
          <p key={skill.name} className="flex min-h-9 items-center gap-3 border-b px-3 last:border-b-0">
            <Link
              to={`/sandboxes/${id}/files?path=${encodeURIComponent(`/workspace/skills/${skill.name}`)}`}
              className="flex-1 truncate text-accent-text hover:underline"
            >
              {skill.name}
            </Link>
            <span className="text-xs text-muted">
              installed <Time at={skill.installed_at} suffix=" ago" />
            </span>
          </p>
        ))}
      </Panel>
      <Panel title="Can be installed">
        {known.error && <ErrorNote what="The skills cannot be listed" error={known.error} />}
        {known.isPending && <Loading />}
        {known.data?.items.length === 0 && (
          <Empty title="You have no skills yet" command="atoll skill add FOLDER">
            A skill is a folder with a SKILL.md: instructions for an agent, and the files that they need.
          </Empty>
        )}
        {known.data?.items
          .filter((skill) => !have.has(skill.id))
          .map((skill) => (
            <div
              key={skill.id}
              className="flex min-h-9 items-center gap-3 border-b px-3 py-1 last:border-b-0"
            >
              <div className="min-w-0 flex-1">
                <p className="truncate">{skill.name}</p>
                <p className="truncate text-xs text-muted">{skill.description}</p>
              </div>
              <span className="text-xs text-muted">
                {skill.files} files, <Bytes count={skill.package_size_bytes} />
              </span>
              {!readOnly && (
                <Button small disabled={install.isPending} onClick={() => install.mutate(skill.id)}>
                  Install
                </Button>
              )}
            </div>
          ))}
      </Panel>
    </div>
  );
}
