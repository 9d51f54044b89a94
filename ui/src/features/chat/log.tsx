// The conversation from its beginning: it follows the end unless the reader has scrolled up.
import { ArrowDown } from "lucide-react";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { Button } from "@/components/button";

interface Props {
  /** The agent is at work. */
  busy: boolean;
  /** Changes with what is shown. */
  grown: unknown;
  children: ReactNode;
}

const NEAR = 48;

const toEnd = (box: HTMLDivElement | null) => box?.scrollTo({ top: box.scrollHeight });

export function Log({ busy, grown, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const top = useRef(0);
  const [away, setAway] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what grew is below the end now
  useEffect(() => {
    if (follows.current) toEnd(box.current);
  }, [grown]);
  // Pictures and code are as high as they are only after they were loaded.
  useEffect(() => {
    if (!inner.current) return;
    const watch = new ResizeObserver(() => follows.current && toEnd(box.current));
    watch.observe(inner.current);
    return () => watch.disconnect();
  }, []);
  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
        role="log"
        aria-label="Conversation"
        aria-busy={busy}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          // Only a reader scrolls up; what grows does not.
          const near = scrollHeight - scrollTop - clientHeight < NEAR;
          follows.current = near || (follows.current && scrollTop >= top.current);
          top.current = scrollTop;
          setAway(!follows.current);
        }}
        className="min-h-0 flex-1 overflow-y-auto px-4 py-4 [overflow-anchor:none] focus-visible:outline-offset-[-2px]"
      >
        <div ref={inner} className="mx-auto flex max-w-3xl min-w-0 flex-col gap-2">
          {children}
        </div>
      </div>
      {away && (
        <Button
          small
          icon={<ArrowDown size={14} />}
          onClick={() => {
            follows.current = true;
            toEnd(box.current);
          }}
          className="absolute right-4 bottom-3"
        >
          To the end
        </Button>
      )}
    </div>
  );
}
