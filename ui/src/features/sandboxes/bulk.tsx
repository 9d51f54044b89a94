// What is done to the chosen sandboxes: one request each, a few at a time. What cannot be done to one stops nothing;
// it is said at the end.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { shortId } from "@/components/id";
import { notify, notifyError } from "@/components/toast";

type Verb = "pause" | "resume" | "stop" | "delete";

const DONE: Record<Verb, string> = { pause: "Paused", resume: "Resumed", stop: "Stopped", delete: "Deleted" };
const AT_ONCE = 4;

function carryOut(verb: Verb, id: string): Promise<unknown> {
  const params = { path: { id } };
  if (verb === "pause") return unwrap(api.POST("/api/v1/sandboxes/{id}/pause", { params }));
  if (verb === "resume") return unwrap(api.POST("/api/v1/sandboxes/{id}/resume", { params }));
  if (verb === "stop") return unwrap(api.POST("/api/v1/sandboxes/{id}/stop", { params }));
  return unwrap(api.DELETE("/api/v1/sandboxes/{id}", { params }));
}

interface Props {
  chosen: ReadonlySet<string>;
  /** How many of them are in none of the rows in view: scrolled away, or no longer in the list. */
  outOfView: number;
  onDone: () => void;
}

export function Bulk({ chosen, outOfView, onDone }: Props) {
  const client = useQueryClient();
  const [left, setLeft] = useState(0);
  const [asking, setAsking] = useState(false);
  const run = async (verb: Verb) => {
    setAsking(false);
    const waiting = [...chosen];
    const problems: string[] = [];
    setLeft(waiting.length);
    const worker = async () => {
      for (let id = waiting.pop(); id; id = waiting.pop()) {
        const name = shortId(id);
        await carryOut(verb, id).catch((error) => problems.push(`${name}: ${asApiError(error).message}`));
        setLeft((before) => before - 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    setLeft(0);
    void client.invalidateQueries({ queryKey: ["sandboxes"] });
    const done = chosen.size - problems.length;
    if (problems.length === 0) notify(`${DONE[verb]} ${done}`);
    else
      notifyError(
        `${DONE[verb]} ${done}, not ${problems.length}`,
        new Error(problems.slice(0, 5).join("\n")),
      );
    onDone();
  };
  const busy = left > 0;
  const hidden = outOfView > 0 ? `, ${outOfView} of them out of view` : "";
  return (
    <div
      role="toolbar"
      aria-label="Chosen sandboxes"
      className="flex flex-wrap items-center gap-2 border-b bg-raised px-4 py-1.5"
    >
      <span className="text-sm">{busy ? `${left} left` : `${chosen.size} chosen${hidden}`}</span>
      <Button small disabled={busy} onClick={() => void run("pause")}>
        Pause
      </Button>
      <Button small disabled={busy} onClick={() => void run("resume")}>
        Resume
      </Button>
      <Button small disabled={busy} onClick={() => void run("stop")}>
        Stop
      </Button>
      <Button small kind="danger" disabled={busy} onClick={() => setAsking(true)}>
        Delete
      </Button>
      <Button small kind="quiet" disabled={busy} onClick={onDone}>
        Clear
      </Button>
      <Confirm
        open={asking}
        title={chosen.size === 1 ? "Delete this sandbox?" : `Delete ${chosen.size} sandboxes?`}
        verb="Delete"
        onConfirm={() => void run("delete")}
        onClose={() => setAsking(false)}
      >
        {outOfView > 0 && `${outOfView} of them ${outOfView === 1 ? "is" : "are"} out of view. `}
        Their processes end, and all their files and snapshots are lost. Volumes that were attached stay.
      </Confirm>
    </div>
  );
}
