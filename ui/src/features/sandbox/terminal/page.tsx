// The terminals of a sandbox. One that was left is attached to again, here and after a reload: the address has its id.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useRef, useState } from "react";
import { useSearchParams } from "react-router";
import { sandbox as sandboxQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { Loading } from "@/components/page";
import { cx } from "@/lib/cx";
import { execs, useSandboxId } from "../queries";
import type { Ended } from "./connection";
import { Screen } from "./screen";

export default function Terminals() {
  const id = useSandboxId();
  const [search, setSearch] = useSearchParams();
  const readOnly = useSignedIn().scope === "read_only";
  const { data: sandbox } = useQuery(sandboxQuery(id));
  const { data } = useQuery({ ...execs(id), enabled: sandbox?.status === "running" });
  // What was chosen here goes before the address, which follows when the terminal is there. Another number is another
  // terminal on the page.
  const [chosen, setChosen] = useState<{ exec?: string; number: number }>();
  if (readOnly) {
    return <Empty title="This key may only read">A terminal can change what is in the sandbox.</Empty>;
  }
  if (sandbox && sandbox.status !== "running" && sandbox.status !== "paused") {
    return (
      <Empty title={`There is no shell: the sandbox is ${sandbox.status}`}>
        {sandbox.status === "stopped" && "Resume it; its files are as they were."}
      </Empty>
    );
  }
  if (!data && sandbox?.status === "paused") {
    return <Empty title="The sandbox is paused">Resume it to open a terminal or to go on in one.</Empty>;
  }
  if (!data) return <Loading />;
  const open = data.filter((exec) => exec.terminal && exec.status === "running");
  const asked = search.get("exec");
  const attach = chosen ? chosen.exec : (asked ?? open[0]?.exec_id);
  const shown = asked ?? attach;
  const go = (exec?: string) => {
    setChosen({ exec, number: (chosen?.number ?? 0) + 1 });
    setSearch(exec ? { exec } : {}, { replace: true });
  };
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="flex min-h-9 flex-wrap items-center gap-1 border-b px-3 py-1">
        {open.map((exec, at) => (
          <button
            key={exec.exec_id}
            type="button"
            aria-pressed={exec.exec_id === shown}
            title={exec.command}
            onClick={() => go(exec.exec_id)}
            className={cx(
              "h-7 rounded px-2 text-xs",
              exec.exec_id === shown ? "bg-raised font-medium" : "text-muted hover:text-text",
            )}
          >
            Terminal {open.length - at}
          </button>
        ))}
        <Button kind="quiet" small icon={<Plus size={14} />} onClick={() => go()}>
          New terminal
        </Button>
        <div className="flex-1" />
        <CopyAs cli={shown ? `atoll shell ${id} --attach ${shown}` : `atoll shell ${id}`} />
      </div>
      <OneTerminal
        key={chosen?.number ?? 0}
        sandbox={id}
        exec={attach}
        onReady={(exec) => exec !== asked && setSearch({ exec }, { replace: true })}
        onAnother={() => go()}
      />
    </div>
  );
}

interface OneProps {
  sandbox: string;
  exec?: string;
  onReady: (exec: string) => void;
  onAnother: () => void;
}

function OneTerminal({ sandbox, exec, onReady, onAnother }: OneProps) {
  const client = useQueryClient();
  const [state, setState] = useState<"connecting" | "open" | "lost">("connecting");
  const [ended, setEnded] = useState<Ended>();
  const [error, setError] = useState<string>();
  const kill = useRef<() => void>(() => {});
  const changed = () => void client.invalidateQueries({ queryKey: ["inside", sandbox, "execs"] });
  const over = ended !== undefined || error !== undefined;
  return (
    <>
      {over ? (
        <div role="alert" className="flex flex-wrap items-center gap-2 border-b bg-raised px-3 py-2">
          <span className="flex-1">
            {error ? `There is no terminal: ${error}.` : ended && sentence(ended)}
          </span>
          <Button small onClick={onAnother}>
            Open another
          </Button>
        </div>
      ) : (
        <div className="flex items-center justify-between px-3 py-1 text-xs text-muted">
          <span role="status">
            {state === "open"
              ? "attached; it goes on when you leave"
              : state === "lost"
                ? "connection lost; attaching again, and what is typed is sent then…"
                : "attaching…"}
          </span>
          <Button kind="quiet" small onClick={() => kill.current()}>
            End it
          </Button>
        </div>
      )}
      <div className="min-h-0 flex-1">
        <Screen
          sandbox={sandbox}
          exec={exec}
          onKill={(end) => {
            kill.current = end;
          }}
          handlers={{
            onState: setState,
            onReady: (id) => {
              onReady(id);
              changed();
            },
            onEnd: (how) => {
              setEnded(how);
              changed();
            },
            onError: setError,
          }}
        />
      </div>
    </>
  );
}

/** How it ended. 126 and 127 are what a shell's place says when no shell can be run there. */
function sentence({ code, signal }: Ended): string {
  if (code === 126 || code === 127) {
    return `There is no shell: the image has no program that can be started as one (exit ${code}).`;
  }
  if (signal) return `The shell was ended by signal ${signal}.`;
  return `The shell has ended with exit ${code}.`;
}
