// A command, wherever one is shown: a row that opens to its output and to what a page adds (files, egress, audit).
import { ChevronDown, ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import type { Schemas } from "@/api/client";
import { cx } from "@/lib/cx";
import { visible } from "@/lib/plain-text";
import { Output } from "./output";
import { Duration, Time } from "./time";

type Exec = Schemas["ExecItem"];

/** How it ended, in a word. */
export function outcome(exec: Exec): { word: string; bad: boolean } {
  if (exec.status === "running") return { word: "running", bad: false };
  if (exec.failure) return { word: "did not start", bad: true };
  if (exec.oom_killed) return { word: "out of memory", bad: true };
  if (exec.timed_out) return { word: "timed out", bad: true };
  if (exec.killed) return { word: "killed", bad: true };
  if (exec.signal) return { word: `signal ${exec.signal}`, bad: true };
  return { word: `exit ${exec.exit_code ?? "?"}`, bad: exec.exit_code !== 0 };
}

interface Props {
  sandbox: string;
  exec: Exec;
  /** Buttons at the end of the row. */
  actions?: ReactNode;
  /** Below the output when it is open. */
  children?: ReactNode;
  /** In place of the live output, where the sandbox no longer has it. */
  output?: ReactNode;
  /** A page that keeps the open row in its address says so here. */
  open?: boolean;
  onToggle?: (open: boolean) => void;
}

export function CommandRow({ sandbox, exec, actions, children, output, open: held, onToggle }: Props) {
  const [own, setOwn] = useState(false);
  const open = held ?? own;
  const setOpen = onToggle ?? setOwn;
  const { word, bad } = outcome(exec);
  return (
    <div className="border-b last:border-b-0">
      <div className="flex min-h-9 items-center gap-3 px-3 hover:bg-raised">
        <button
          type="button"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="flex min-w-0 flex-1 items-center gap-2 py-2 text-left"
        >
          {open ? (
            <ChevronDown size={14} className="shrink-0" />
          ) : (
            <ChevronRight size={14} className="shrink-0" />
          )}
          <span className={cx("w-24 shrink-0 text-xs max-md:w-auto", bad ? "text-danger" : "text-muted")}>
            {word}
          </span>
          <code className="min-w-0 flex-1 truncate font-mono text-xs">{visible(exec.command)}</code>
          <span className="shrink-0 text-xs text-muted max-md:hidden">
            {exec.status === "running" ? (
              <Duration since={exec.started_at} />
            ) : (
              <Duration ms={exec.duration_ms} />
            )}
          </span>
          <span className="w-12 shrink-0 text-right text-xs text-muted">
            <Time at={exec.started_at} />
          </span>
        </button>
        {actions}
      </div>
      {open && (
        <div className="flex flex-col gap-2 px-3 pb-3 pl-9">
          <code className="max-h-48 overflow-auto font-mono text-xs break-words whitespace-pre-wrap md:hidden">
            {visible(exec.command)}
          </code>
          {output ?? <Output sandbox={sandbox} exec={exec.exec_id} first={exec.first_offset} />}
          {children}
        </div>
      )}
    </div>
  );
}
