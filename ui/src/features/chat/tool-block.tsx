// A call of a tool: what is run, what it prints while it runs, what came of it, and where it happened.
import { ChevronDown, ChevronRight } from "lucide-react";
import { memo, type ReactNode, useMemo, useState } from "react";
import type { ToolMessage } from "@/api/agent";
import { Code } from "@/components/code";
import { Mark, type Tone } from "@/components/mark";
import type { Piece } from "@/components/output-box";
import { Duration } from "@/components/time";
import { visible, visibleLine } from "@/lib/plain-text";
import { Asked } from "./asked";
import { firstLine } from "./text";
import { ToolFacts } from "./tool-facts";
import { ToolResult } from "./tool-result";
import { programOf, type Result, resultOf, titleOf } from "./tools";

export interface Call {
  id: string;
  name: string;
  /** Nothing where they are no JSON, or not whole yet. */
  args?: Record<string, unknown>;
  /** The program of a call that is still being written, or arguments that are no JSON. */
  text?: string;
}

interface Props {
  thread: string;
  call: Call;
  runtime: string;
  state: "written" | "waits" | "works" | "over";
  message?: ToolMessage;
  live?: Piece[];
  /** The decision, where it waits for one. */
  children?: ReactNode;
}

function markOf(state: Props["state"], result: Result | undefined): { tone: Tone; word: string } {
  if (state === "written") return { tone: "waits", word: "is being written" };
  if (state === "waits") return { tone: "waits", word: "waits for you" };
  if (state === "works") return { tone: "works", word: "runs" };
  if (!result) return { tone: "off", word: "not carried out" };
  if (result.failed) return { tone: "lost", word: result.word ?? "failed" };
  return { tone: "off", word: result.word ?? "done" };
}

export const ToolBlock = memo(({ thread, call, runtime, state, message, live, children }: Props) => {
  const result = useMemo(() => message && resultOf(message), [message]);
  const args = call.args ?? {};
  const program =
    programOf(call.name, args, runtime) ??
    (call.text
      ? { argument: "", text: call.text, language: call.name === "execute_code" ? runtime : "sh" }
      : undefined);
  const waits = state === "waits";
  const [toggled, setToggled] = useState<boolean>();
  // What a person wants to read is open: programs, files, and what went wrong.
  const open = waits || (toggled ?? (program !== undefined || result?.failed || result?.files.length !== 0));
  const { tone, word } = markOf(state, result);
  const facts = message?.additional_kwargs?.atoll;
  const title = visibleLine(titleOf(call.name));
  return (
    <section aria-label={title} className="my-2 min-w-0 rounded border bg-surface">
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setToggled(!open)}
        className="flex min-h-9 w-full items-center gap-2 px-2 py-1 text-left text-xs hover:bg-raised"
      >
        {open ? (
          <ChevronDown size={14} className="shrink-0" />
        ) : (
          <ChevronRight size={14} className="shrink-0" />
        )}
        <span className="shrink-0 font-medium">{title}</span>
        <code className="min-w-0 flex-1 truncate font-mono text-muted">
          {!open && visible(firstLine(program?.text ?? summaryOf(args)))}
        </code>
        <span className="shrink-0 text-muted">
          <Mark tone={tone}>{word}</Mark>
        </span>
        {facts?.duration_ms !== undefined && (
          <span className="shrink-0 text-muted">
            <Duration ms={facts.duration_ms} />
          </span>
        )}
      </button>
      {open && (
        <div className="flex min-w-0 flex-col gap-2 border-t p-2">
          {program ? (
            <div className="rounded border bg-bg">
              <Code text={program.text} language={program.language} label="What is run" bare />
              {waits && <Others args={args} without={program.argument} />}
            </div>
          ) : (
            Object.keys(args).length > 0 &&
            !result?.files.length && (
              <Code text={JSON.stringify(args, null, 2)} language="json" label="Arguments" bare />
            )
          )}
          {facts?.asked && <Asked asked={facts.asked} name={call.name} runtime={runtime} />}
          {children}
          <ToolResult
            thread={thread}
            exports={call.name === "export_files"}
            result={result}
            live={live}
            works={state === "works"}
          />
          {facts && <ToolFacts facts={facts} />}
        </div>
      )}
    </section>
  );
});

/** What else a person approves: every argument beside the program. */
function Others({ args, without }: { args: Record<string, unknown>; without: string }) {
  const { [without]: _, session_id: _session, ...others } = args;
  if (Object.keys(others).length === 0) return null;
  return <Code text={JSON.stringify(others, null, 2)} language="json" label="Other arguments" bare />;
}

/** The arguments in a line. */
const summaryOf = (args: Record<string, unknown>) =>
  Object.entries(args)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
