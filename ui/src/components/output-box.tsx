// Text that comes while it is read: it follows the end, and can be paused, copied and downloaded. Control characters
// are shown as text: a program inside a sandbox cannot move the cursor of this page or change its title.
import { type ReactNode, useEffect, useRef, useState } from "react";
import { cx } from "@/lib/cx";
import { plain } from "@/lib/plain-text";
import { useCopy } from "@/lib/use-copy";
import { Button, buttonClass } from "./button";
import { ErrorNote } from "./error-note";

export interface Piece {
  stream: "stdout" | "stderr" | "note";
  text: string;
}

/** More than this is not kept on the page; the download has all of it. */
const KEPT = 1_000_000;

/** The pieces with one more, without the oldest where they are too many. */
export function keep(before: Piece[], next: Piece): Piece[] {
  const last = before.at(-1);
  const all =
    last?.stream === next.stream
      ? [...before.slice(0, -1), { ...last, text: last.text + next.text }]
      : [...before, next];
  let size = all.reduce((sum, piece) => sum + piece.text.length, 0);
  while (size > KEPT && all.length > 0) {
    const first = all[0] as Piece;
    const gone = Math.min(first.text.length, size - KEPT);
    size -= gone;
    if (gone === first.text.length) all.shift();
    else all[0] = { ...first, text: first.text.slice(gone) };
  }
  return all;
}

interface Props {
  /** Its name for screen readers. */
  label: string;
  pieces: Piece[];
  ended: boolean;
  error?: unknown;
  /** Where all of it is, and the name of the file. */
  download?: { href: string; name: string };
  /** Beside the word that says whether it is live. */
  children?: ReactNode;
}

export function OutputBox({ label, pieces, ended, error, download, children }: Props) {
  const [paused, setPaused] = useState(false);
  const [copied, copy] = useCopy();
  const frozen = useRef(pieces);
  if (!paused) frozen.current = pieces;
  const box = useRef<HTMLPreElement>(null);
  // Follows the end unless the reader has scrolled up.
  const atEnd = useRef(true);
  useEffect(() => {
    if (!paused && pieces.length > 0 && atEnd.current)
      box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [pieces, paused]);
  const shown = frozen.current;
  return (
    <div className="rounded border bg-surface">
      <div className="flex items-center gap-1 border-b px-2 py-1 text-xs text-muted">
        <span className="flex-1">
          {ended ? "output" : paused ? "paused" : "live"}
          {children}
        </span>
        {!ended && (
          <Button kind="quiet" small onClick={() => setPaused(!paused)}>
            {paused ? "Go on" : "Pause"}
          </Button>
        )}
        <Button kind="quiet" small onClick={() => copy(shown.map((piece) => piece.text).join(""))}>
          {copied ? "Copied" : "Copy"}
        </Button>
        {download && (
          <a className={buttonClass("quiet", true)} href={download.href} download={download.name}>
            Download
          </a>
        )}
      </div>
      <pre
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
        role="log"
        aria-label={label}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          atEnd.current = scrollHeight - scrollTop - clientHeight < 24;
        }}
        className="max-h-96 overflow-auto p-2 font-mono text-xs whitespace-pre-wrap break-words"
      >
        {shown.length === 0 && (
          <span className="text-muted">{ended ? "It printed nothing." : "Nothing yet."}</span>
        )}
        {shown.map((piece, index) => (
          <span
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces are only added at the end
            key={index}
            className={cx(piece.stream === "stderr" && "text-warn", piece.stream === "note" && "text-muted")}
          >
            {plain(piece.text)}
          </span>
        ))}
      </pre>
      {error !== undefined && <ErrorNote what="The output cannot be read" error={error} />}
    </div>
  );
}
