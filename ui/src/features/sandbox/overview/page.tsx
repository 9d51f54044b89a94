import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Schemas } from "@/api/client";
import { sandbox as sandboxQuery } from "@/api/queries";
import { CommandRow } from "@/components/command-row";
import { CopyLine } from "@/components/copy-as";
import { Panel } from "@/components/page";
import { Bytes, Time } from "@/components/time";
import { duration, mebibytes } from "@/lib/format";
import { useExecs, useSandboxId } from "../queries";
import { Usage } from "./usage";

const SHOWN = 6;

export default function Overview() {
  const id = useSandboxId();
  const { data } = useQuery(sandboxQuery(id));
  const commands = useExecs(id);
  if (!data) return null;
  const last = commands.data?.slice(0, SHOWN) ?? [];
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      <Usage sandbox={id} cpuLimit={data.cpu_cores} />
      <Panel
        title="Last commands"
        actions={
          <Link to={`/sandboxes/${id}/commands`} className="text-xs text-accent-text hover:underline">
            all commands
          </Link>
        }
      >
        {last.length === 0 ? (
          <div className="flex flex-wrap items-center gap-2 p-3 text-muted">
            No command is remembered. The first one:
            <CopyLine text={`atoll exec ${id} --shell 'echo hello'`} />
          </div>
        ) : (
          last.map((exec) => <CommandRow key={exec.exec_id} sandbox={id} exec={exec} />)
        )}
      </Panel>
      <Panel title="Facts">
        <Facts sandbox={data} />
      </Panel>
    </div>
  );
}

function Facts({ sandbox }: { sandbox: Schemas["Sandbox"] }) {
  const { filesystem, volumes } = sandbox;
  const rules = [
    ...(filesystem.read_only ?? []).map((path) => `${path} read-only`),
    ...(filesystem.read_write ?? []).map((path) => `${path} writable`),
    ...(filesystem.blocked ?? []).map((path) => `${path} blocked`),
  ];
  return (
    <dl className="grid gap-x-8 gap-y-1 p-3 sm:grid-cols-2 lg:grid-cols-3">
      <Fact name="Owner">{sandbox.user_name}</Fact>
      <Fact name="Profile">{sandbox.profile}</Fact>
      <Fact name="Made">
        <Time at={sandbox.created_at} suffix=" ago" />
      </Fact>
      <Fact name="Last used">
        <Time at={sandbox.last_activity_at} suffix=" ago" />
      </Fact>
      <Fact name="Paused when idle for">{duration(sandbox.idle_timeout_seconds * 1000)}</Fact>
      {sandbox.max_lifetime_seconds != null && (
        <Fact name="Lives at most">{duration(sandbox.max_lifetime_seconds * 1000)}</Fact>
      )}
      <Fact name="Limits">
        CPU {sandbox.cpu_cores}, {mebibytes(sandbox.memory_mb)} memory, {mebibytes(sandbox.disk_mb)} disk
      </Fact>
      <Fact name="Network">{sandbox.egress?.mode ?? "none"}</Fact>
      <Fact name="Commands">
        {sandbox.exec_count}, {duration(sandbox.exec_total_ms)} in all
      </Fact>
      <Fact name="Moved">
        <Bytes count={sandbox.bytes_uploaded} /> in, <Bytes count={sandbox.bytes_downloaded} /> out
      </Fact>
      {sandbox.session_key && <Fact name="Session key">{sandbox.session_key}</Fact>}
      {volumes.map((volume) => (
        <Fact key={volume.path} name="Volume">
          {volume.name} at {volume.path}
          {volume.read_only && ", read-only"}
        </Fact>
      ))}
      {rules.length > 0 && <Fact name="Paths">{rules.join(", ")}</Fact>}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex min-w-0 gap-2">
      <dt className="w-36 shrink-0 text-muted">{name}</dt>
      <dd className="min-w-0 break-words">{children}</dd>
    </div>
  );
}
