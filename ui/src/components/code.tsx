// Code that is only read: highlighted by its language, copied with one click.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { cx } from "@/lib/cx";
import { visible, visibleLine } from "@/lib/plain-text";
import { useCopy } from "@/lib/use-copy";
import { Button } from "./button";

/** Longer code is shown without colours. */
const LONGEST = 50_000;

/** The highlighter, which comes with the languages of the editor; until it is there, code is plain text. */
function useHighlighter() {
  const { data } = useQuery({
    queryKey: ["highlighter"],
    queryFn: () => import("./highlight"),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  });
  return data?.highlight;
}

interface Props {
  text: string;
  /** The language's own name or the extension of a file's. */
  language: string;
  /** What the box is called, for screen readers. */
  label: string;
  /** Without a border of its own and a head. */
  bare?: boolean;
}

export function Code({ text, language, label, bare = false }: Props) {
  const highlight = useHighlighter();
  const [copied, copy] = useCopy();
  const shown = visible(text);
  const parts = useMemo(
    () => (shown.length <= LONGEST ? highlight?.(shown, language) : undefined),
    [highlight, shown, language],
  );
  const box = (
    <pre
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
      tabIndex={0}
      role="region"
      aria-label={label}
      // What is read before it is approved is read whole: no part of a line is out of view.
      className={cx(
        "max-h-96 overflow-auto p-2 font-mono text-xs",
        bare && "wrap-anywhere whitespace-break-spaces",
      )}
    >
      <code>
        {parts?.map((part, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: parts do not move
          <span key={at} className={cx(part.style)}>
            {part.text}
          </span>
        )) ?? shown}
      </code>
    </pre>
  );
  if (bare) return box;
  return (
    <div className="rounded border bg-surface">
      <div className="flex items-center gap-1 border-b py-0.5 pr-1 pl-2 text-xs text-muted">
        <span className="min-w-0 flex-1 truncate">{visibleLine(language) || "text"}</span>
        <Button kind="quiet" small onClick={() => copy(text)}>
          {copied ? "Copied" : "Copy"}
        </Button>
      </div>
      {box}
    </div>
  );
}
