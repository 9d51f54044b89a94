// The snapshots of a sandbox as a timeline, the newest first: what differs from now, rollback, fork, label, delete.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Camera } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { refreshSandbox, sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Input, Select } from "@/components/field";
import { Loading, Panel } from "@/components/page";
import { notify } from "@/components/toast";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { snapshots, useSandboxId } from "../queries";
import { Forks } from "./forks";
import { SnapshotRow } from "./snapshot-row";

export default function Snapshots() {
  const id = useSandboxId();
  const readOnly = useSignedIn().scope === "read_only";
  const { data, error, refetch } = useQuery(snapshots(id));
  const [at, go] = useAddress();
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      {!readOnly && <Make sandbox={id} />}
      {error && (
        <ErrorNote what="The snapshots cannot be listed" error={error} retry={() => void refetch()} />
      )}
      <Panel title="Timeline" actions={!readOnly && <Automatic sandbox={id} />}>
        {!data && !error && <Loading />}
        {data?.items.length === 0 && (
          <Empty title="No snapshot yet" command={`atoll snapshot create ${id} --label good`}>
            A snapshot is the files as they are at one moment. A rollback makes them that again, a fork makes
            another sandbox of them.
          </Empty>
        )}
        <ol aria-label="Snapshots">
          {data?.items.map((snapshot) => (
            <SnapshotRow
              key={snapshot.id}
              snapshot={snapshot}
              others={data.items}
              readOnly={readOnly}
              open={at("snapshot") === snapshot.id}
              onToggle={(open) => go({ snapshot: open ? snapshot.id : "", to: "" })}
            />
          ))}
        </ol>
      </Panel>
      <Forks sandbox={id} />
    </div>
  );
}

function Make({ sandbox }: { sandbox: string }) {
  const client = useQueryClient();
  const [label, setLabel] = useState("");
  const [kernels, setKernels] = useState(false);
  const body = { kernels, ...(label && { label }) };
  const make = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/sandboxes/{id}/snapshots", { params: { path: { id: sandbox } }, body })),
    onSuccess: () => {
      setLabel("");
      notify("The snapshot is made");
      return refreshSandbox(client, sandbox);
    },
    meta: { failed: "The snapshot was not made" },
  });
  return (
    <form
      className="flex flex-wrap items-center gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        make.mutate();
      }}
    >
      <Input
        aria-label="Label"
        placeholder="Label, such as: before the upgrade"
        value={label}
        onChange={(event) => setLabel(event.target.value)}
        className="max-w-80 min-w-40 flex-1"
      />
      <label className="flex items-center gap-1.5 text-xs">
        <input
          type="checkbox"
          className="accent-accent"
          checked={kernels}
          onChange={(event) => setKernels(event.target.checked)}
        />
        with the variables of Python kernels
      </label>
      <Button type="submit" kind="primary" icon={<Camera size={14} />} disabled={make.isPending}>
        {make.isPending ? "Making…" : "Make a snapshot"}
      </Button>
      <CopyAs
        cli={`atoll snapshot create ${sandbox}${label ? ` --label ${quote(label)}` : ""}${kernels ? " --kernels" : ""}`}
        curl={curl("POST", `/api/v1/sandboxes/${sandbox}/snapshots`, body)}
      />
    </form>
  );
}

/** When the server makes snapshots by itself. */
function Automatic({ sandbox }: { sandbox: string }) {
  const client = useQueryClient();
  const { data } = useQuery(sandboxQuery(sandbox));
  const change = useMutation({
    mutationFn: (auto_snapshot: Schemas["Sandbox"]["auto_snapshot"]) =>
      unwrap(
        api.PATCH("/api/v1/sandboxes/{id}", { params: { path: { id: sandbox } }, body: { auto_snapshot } }),
      ),
    onSuccess: (after) => client.setQueryData(["sandbox", sandbox], after),
    meta: { failed: "It was not changed" },
  });
  if (!data) return null;
  return (
    <div className="flex items-center gap-2 text-xs text-muted">
      <span className="whitespace-nowrap max-md:hidden">by itself:</span>
      <Select
        aria-label="When the server makes snapshots by itself"
        value={data.auto_snapshot}
        disabled={change.isPending}
        onChange={(event) => change.mutate(event.target.value as Schemas["Sandbox"]["auto_snapshot"])}
        className="h-7 w-auto text-xs"
      >
        <option value="off">never</option>
        <option value="before_exec">before each command</option>
        <option value="before_run">before each cell</option>
      </Select>
    </div>
  );
}
