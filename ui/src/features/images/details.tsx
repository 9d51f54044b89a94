import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, Trash2 } from "lucide-react";
import { useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button, buttonClass } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Id } from "@/components/id";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Bytes, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { mebibytes } from "@/lib/format";
import { quote } from "@/lib/shell";
import { PushForm } from "./push";
import { fullName, type Image, imageQuery } from "./queries";

export function ImageDetails({ image: id, onClose }: { image: string; onClose: () => void }) {
  const { scope } = useSignedIn();
  const query = useQuery(imageQuery(id));
  const image = query.data;
  return (
    <SidePanel
      title={<span className="font-mono">{image ? fullName(image) : id}</span>}
      label={`The image ${image ? fullName(image) : id}`}
      onClose={onClose}
    >
      {query.error && <ErrorNote what="The image cannot be shown" error={query.error} />}
      {query.isPending && <Loading />}
      {image && (
        <>
          {image.description && <p>{image.description}</p>}
          <About image={image} />
          {scope === "admin" && !image.is_builtin && <Actions image={image} onClose={onClose} />}
          <CopyLine text={`atoll create --image ${quote(fullName(image))}`} />
          {scope === "admin" && !image.is_builtin && <PushForm image={image} />}
          <Packages packages={image.packages ?? []} />
        </>
      )}
    </SidePanel>
  );
}

function About({ image }: { image: Image }) {
  const { memory_mb, cpu_cores, disk_mb } = image;
  const limits = [
    cpu_cores && `${cpu_cores} cores`,
    memory_mb && mebibytes(memory_mb),
    disk_mb && `${mebibytes(disk_mb)} disk`,
  ];
  return (
    <Facts>
      <Fact name="Id">{!image.is_builtin && <Id id={image.id} />}</Fact>
      <Fact name="Digest">
        {image.digest && <code className="font-mono text-xs break-all">{image.digest}</code>}
      </Fact>
      <Fact name="Source">{image.source}</Fact>
      <Fact name="Tags">{image.tags.join(", ")}</Fact>
      <Fact name="Other names">{image.aliases.join(", ")}</Fact>
      <Fact name="Size">{image.size_bytes != null && <Bytes count={image.size_bytes} />}</Fact>
      <Fact name="Made">{image.created_at && <Time at={image.created_at} suffix=" ago" />}</Fact>
      <Fact name="Default limits">{limits.filter(Boolean).join(", ")}</Fact>
      <Fact name="User">{image.user}</Fact>
      <Fact name="Folder">{image.working_directory}</Fact>
      <Fact name="Starts">{image.start_command}</Fact>
      <Fact name="Ready when">{image.ready_check}</Fact>
      <Fact name="Variables">
        {Object.keys(image.env_vars).length > 0 && (
          <code className="font-mono text-xs break-all">
            {Object.entries(image.env_vars)
              .map(([name, value]) => `${name}=${value}`)
              .join(" ")}
          </code>
        )}
      </Fact>
      <Fact name="Pool">
        {image.warm_pool_max > 0 && `${image.warm_pool_min} to ${image.warm_pool_max} are kept ready`}
      </Fact>
      <Fact name="Used by">
        {image.used_by && image.used_by.length > 0 && (
          <span className="flex flex-wrap gap-2">
            {image.used_by.map((id) => (
              <Id key={id} id={id} to={`/sandboxes/${id}`} />
            ))}
          </span>
        )}
      </Fact>
    </Facts>
  );
}

function Actions({ image, onClose }: { image: Image; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asks, setAsks] = useState(false);
  const name = fullName(image);
  const params = { path: { image: image.id } };
  const again = () => void client.invalidateQueries({ queryKey: ["images"] });
  const approve = useMutation({
    mutationFn: () =>
      unwrap(api.PATCH("/api/v1/sandbox-images/{image}", { params, body: { approved: !image.approved } })),
    meta: { failed: `${name} was not changed` },
    onSuccess: again,
  });
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/sandbox-images/{image}", { params })),
    meta: { failed: `The image ${name} was not removed` },
    onSuccess: () => {
      notify(`The image ${name} was removed`);
      onClose();
      void navigate("/images");
      again();
    },
    onSettled: () => setAsks(false),
  });
  const used = image.used_by?.length ?? 0;
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Button disabled={approve.isPending} onClick={() => approve.mutate()}>
        {image.approved ? "Take the approval back" : "Approve"}
      </Button>
      <a
        className={buttonClass()}
        href={`/api/v1/sandbox-images/${image.id}/export`}
        download={`${image.name.replaceAll("/", "-")}.tar`}
      >
        <Download size={14} /> Export
      </a>
      <Button
        kind="danger"
        icon={<Trash2 size={14} />}
        disabled={used > 0}
        title={used > 0 ? "Sandboxes use it; destroy them first" : undefined}
        onClick={() => setAsks(true)}
      >
        Remove
      </Button>
      <Confirm
        open={asks}
        title={`Remove the image ${name}?`}
        verb="Remove"
        busy={remove.isPending}
        onConfirm={() => remove.mutate()}
        onClose={() => setAsks(false)}
      >
        Its files are removed from this machine. It can be built, pulled or imported again.
      </Confirm>
    </div>
  );
}

function Packages({ packages }: { packages: Schemas["PackageVersion"][] }) {
  if (packages.length === 0) return null;
  return (
    <details className="rounded border bg-surface">
      <summary className="cursor-pointer px-3 py-2">{packages.length} packages with exact versions</summary>
      <ul className="max-h-80 overflow-y-auto border-t px-3 py-2 font-mono text-xs">
        {packages.map((each) => (
          <li key={`${each.manager} ${each.name}`} className="flex gap-3">
            <span className="w-14 text-muted">{each.manager}</span>
            <span className="flex-1 break-all">{each.name}</span>
            <span className="break-all">{each.version}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
