// What the agent said, thought and did in one message.
import { ChevronDown, ChevronRight } from "lucide-react";
import { memo, type ReactNode, useState } from "react";
import type { AiMessage, Message, ToolMessage } from "@/api/agent";
import { Markdown } from "@/components/markdown";
import { plain } from "@/lib/plain-text";
import type { Live, Pending } from "./live";
import { languageOf, type Part, parsed, partsOf, unfinished } from "./text";
import { type Call, ToolBlock } from "./tool-block";

/** Parts in their order; thoughts are folded. */
export function Parts({ parts, grows = false }: { parts: Part[]; grows?: boolean }) {
  return parts.map((part, at) => {
    const key = `${at} ${part.type}`;
    if (part.type === "text") return <Markdown key={key} text={part.text} />;
    return <Reasoning key={key} text={part.text} grows={grows && at === parts.length - 1} />;
  });
}

function Reasoning({ text, grows }: { text: string; grows: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <div className="my-1 text-xs text-muted">
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
        className="inline-flex items-center gap-1 rounded hover:text-text"
      >
        {open ? <ChevronDown size={12} /> : <ChevronRight size={12} />}
        {grows ? "Thinks…" : "Thought"}
      </button>
      {open && <p className="mt-1 border-l-2 pl-3 wrap-anywhere whitespace-pre-wrap">{plain(text)}</p>}
    </div>
  );
}

interface Props {
  thread: string;
  message: AiMessage;
  /** Those of the whole conversation, for the results and sessions of its calls. */
  messages: Message[];
  working: Live["working"];
  output: Live["output"];
  /** The controls of a call that waits for approval. */
  approvalOf: (call: string) => ReactNode;
}

export const Answer = memo(({ thread, message, messages, working, output, approvalOf }: Props) => {
  const broken = message.invalid_tool_calls.map(
    ({ id, name, args }): Call => ({ id, name, text: args ?? "" }),
  );
  const calls: Call[] = [...message.tool_calls, ...broken];
  return (
    <>
      <Parts parts={partsOf(message)} />
      {calls.map((call) => {
        const result = messages.find(
          (each): each is ToolMessage => each.type === "tool" && each.tool_call_id === call.id,
        );
        const changed = result ? undefined : working[call.id];
        const waits = approvalOf(call.id);
        return (
          <ToolBlock
            key={call.id}
            thread={thread}
            // A person may have changed what is carried out.
            call={changed ? { ...call, args: changed } : call}
            runtime={languageOf(messages, call.args?.session_id)}
            state={waits ? "waits" : changed ? "works" : "over"}
            message={result}
            live={output[call.id]}
          >
            {waits}
          </ToolBlock>
        );
      })}
    </>
  );
});

/** A message that the model is writing. */
export function Growing({
  thread,
  pending,
  messages,
}: {
  thread: string;
  pending: Pending;
  messages: Message[];
}) {
  return (
    <>
      <Parts parts={pending.parts.filter(Boolean)} grows />
      {pending.calls.filter(Boolean).map((call) => {
        const args = parsed(call.args);
        const text = unfinished(call.args, call.name === "execute_code" ? "code" : "command");
        const session = args?.session_id ?? unfinished(call.args, "session_id");
        return (
          <ToolBlock
            key={call.id}
            thread={thread}
            call={{ id: call.id, name: call.name, args, text }}
            runtime={languageOf(messages, session)}
            state="written"
          />
        );
      })}
    </>
  );
}
