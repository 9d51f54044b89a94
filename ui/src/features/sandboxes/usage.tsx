// What a row shows of a sandbox's use: one request for the rows in view. Rows outside of it ask for nothing.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { Sparkline } from "@/components/sparkline";
import { cx } from "@/lib/cx";
import { bytes, mebibytes, percent } from "@/lib/format";
import { visible } from "@/lib/plain-text";
import type { Sandbox } from "./use-rows";

const SAMPLES = 24;
/** Ids of one request; more rows are in no view. */
const MOST = 200;
/** Rows that are only scrolled past are not asked for, in milliseconds. */
const REST = 150;

type Usages = ReadonlyMap<string, Schemas["SandboxUsageItem"]>;

const Shown = createContext<Usages>(new Map());
export const UsagesShown = Shown.Provider;

/** What there is to say of a sandbox beside its record. */
const hasUsage = ({ status, exec_count }: Sandbox) =>
  status === "running" || status === "paused" || exec_count > 0;

/** Read again when the server has a further sample, while one of them runs, and when an event is about sandboxes. */
export function useUsages(inView: Sandbox[]): Usages {
  const ids = inView
    .filter(hasUsage)
    .slice(0, MOST)
    .map(({ id }) => id)
    .join(",");
  const [asked, setAsked] = useState(ids);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(ids), REST);
    return () => clearTimeout(timer);
  }, [ids]);
  const running = inView.some(({ status }) => status === "running");
  const { data } = useQuery({
    queryKey: ["usage", asked],
    queryFn: ({ signal }) => {
      const query = { ids: asked, limit: SAMPLES };
      return unwrap(api.GET("/api/v1/usage", { params: { query }, signal }));
    },
    enabled: asked !== "",
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => {
      const interval = state.data?.find(({ metrics }) => metrics)?.metrics?.interval_seconds ?? 10;
      return running && Math.max(5, interval) * 1000;
    },
  });
  return new Map(data?.map((each) => [each.sandbox_id, each]));
}

const useMetrics = (sandbox: Sandbox) => useContext(Shown).get(sandbox.id)?.metrics;

export function Cpu({ sandbox }: { sandbox: Sandbox }) {
  const data = useMetrics(sandbox);
  const now = data?.now?.cpu_cores;
  const values = (data?.history ?? []).map((sample) => sample.cpu_cores ?? 0);
  if (sandbox.status !== "running") return <span className="text-muted">–</span>;
  return (
    <span className="flex items-center gap-2">
      <Sparkline values={values} most={sandbox.cpu_cores} label="Processor in the last minutes" />
      <span className="text-xs">{now == null ? "" : percent(now / sandbox.cpu_cores)}</span>
    </span>
  );
}

/** What is used of a limit; close to it, it says so. */
function Share({ used, limit }: { used: number | null | undefined; limit: number }) {
  const full = used != null && used > limit * 0.9;
  return (
    <span className={cx("text-xs", full && "text-warn")} title={full ? "More than 90 % is used" : undefined}>
      {used == null ? "–" : bytes(used)}
      <span className="text-muted"> / {mebibytes(limit / 1024 / 1024)}</span>
    </span>
  );
}

export function Memory({ sandbox }: { sandbox: Sandbox }) {
  const data = useMetrics(sandbox);
  return <Share used={data?.now?.memory_bytes} limit={sandbox.memory_mb * 1024 * 1024} />;
}

export function Disk({ sandbox }: { sandbox: Sandbox }) {
  const data = useMetrics(sandbox);
  const last = data?.now?.disk_bytes ?? data?.history.at(-1)?.disk_bytes;
  return <Share used={last} limit={sandbox.disk_mb * 1024 * 1024} />;
}

export function LastCommand({ sandbox }: { sandbox: Sandbox }) {
  const last = useContext(Shown).get(sandbox.id)?.last_command;
  if (!last) return <span className="text-muted">–</span>;
  return (
    <span className="flex items-center gap-2">
      <code className="min-w-0 truncate font-mono text-xs">{visible(last.detail)}</code>
      {last.exit_code != null && (
        <span className={cx("shrink-0 text-xs", last.exit_code === 0 ? "text-muted" : "text-danger")}>
          {last.exit_code}
        </span>
      )}
    </span>
  );
}
