import { Play, Trash2 } from "lucide-react";
import { lazy, Suspense } from "react";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { RichResult } from "@/components/rich-result";
import { cx } from "@/lib/cx";
import { duration } from "@/lib/format";
import { plain, visibleLine } from "@/lib/plain-text";
import { curl, quote } from "@/lib/shell";
import type { Cell } from "./cells";

const Editor = lazy(() => import("@/components/editor"));

interface Props {
  sandbox: string;
  cell: Cell;
  language: string;
  /** Without one it cannot be run yet. */
  kernel?: string;
  onCode: (code: string) => void;
  onRun: (code: string) => void;
  onRemove: () => void;
}

export function CellView({ sandbox, cell, language, kernel, onCode, onRun, onRemove }: Props) {
  const disabled = !kernel;
  const busy = cell.state === "waits" || cell.state === "runs";
  const run = (code: string) => !disabled && !busy && onRun(code);
  return (
    <section aria-label="Cell" className="rounded border bg-surface">
      <div className="flex">
        <div className="flex w-12 shrink-0 flex-col items-center gap-1 border-r py-1 text-xs text-muted">
          <Button
            kind="quiet"
            small
            aria-label="Run the cell"
            title="Run the cell (Shift+Enter)"
            disabled={disabled || busy}
            onClick={() => run(cell.code)}
          >
            <Play size={14} />
          </Button>
          <span>
            {busy ? (cell.state === "runs" ? "runs" : "waits") : (cell.result?.execution_count ?? "")}
          </span>
        </div>
        <div className="min-w-0 flex-1 py-1">
          <Suspense fallback={<pre className="px-2 font-mono text-xs">{cell.code}</pre>}>
            <Editor
              value={cell.code}
              language={language}
              label="Code of the cell"
              bare
              onChange={onCode}
              keys={{ "Shift-Enter": run, "Mod-Enter": run }}
            />
          </Suspense>
        </div>
        <div className="flex shrink-0 items-start">
          {kernel && cell.code.trim() && (
            <CopyAs
              small
              cli={`atoll run-code ${sandbox} --kernel ${kernel} -- ${quote(cell.code)}`}
              curl={curl("POST", `/api/v1/sandboxes/${sandbox}/kernels/${kernel}/execute`, {
                code: cell.code,
              })}
            />
          )}
          <Button kind="quiet" small aria-label="Remove the cell" disabled={busy} onClick={onRemove}>
            <Trash2 size={14} />
          </Button>
        </div>
      </div>
      <CellOutput cell={cell} />
    </section>
  );
}

function CellOutput({ cell }: { cell: Cell }) {
  const { output, displays, result, error, state } = cell;
  const value = result?.result?.["text/plain"];
  // A value that was also shown is not shown a second time as text.
  const shown = value && displays.length === 0 ? value : undefined;
  if (state === "new" || (state === "waits" && output.length === 0)) return null;
  return (
    <div className="flex flex-col gap-2 border-t p-2 pl-14" role="log" aria-label="Result of the cell">
      {output.length > 0 && (
        <pre
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
          tabIndex={0}
          className="max-h-96 overflow-auto font-mono text-xs break-words whitespace-pre-wrap"
        >
          {output.map((piece, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces are only added at the end
            <span key={at} className={cx(piece.stream === "stderr" && "text-warn")}>
              {plain(piece.text)}
            </span>
          ))}
        </pre>
      )}
      {displays.map((display, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: displays are only added at the end
        <RichResult key={at} type={display.type} data={display.data} />
      ))}
      {shown && <RichResult type="text/plain" data={shown} />}
      {result?.error && (
        <pre className="overflow-x-auto font-mono text-xs whitespace-pre-wrap text-danger">
          {plain(result.error.traceback ?? `${result.error.type}: ${result.error.message}`)}
        </pre>
      )}
      {error && <p className="text-xs text-danger">{plain(error)}</p>}
      {result && (
        <p className="flex flex-wrap gap-x-3 text-xs text-muted">
          <span>{duration(result.duration_ms)}</span>
          {result.interrupted && <span>interrupted</span>}
          {result.timed_out && <span>timed out</span>}
          {result.state_lost && <span className="text-danger">the variables of before are lost</span>}
          {result.truncated && <span>some output is missing</span>}
          {result.files_changed.map((file) => (
            <span key={file.path}>
              {file.action} {visibleLine(file.path)}
            </span>
          ))}
        </p>
      )}
    </div>
  );
}
