// What opens beside a list: one row in full, or the form for a new one. On narrow screens it lies over the list.
import { X } from "lucide-react";
import { type ReactNode, useEffect, useRef } from "react";
import { Button } from "./button";

interface Props {
  title: ReactNode;
  /** The name of the region. */
  label: string;
  actions?: ReactNode;
  onClose: () => void;
  children: ReactNode;
}

export function SidePanel({ title, label, actions, onClose, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  // The panel is what was asked for: keyboard and screen reader go on there.
  // biome-ignore lint/correctness/useExhaustiveDependencies: another label is another thing in the same panel
  useEffect(() => heading.current?.focus({ preventScroll: true }), [label]);
  return (
    <aside
      aria-label={label}
      onKeyDown={(event) => event.key === "Escape" && !event.defaultPrevented && onClose()}
      className="z-20 flex w-[32rem] max-w-[50%] shrink-0 flex-col overflow-y-auto border-l bg-bg max-md:fixed max-md:inset-x-0 max-md:top-12 max-md:bottom-0 max-md:w-auto max-md:max-w-none max-md:border-l-0"
    >
      <div className="sticky top-0 z-10 flex min-h-12 items-center gap-2 border-b bg-bg px-4 py-2">
        <h2
          ref={heading}
          tabIndex={-1}
          className="min-w-0 flex-1 truncate text-sm font-medium focus-visible:outline-none"
        >
          {title}
        </h2>
        {actions}
        <Button kind="quiet" small aria-label="Close" onClick={onClose}>
          <X size={14} />
        </Button>
      </div>
      <div className="flex flex-col gap-4 p-4">{children}</div>
    </aside>
  );
}

/** A list and, where there is one, the panel beside it. */
export function WithPanel({ children, panel }: { children: ReactNode; panel?: ReactNode }) {
  return (
    <div className="flex min-h-0 flex-1">
      <div className="flex min-w-0 flex-1 flex-col">{children}</div>
      {panel}
    </div>
  );
}
