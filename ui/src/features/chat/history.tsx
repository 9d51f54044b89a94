// The runs of a conversation, those of forks among them: each leads to the conversation as it was at its end.
import { useQuery } from "@tanstack/react-query";
import type { Run } from "@/api/agent";
import { ErrorNote } from "@/components/error-note";
import { Mark, type Tone } from "@/components/mark";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Time } from "@/components/time";
import { cx } from "@/lib/cx";
import { count } from "@/lib/format";
import { plain } from "@/lib/plain-text";
import { checkpoints, runs } from "./queries";
import { firstLine, textOf, withoutFiles } from "./text";

const TONES: Record<Run["status"], Tone> = {
  pending: "waits",
  running: "works",
  success: "off",
  error: "lost",
  timeout: "lost",
  interrupted: "waits",
};

const WORDS: Record<string, string> = {
  answered: "answered",
  max_iterations: "used its steps up",
  max_tokens: "used its tokens up",
  max_seconds: "used its time up",
  cancelled: "cancelled",
  approval: "asked for your word",
  failed: "failed",
};

function asked({ kwargs }: Run): string {
  const said = kwargs.input?.messages?.at(-1)?.content;
  if (said !== undefined) return plain(firstLine(withoutFiles(textOf(said)).text)) || "files";
  return kwargs.command?.resume === undefined ? "went on" : "your word about a call";
}

interface Props {
  thread: string;
  /** The checkpoint that shows. */
  at: string;
  onOpen: (checkpoint: string) => void;
  onClose: () => void;
}

export function History({ thread, at, onOpen, onClose }: Props) {
  const list = useQuery({ ...runs(thread), staleTime: 0 });
  const points = useQuery({ ...checkpoints(thread), staleTime: 0 });
  return (
    <SidePanel title="History" label="History" onClose={onClose}>
      {list.error && <ErrorNote what="The history cannot be read" error={list.error} />}
      {list.isPending && <Loading />}
      {list.data?.length === 0 && <p className="text-muted">Nothing was asked yet.</p>}
      <ul className="-mx-2 flex flex-col gap-0.5">
        {list.data?.map((run) => {
          const last = points.data?.find(({ metadata }) => metadata.run_id === run.run_id)?.id;
          const { iterations, total_tokens } = run.usage;
          return (
            <li key={run.run_id}>
              <button
                type="button"
                disabled={!last}
                aria-pressed={at !== "" && at === last}
                onClick={() => last && onOpen(last)}
                className={cx(
                  "flex w-full flex-col gap-0.5 rounded px-2 py-1.5 text-left hover:bg-raised",
                  at === last && "bg-raised",
                )}
              >
                <span className="w-full truncate">{asked(run)}</span>
                <span className="flex flex-wrap gap-x-3 text-xs text-muted">
                  <Time at={run.created_at} suffix=" ago" />
                  <Mark tone={TONES[run.status]} title={run.error ?? undefined}>
                    {WORDS[run.stop_reason ?? ""] ?? run.status}
                  </Mark>
                  <span>
                    {iterations === 1 ? "1 step" : `${count(iterations)} steps`}, {count(total_tokens)} tokens
                  </span>
                </span>
              </button>
            </li>
          );
        })}
      </ul>
    </SidePanel>
  );
}
