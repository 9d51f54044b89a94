import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Field, Input } from "@/components/field";
import { Id } from "@/components/id";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Bytes, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { mebibytes, percent } from "@/lib/format";
import { quote } from "@/lib/shell";

type Volume = Schemas["Volume"];

interface Props {
  name: string;
  /** An admin names the owner; others have their own alone. */
  owner?: string;
  onClose: () => void;
}

export function VolumeDetails({ name, owner, onClose }: Props) {
  const params = { path: { name }, query: { owner } };
  const volume = useQuery({
    queryKey: ["volumes", "one", owner, name],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/volumes/{name}", { params, signal })),
  });
  return (
    <SidePanel
      title={<span className="font-mono">{name}</span>}
      label={`The volume ${name}`}
      onClose={onClose}
    >
      {volume.error && <ErrorNote what="The volume cannot be shown" error={volume.error} />}
      {volume.isPending && <Loading />}
      {volume.data && <Details volume={volume.data} owner={owner} onClose={onClose} />}
    </SidePanel>
  );
}

function Details({ volume, owner, onClose }: { volume: Volume; owner?: string; onClose: () => void }) {
  const { scope } = useSignedIn();
  const { name, used_bytes: used, disk_mb, attached_to } = volume;
  return (
    <>
      <Facts>
        <Fact name="Owner">{volume.user_name}</Fact>
        <Fact name="Tenant">{volume.tenant_id}</Fact>
        <Fact name="Holds">
          {used != null && (
            <>
              <Bytes count={used} /> of {mebibytes(disk_mb)} ({percent(used / (disk_mb * 1024 * 1024))})
            </>
          )}
        </Fact>
        <Fact name="Made">
          <Time at={volume.created_at} suffix=" ago" />
        </Fact>
        <Fact name="Attached to">
          {attached_to?.length ? (
            <span className="flex flex-wrap gap-2">
              {attached_to.map((id) => (
                <Id key={id} id={id} to={`/sandboxes/${id}`} />
              ))}
            </span>
          ) : (
            <span className="text-muted">no sandbox</span>
          )}
        </Fact>
      </Facts>
      <CopyLine text={`atoll create --volume ${quote(name)}:/mnt/${name}`} />
      {scope !== "read_only" && (
        <>
          <Resize volume={volume} owner={owner} />
          <Delete volume={volume} owner={owner} onClose={onClose} />
        </>
      )}
    </>
  );
}

function Resize({ volume, owner }: { volume: Volume; owner?: string }) {
  const client = useQueryClient();
  const [disk, setDisk] = useState(String(volume.disk_mb));
  const params = { path: { name: volume.name }, query: { owner } };
  const resize = useMutation({
    mutationFn: () =>
      unwrap(api.PATCH("/api/v1/volumes/{name}", { params, body: { disk_mb: Number(disk) } })),
    onSuccess: () => {
      notify(`${volume.name} may hold ${mebibytes(Number(disk))}`);
      void client.invalidateQueries({ queryKey: ["volumes"] });
    },
  });
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        resize.mutate();
      }}
    >
      <div className="flex items-start gap-2">
        <Field label="Limit in MiB" hint="Applies at once, never below what it holds." className="flex-1">
          {(props) => (
            <Input
              {...props}
              type="number"
              min={1}
              required
              value={disk}
              onChange={(event) => setDisk(event.target.value)}
            />
          )}
        </Field>
        <Button
          type="submit"
          className="mt-5"
          disabled={Number(disk) === volume.disk_mb || !disk || resize.isPending}
        >
          Resize
        </Button>
      </div>
      {resize.error && <ErrorNote what="The limit was not changed" error={resize.error} />}
    </form>
  );
}

function Delete({ volume, owner, onClose }: { volume: Volume; owner?: string; onClose: () => void }) {
  const client = useQueryClient();
  const [asks, setAsks] = useState(false);
  const attached = volume.attached_to?.length ?? 0;
  const params = { path: { name: volume.name }, query: { owner } };
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/volumes/{name}", { params })),
    meta: { failed: `The volume ${volume.name} was not deleted` },
    onSuccess: () => {
      notify(`The volume ${volume.name} was deleted`);
      onClose();
      void client.invalidateQueries({ queryKey: ["volumes"] });
    },
    onSettled: () => setAsks(false),
  });
  return (
    <div>
      <Button
        kind="danger"
        icon={<Trash2 size={14} />}
        disabled={attached > 0}
        title={attached > 0 ? "A sandbox has it; destroy that first" : undefined}
        onClick={() => setAsks(true)}
      >
        Delete
      </Button>
      <Confirm
        open={asks}
        title={`Delete the volume ${volume.name}?`}
        verb="Delete"
        busy={remove.isPending}
        onConfirm={() => remove.mutate()}
        onClose={() => setAsks(false)}
      >
        All that it holds is lost{volume.used_bytes ? <>: {<Bytes count={volume.used_bytes} />}</> : null}.
      </Confirm>
    </div>
  );
}
