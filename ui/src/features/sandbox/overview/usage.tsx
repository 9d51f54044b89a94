import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ErrorNote } from "@/components/error-note";
import { Loading, Panel } from "@/components/page";
import { bytes, duration } from "@/lib/format";
import { visible } from "@/lib/plain-text";
import { metrics, operations } from "../queries";
import { Chart, type Mark } from "./chart";

const cores = (value: number) => `${value.toFixed(value < 0.1 ? 3 : 2)} cores`;

/** CPU, memory and disk of the last hour, with a mark where each command began. */
export function Usage({ sandbox, cpuLimit }: { sandbox: string; cpuLimit: number }) {
  const { data, error } = useQuery(metrics(sandbox));
  // The audit trail knows commands of earlier starts too, and is read without waking a sandbox that is paused.
  const commands = useQuery(operations(sandbox));
  const series = useMemo(() => {
    const history = data?.history ?? [];
    const all = data?.now ? [...history, data.now] : history;
    return {
      times: all.map((sample) => new Date(sample.at).getTime() / 1000),
      cpu: all.map((sample) => sample.cpu_cores ?? null),
      memory: all.map((sample) => sample.memory_bytes ?? null),
      disk: all.map((sample) => sample.disk_bytes ?? null),
    };
  }, [data]);
  const marks = useMemo(
    () =>
      (commands.data ?? []).map(
        ({ at, detail, ended }): Mark => ({
          at: new Date(at).getTime() / 1000,
          label: visible(detail).slice(0, 60),
          bad: ended != null && ended.outcome !== "ok",
        }),
      ),
    [commands.data],
  );
  if (error) return <ErrorNote what="The usage cannot be shown" error={error} />;
  if (!data) return <Loading />;
  const shared = { times: series.times, marks };
  const { now } = data;
  return (
    <Panel
      title="Usage"
      actions={
        <span className="text-xs text-muted">
          a sample every {duration(data.interval_seconds * 1000)} · ┆ where a command began
        </span>
      }
    >
      {series.times.length < 2 ? (
        <p className="p-3 text-muted">
          {now
            ? "The second sample is on its way."
            : "The sandbox does not run, so it uses nothing but its disk."}
        </p>
      ) : (
        <div className="grid divide-x max-lg:divide-x-0 max-lg:divide-y lg:grid-cols-3">
          <Chart {...shared} title="CPU" values={series.cpu} limit={cpuLimit} write={cores} />
          <Chart
            {...shared}
            title="Memory"
            values={series.memory}
            limit={now?.memory_limit_bytes ?? undefined}
            write={bytes}
            base={2}
          />
          <Chart
            {...shared}
            title="Disk"
            values={series.disk}
            limit={now?.disk_limit_bytes ?? undefined}
            write={bytes}
            base={2}
          />
        </div>
      )}
      {now && (
        <p className="flex flex-wrap gap-x-4 border-t px-3 py-1.5 text-xs text-muted">
          <span>
            {now.processes ?? "?"} of {now.processes_limit ?? "?"} processes
          </span>
          {now.memory_peak_bytes != null && <span>memory at most {bytes(now.memory_peak_bytes)}</span>}
          {now.cpu_throttled_seconds != null && now.cpu_throttled_seconds > 0 && (
            <span>held back by its CPU limit for {duration(now.cpu_throttled_seconds * 1000)}</span>
          )}
          {(now.oom_kills ?? 0) > 0 && <span className="text-danger">{now.oom_kills} ended for memory</span>}
          {(now.socket_kills ?? 0) > 0 && (
            <span className="text-danger">commands ended {now.socket_kills} times for memory of sockets</span>
          )}
        </p>
      )}
    </Panel>
  );
}
