// A call that waits for approval: it is carried out, carried out otherwise, or refused.
import { lazy, Suspense, useState } from "react";
import type { ActionRequest, Decision } from "@/api/agent";
import { Button } from "@/components/button";
import { Input } from "@/components/field";
import { Loading } from "@/components/page";
import { visible } from "@/lib/plain-text";
import { parsed } from "./text";
import { programOf } from "./tools";

const Editor = lazy(() => import("@/components/editor"));

interface Props {
  request: ActionRequest;
  /** What the session of the call speaks. */
  runtime: string;
  /** What was decided; it is sent when all calls of the step have a word. */
  decision?: Decision;
  onDecide: (decision: Decision) => void;
}

const WORDS = { approve: "Approved", edit: "Approved with changes", reject: "Refused" };

export function Approval({ request, runtime, decision, onDecide }: Props) {
  const [editing, setEditing] = useState(false);
  const [why, setWhy] = useState("");
  if (decision) {
    return <p className="text-xs text-muted">{WORDS[decision.type]}; other calls still wait.</p>;
  }
  if (editing) {
    return <Edit request={request} runtime={runtime} onDecide={onDecide} onClose={() => setEditing(false)} />;
  }
  return (
    <div className="flex flex-wrap items-center gap-2 rounded border border-warn/60 p-2">
      <span className="min-w-40 flex-1 text-xs text-warn">
        Waits for your word: {visible(request.description)}.
      </span>
      <Button kind="primary" small onClick={() => onDecide({ type: "approve" })}>
        Approve
      </Button>
      <Button small onClick={() => setEditing(true)}>
        Edit
      </Button>
      <div className="w-40">
        <Input
          aria-label="Why it is refused"
          placeholder="Why not (optional)"
          value={why}
          onChange={(event) => setWhy(event.target.value)}
        />
      </div>
      <Button kind="danger" small onClick={() => onDecide({ type: "reject", message: why.trim() })}>
        Refuse
      </Button>
    </div>
  );
}

interface EditProps {
  request: ActionRequest;
  runtime: string;
  onDecide: (decision: Decision) => void;
  onClose: () => void;
}

/** The program of a call, or all its arguments where it has none. */
function Edit({ request, runtime, onDecide, onClose }: EditProps) {
  const { name, args } = request;
  const program = programOf(name, args, runtime);
  const [text, setText] = useState(program?.text ?? JSON.stringify(args, null, 2));
  const changed = program ? { ...args, [program.argument]: text } : parsed(text);
  return (
    <div className="flex flex-col gap-2 rounded border border-warn/60 p-2">
      <div className="rounded border bg-surface py-1">
        <Suspense fallback={<Loading />}>
          <Editor
            value={text}
            language={program?.language ?? "json"}
            label="What is carried out instead"
            bare
            onChange={setText}
          />
        </Suspense>
      </div>
      <div className="flex items-center justify-end gap-2">
        {!changed && <span className="text-xs text-danger">The arguments must be an object in JSON.</span>}
        <Button small onClick={onClose}>
          Back
        </Button>
        <Button
          kind="primary"
          small
          disabled={!changed}
          onClick={() => changed && onDecide({ type: "edit", edited_action: { name, args: changed } })}
        >
          Approve the change
        </Button>
      </div>
    </div>
  );
}
