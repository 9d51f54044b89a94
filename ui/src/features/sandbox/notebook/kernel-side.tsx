// Beside the cells: the checkpoints of the kernel as a timeline, and its variables.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { Button } from "@/components/button";
import { Input } from "@/components/field";
import { Panel } from "@/components/page";
import { Bytes, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { plain } from "@/lib/plain-text";
import { metrics } from "../queries";
import { type Kernel, useKernel } from "./kernels";

interface Props {
  sandbox: string;
  kernel: Kernel;
  onKernel: (kernel: string) => void;
}

export function KernelSide({ sandbox, kernel, onKernel }: Props) {
  const { data } = useQuery(metrics(sandbox));
  return (
    <div className="flex w-80 shrink-0 flex-col gap-4 max-lg:w-full">
      {data?.now?.memory_bytes != null && (
        <p className="text-xs text-muted">
          memory of the sandbox: <Bytes count={data.now.memory_bytes} />
          {data.now.memory_limit_bytes != null && (
            <>
              {" "}
              of <Bytes count={data.now.memory_limit_bytes} />
            </>
          )}
        </p>
      )}
      {kernel.language === "python" && (
        <>
          <Checkpoints sandbox={sandbox} kernel={kernel} onKernel={onKernel} />
          <Variables sandbox={sandbox} kernel={kernel} />
        </>
      )}
    </div>
  );
}

function Checkpoints({ sandbox, kernel, onKernel }: Props) {
  const { keep, rollback, fork } = useKernel(sandbox, kernel.kernel_id);
  const [name, setName] = useState("");
  return (
    <Panel title="Checkpoints">
      <form
        className="flex gap-2 p-2"
        onSubmit={(event) => {
          event.preventDefault();
          keep.mutate(name.trim(), { onSuccess: () => setName("") });
        }}
      >
        <Input
          aria-label="Name of the checkpoint"
          placeholder="Name"
          value={name}
          onChange={(event) => setName(event.target.value)}
          className="min-w-0"
        />
        <Button type="submit" disabled={keep.isPending}>
          Keep
        </Button>
      </form>
      {kernel.checkpoints.length === 0 && (
        <p className="px-3 pb-2 text-xs text-muted">A checkpoint keeps the variables as they are now.</p>
      )}
      <ol aria-label="Checkpoints">
        {kernel.checkpoints.map((each) => (
          <li key={each.checkpoint_id} className="flex items-center gap-2 border-t px-3 py-1 text-xs">
            <span className="min-w-0 flex-1 truncate">
              {each.name} <span className="text-muted">after {each.execution_count} cells</span>
            </span>
            <span className="text-muted">
              <Time at={each.created_at} />
            </span>
            <Button
              small
              disabled={rollback.isPending}
              onClick={() =>
                rollback.mutate(each.checkpoint_id, {
                  onSuccess: () => notify("The variables are what they were", "Files stay as they are."),
                })
              }
            >
              Roll back
            </Button>
            <Button
              small
              disabled={fork.isPending}
              onClick={() =>
                fork.mutate(each.checkpoint_id, { onSuccess: (made) => onKernel(made.kernel_id) })
              }
            >
              Fork
            </Button>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** Asked of the interpreter by a cell, since only it knows them. */
const LIST = `print(__import__("json").dumps([[n, type(v).__name__, repr(v)[:80]] for n, v in list(globals().items()) if not n.startswith("_") and type(v).__name__ != "module" and n not in ("In", "Out", "exit", "quit", "get_ipython")][:200]))`;

type Variable = [name: string, type: string, value: string];

function Variables({ sandbox, kernel }: Omit<Props, "onKernel">) {
  const look = useMutation({
    mutationFn: async (): Promise<Variable[]> => {
      const { stdout, error } = (await unwrap(
        api.POST("/api/v1/sandboxes/{id}/kernels/{kid}/execute", {
          params: { path: { id: sandbox, kid: kernel.kernel_id } },
          body: { code: LIST },
        }),
      )) as Schemas["CellResult"];
      if (error) throw new Error(`${error.type}: ${error.message}`);
      return JSON.parse(stdout) as Variable[];
    },
    meta: { failed: "The variables cannot be listed" },
  });
  return (
    <Panel
      title="Variables"
      actions={
        <Button kind="quiet" small disabled={look.isPending} onClick={() => look.mutate()}>
          {look.data ? "Look again" : "Look"}
        </Button>
      }
    >
      {!look.data && <p className="p-3 text-xs text-muted">A cell that lists them runs when you look.</p>}
      {look.data?.length === 0 && <p className="p-3 text-xs text-muted">There are none yet.</p>}
      {look.data && look.data.length > 0 && (
        <table className="w-full table-fixed text-xs">
          <tbody>
            {look.data.map(([name, type, value]) => (
              <tr key={name} className="border-t first:border-t-0">
                <td className="truncate px-3 py-1 font-mono">{plain(String(name))}</td>
                <td className="w-16 truncate py-1 text-muted">{plain(String(type))}</td>
                <td className="truncate px-3 py-1 font-mono" title={plain(String(value))}>
                  {plain(String(value))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
