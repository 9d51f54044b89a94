// Cells that run in a kernel of the sandbox: an interpreter that keeps its variables.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Square } from "lucide-react";
import { useState } from "react";
import { useSearchParams } from "react-router";
import { api, unwrap } from "@/api/client";
import { sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Select } from "@/components/field";
import { shortId } from "@/components/id";
import { Loading } from "@/components/page";
import { useSandboxId } from "../queries";
import { CellView } from "./cell-view";
import { fresh, useCells } from "./cells";
import { KernelSide } from "./kernel-side";
import { type Kernel, kernels, type Language, useKernel } from "./kernels";

const LANGUAGES: Language[] = ["python", "node", "r", "bash"];

export default function Notebook() {
  const id = useSandboxId();
  const readOnly = useSignedIn().scope === "read_only";
  const status = useQuery(sandboxQuery(id)).data?.status;
  const { data, error, isPending } = useQuery({ ...kernels(id), enabled: status === "running" });
  const [search, setSearch] = useSearchParams();
  const { cells, change, one, run } = useCells(id);
  const choose = (kernel: string) => setSearch({ kernel }, { replace: true });
  if (readOnly)
    return <Empty title="This key may only read">A cell can change what is in the sandbox.</Empty>;
  if (status && status !== "running") {
    return <Empty title={`The sandbox is ${status}, so no kernel runs`}>Resume it to run cells.</Empty>;
  }
  if (error) return <ErrorNote what="The kernels cannot be listed" error={error} />;
  if (isPending) return <Loading />;
  const kernel = data.find((each) => each.kernel_id === search.get("kernel")) ?? data[0];
  const busy = cells.some((cell) => cell.state === "waits" || cell.state === "runs");
  return (
    <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
      <KernelBar sandbox={id} all={data} kernel={kernel} busy={busy} onKernel={choose} />
      <div className="flex gap-4 p-4 max-lg:flex-col">
        <div className="flex min-w-0 flex-1 flex-col gap-3">
          {!kernel && (
            <p className="text-muted">No kernel runs yet. Start one above; then Shift+Enter runs a cell.</p>
          )}
          {cells.map((cell) => (
            <CellView
              key={cell.key}
              sandbox={id}
              cell={cell}
              language={kernel?.language ?? "python"}
              kernel={kernel?.kernel_id}
              onCode={(code) => one(cell.key, (before) => ({ ...before, code }))}
              onRun={(code) => kernel && void run(kernel.kernel_id, cell.key, code)}
              onRemove={() => change((before) => before.filter((each) => each.key !== cell.key))}
            />
          ))}
          <Button
            kind="quiet"
            small
            className="self-start"
            icon={<Plus size={14} />}
            onClick={() => change((before) => [...before, fresh()])}
          >
            Add a cell
          </Button>
        </div>
        {kernel && <KernelSide key={kernel.kernel_id} sandbox={id} kernel={kernel} onKernel={choose} />}
      </div>
    </div>
  );
}

interface BarProps {
  sandbox: string;
  all: Kernel[];
  kernel?: Kernel;
  busy: boolean;
  onKernel: (kernel: string) => void;
}

function KernelBar({ sandbox, all, kernel, busy, onKernel }: BarProps) {
  const client = useQueryClient();
  const [language, setLanguage] = useState<Language>("python");
  const start = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/kernels", { params: { path: { id: sandbox } }, body: { language } }),
      ),
    onSuccess: async (made) => {
      await client.invalidateQueries({ queryKey: ["inside", sandbox, "kernels"] });
      onKernel(made.kernel_id);
    },
    meta: { failed: "The kernel was not started" },
  });
  return (
    <div className="flex min-h-11 flex-wrap items-center gap-2 border-b px-4 py-1.5">
      {kernel && (
        <>
          <Select
            aria-label="Kernel"
            value={kernel.kernel_id}
            onChange={(event) => onKernel(event.target.value)}
            className="max-w-64"
          >
            {all.map((each) => (
              <option key={each.kernel_id} value={each.kernel_id}>
                {each.language} {shortId(each.kernel_id)}
              </option>
            ))}
          </Select>
          <span className="text-xs text-muted" title={kernel.interpreter}>
            {busy ? "busy" : kernel.status} · {kernel.execution_count} cells
          </span>
          <KernelActions sandbox={sandbox} kernel={kernel} busy={busy} />
        </>
      )}
      <span className="flex-1" />
      <Select
        aria-label="Language of a new kernel"
        value={language}
        onChange={(event) => setLanguage(event.target.value as Language)}
        className="max-w-28"
      >
        {LANGUAGES.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </Select>
      <Button kind={kernel ? "plain" : "primary"} disabled={start.isPending} onClick={() => start.mutate()}>
        {start.isPending ? "Starting…" : "Start a kernel"}
      </Button>
    </div>
  );
}

function KernelActions({ sandbox, kernel, busy }: { sandbox: string; kernel: Kernel; busy: boolean }) {
  const { act, end } = useKernel(sandbox, kernel.kernel_id);
  const [asks, setAsks] = useState<"restart" | "end">();
  return (
    <>
      <Button
        small
        icon={<Square size={12} />}
        disabled={(!busy && kernel.status !== "busy") || act.isPending}
        onClick={() => act.mutate("interrupt")}
      >
        Interrupt
      </Button>
      <Button small onClick={() => setAsks("restart")}>
        Restart
      </Button>
      <Button small onClick={() => setAsks("end")}>
        End
      </Button>
      <Confirm
        open={asks !== undefined}
        title={asks === "end" ? "End this kernel?" : "Restart this kernel?"}
        verb={asks === "end" ? "End it" : "Restart"}
        busy={act.isPending || end.isPending}
        onClose={() => setAsks(undefined)}
        onConfirm={() => {
          if (asks === "end") end.mutate();
          else act.mutate("restart");
          setAsks(undefined);
        }}
      >
        {asks === "end"
          ? "Its variables and its checkpoints are lost."
          : "Its variables are lost; its checkpoints stay."}
      </Confirm>
    </>
  );
}
