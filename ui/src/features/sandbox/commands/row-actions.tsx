import { useMutation, useQueryClient } from "@tanstack/react-query";
import { RotateCw } from "lucide-react";
import { api, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import type { Exec, Operation } from "../queries";
import { useStart } from "./start";

interface Props {
  sandbox: string;
  exec: Exec;
  operation?: Operation;
  onStarted: (exec: string) => void;
}

/** A command can be repeated where all of it is known: its whole text, and no variables, whose values are not kept. */
function repeatable(operation?: Operation): operation is Operation {
  if (!operation || operation.variables.length > 0) return false;
  return new TextEncoder().encode(operation.detail).length === operation.detail_length;
}

export function RowActions({ sandbox, exec, operation, onStarted }: Props) {
  const client = useQueryClient();
  const start = useStart(sandbox, onStarted);
  const kill = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/sandboxes/{id}/execs/{eid}/kill", {
          params: { path: { id: sandbox, eid: exec.exec_id } },
        }),
      ),
    onSettled: () => refreshSandbox(client, sandbox),
    meta: { failed: "The command was not ended" },
  });
  if (exec.status === "running") {
    return (
      <Button kind="danger" small disabled={kill.isPending} onClick={() => kill.mutate()}>
        End it
      </Button>
    );
  }
  if (exec.terminal || !repeatable(operation)) return null;
  const { detail, working_directory } = operation;
  return (
    <Button
      kind="quiet"
      small
      aria-label="Run again"
      icon={<RotateCw size={14} className="md:hidden" />}
      disabled={start.isPending}
      onClick={() => start.mutate({ command: detail, ...(working_directory && { working_directory }) })}
    >
      <span className="max-md:hidden">Run again</span>
    </Button>
  );
}
