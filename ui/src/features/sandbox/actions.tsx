// What can be done with the sandbox as a whole, for its present status.
import { Menu } from "@base-ui/react/menu";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Download, Ellipsis, Trash2 } from "lucide-react";
import { useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button, buttonClass } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { CopyAs } from "@/components/copy-as";
import { MenuItem, MenuPopup } from "@/components/menu";
import { notify } from "@/components/toast";
import { curl } from "@/lib/shell";

type Verb = "pause" | "resume" | "stop";

const SAID: Record<Verb, string> = { pause: "paused", resume: "resumed", stop: "stopped" };

function commands(id: string) {
  const path = `/api/v1/sandboxes/${id}`;
  return {
    cli: `atoll inspect ${id}`,
    curl: curl("GET", path),
    more: {
      Pause: { cli: `atoll pause ${id}`, curl: curl("POST", `${path}/pause`) },
      Resume: { cli: `atoll resume ${id}`, curl: curl("POST", `${path}/resume`) },
      Stop: { cli: `atoll stop ${id}`, curl: curl("POST", `${path}/stop`) },
      Fork: { cli: `atoll fork ${id}`, curl: curl("POST", `${path}/fork`, {}) },
      Download: {
        cli: `atoll export ${id} -o ${id}.tar`,
        curl: `${curl("GET", `${path}/export`)} -o ${id}.tar`,
      },
      Delete: { cli: `atoll rm ${id}`, curl: curl("DELETE", path) },
    },
  };
}

export function Actions({ sandbox }: { sandbox: Schemas["Sandbox"] }) {
  const { id, status } = sandbox;
  const client = useQueryClient();
  const navigate = useNavigate();
  const readOnly = useSignedIn().scope === "read_only";
  const [removing, setRemoving] = useState(false);
  const params = { path: { id } };
  const change = useMutation({
    mutationFn: (verb: Verb) => unwrap(api.POST(`/api/v1/sandboxes/{id}/${verb}`, { params })),
    onSuccess: (after, verb) => {
      client.setQueryData(["sandbox", id], after);
      notify(`The sandbox is ${SAID[verb]}`);
    },
    meta: { failed: "The sandbox was not changed" },
  });
  const fork = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/sandboxes/{id}/fork", { params, body: {} })),
    onSuccess: (made) => {
      notify("This is the fork: another sandbox with the same files");
      void navigate(`/sandboxes/${made.id}`);
    },
    meta: { failed: "The sandbox was not forked" },
  });
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/sandboxes/{id}", { params })),
    onSuccess: () => {
      notify("The sandbox is deleted");
      void navigate("/sandboxes");
    },
    meta: { failed: "The sandbox was not deleted" },
  });
  const alive = status === "running" || status === "paused";
  const copy = <CopyAs {...commands(id)} />;
  if (status === "destroyed") return copy;
  const verb = (name: Verb, title: string) => (
    <Button small disabled={change.isPending} onClick={() => change.mutate(name)}>
      {title}
    </Button>
  );
  return (
    <div className="flex flex-wrap items-center gap-1">
      {copy}
      {!readOnly && (
        <>
          {status === "running" && verb("pause", "Pause")}
          {(status === "paused" || status === "stopped") && verb("resume", "Resume")}
          {alive && verb("stop", "Stop")}
          <Button small disabled={fork.isPending} onClick={() => fork.mutate()}>
            Fork
          </Button>
        </>
      )}
      <Menu.Root>
        <Menu.Trigger aria-label="More" className={buttonClass("quiet", true)}>
          <Ellipsis size={16} />
        </Menu.Trigger>
        <MenuPopup>
          <MenuItem render={<a href={`/api/v1/sandboxes/${id}/export`} download />}>
            <Download size={14} />
            Download as an archive
          </MenuItem>
          {!readOnly && (
            <MenuItem danger onClick={() => setRemoving(true)}>
              <Trash2 size={14} />
              Delete
            </MenuItem>
          )}
        </MenuPopup>
      </Menu.Root>
      <Confirm
        open={removing}
        title="Delete this sandbox?"
        verb="Delete"
        busy={remove.isPending}
        onClose={() => setRemoving(false)}
        onConfirm={() => remove.mutate()}
      >
        Its files, its snapshots and all that runs in it are lost. The audit trail stays.
      </Confirm>
    </div>
  );
}
