import { useMutation, useQueryClient } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { CopyAs } from "@/components/copy-as";
import { shortId } from "@/components/id";
import { Bytes, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { curl } from "@/lib/shell";
import { Diff } from "./diff";
import { Label } from "./label";

type Snapshot = Schemas["SnapshotItem"];

interface Props {
  snapshot: Snapshot;
  others: Snapshot[];
  readOnly: boolean;
  open: boolean;
  onToggle: (open: boolean) => void;
}

const KINDS: Record<Snapshot["kind"], string> = {
  manual: "made on request",
  automatic: "made by itself",
  before_rollback: "before a rollback",
};

export function SnapshotRow({ snapshot, others, readOnly, open, onToggle }: Props) {
  const Chevron = open ? ChevronDown : ChevronRight;
  return (
    <li className="border-b last:border-b-0">
      <button
        type="button"
        aria-expanded={open}
        onClick={() => onToggle(!open)}
        className="flex min-h-9 w-full items-center gap-2 px-3 text-left hover:bg-raised"
      >
        <Chevron size={14} className="shrink-0" />
        <span className="size-2 shrink-0 rounded border border-accent" aria-hidden="true" />
        <span className="font-mono text-xs">{shortId(snapshot.id)}</span>
        <span className="min-w-0 flex-1 truncate">{snapshot.label ?? ""}</span>
        <span className="text-xs text-muted max-md:hidden">{KINDS[snapshot.kind]}</span>
        {snapshot.kernels.length > 0 && (
          <span className="text-xs text-muted max-md:hidden">with variables</span>
        )}
        <span className="w-20 text-right text-xs text-muted">
          <Bytes count={snapshot.size_bytes} />
        </span>
        <span className="w-14 text-right text-xs text-muted">
          <Time at={snapshot.created_at} />
        </span>
      </button>
      {open && (
        <div className="flex flex-col gap-2 px-3 pb-3 pl-9">
          {snapshot.made_before && <MadeBefore snapshot={snapshot} />}
          {!readOnly && <SnapshotActions snapshot={snapshot} />}
          <Diff snapshot={snapshot} others={others} />
        </div>
      )}
    </li>
  );
}

function MadeBefore({ snapshot }: { snapshot: Snapshot }) {
  const { sandbox_id, made_before, kind } = snapshot;
  if (kind === "before_rollback") {
    return (
      <p className="text-xs text-muted">The files before the rollback to {shortId(made_before ?? "")}.</p>
    );
  }
  return (
    <p className="text-xs text-muted">
      The files before{" "}
      <Link
        to={`/sandboxes/${sandbox_id}/commands?exec=${made_before}`}
        className="font-mono text-accent-text hover:underline"
      >
        {shortId(made_before ?? "")}
      </Link>{" "}
      ran.
    </p>
  );
}

function SnapshotActions({ snapshot }: { snapshot: Snapshot }) {
  const { sandbox_id: sandbox, id } = snapshot;
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asks, setAsks] = useState<"delete" | "rollback">();
  const [kernels, setKernels] = useState(false);
  const params = { path: { id: sandbox, sid: id } };
  const path = `/api/v1/sandboxes/${sandbox}/snapshots/${id}`;
  const again = () => refreshSandbox(client, sandbox);
  const rollback = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/snapshots/{sid}/rollback", {
          params,
          body: { kernels, keep_before: true },
        }),
      ),
    onSuccess: () => notify("The files are what they were", "What was undone is a snapshot too."),
    onSettled: () => {
      setAsks(undefined);
      return again();
    },
    meta: { failed: "The sandbox was not rolled back" },
  });
  const fork = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/fork", {
          params: { path: { id: sandbox } },
          body: { snapshot: id },
        }),
      ),
    onSuccess: (made) => {
      notify("This is the fork: another sandbox with the files of then");
      void navigate(`/sandboxes/${made.id}`);
    },
    meta: { failed: "The snapshot was not forked" },
  });
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/sandboxes/{id}/snapshots/{sid}", { params })),
    onSettled: () => {
      setAsks(undefined);
      return again();
    },
    meta: { failed: "The snapshot was not deleted" },
  });
  return (
    <div className="flex flex-wrap items-center gap-1">
      <Button small onClick={() => setAsks("rollback")}>
        Roll back to it
      </Button>
      <Button small disabled={fork.isPending} onClick={() => fork.mutate()}>
        Fork from it
      </Button>
      <Label snapshot={snapshot} />
      <Button small kind="danger" onClick={() => setAsks("delete")}>
        Delete
      </Button>
      <CopyAs
        more={{
          "Roll back": {
            cli: `atoll snapshot rollback ${sandbox} ${id}`,
            curl: curl("POST", `${path}/rollback`, { keep_before: true }),
          },
          Fork: {
            cli: `atoll fork ${sandbox} --snapshot ${id}`,
            curl: curl("POST", `/api/v1/sandboxes/${sandbox}/fork`, { snapshot: id }),
          },
          Delete: { cli: `atoll snapshot rm ${sandbox} ${id}`, curl: curl("DELETE", path) },
        }}
      />
      <Confirm
        open={asks === "delete"}
        title="Delete this snapshot?"
        verb="Delete"
        busy={remove.isPending}
        onClose={() => setAsks(undefined)}
        onConfirm={() => remove.mutate()}
      >
        The files as they were then are lost. The sandbox keeps those that it has now.
      </Confirm>
      <Confirm
        open={asks === "rollback"}
        title="Roll back to this snapshot?"
        verb={rollback.isPending ? "Rolling back…" : "Roll back"}
        busy={rollback.isPending}
        onClose={() => setAsks(undefined)}
        onConfirm={() => rollback.mutate()}
      >
        <p>
          Commands, terminals and kernels that run end. The files as they are now are kept in another
          snapshot, so this can be undone.
        </p>
        {snapshot.kernels.length > 0 && (
          <label className="mt-2 flex items-center gap-1.5">
            <input
              type="checkbox"
              className="accent-accent"
              checked={kernels}
              onChange={(event) => setKernels(event.target.checked)}
            />
            bring back the variables of its kernels too
          </label>
        )}
      </Confirm>
    </div>
  );
}
