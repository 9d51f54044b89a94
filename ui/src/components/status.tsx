import type { Schemas } from "@/api/client";

type Name = Schemas["Sandbox"]["status"];

/** A status is a word and a shape; colour only repeats it. */
const SHAPES: Record<Name, { path: string; tone: string }> = {
  creating: { path: "M6 1.5a4.5 4.5 0 1 1-4.5 4.5", tone: "text-warn" },
  running: { path: "M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", tone: "text-accent" },
  paused: { path: "M4 2.5v7M8 2.5v7", tone: "text-warn" },
  stopped: { path: "M2.5 2.5h7v7h-7z", tone: "text-muted" },
  dead: { path: "M3 3l6 6M9 3l-6 6", tone: "text-danger" },
  destroyed: { path: "M2.5 6h7", tone: "text-muted" },
};

export function Status({ status, reason }: { status: Name; reason?: string | null }) {
  const { path, tone } = SHAPES[status];
  return (
    <span className="inline-flex items-center gap-1.5" title={reason ?? undefined}>
      <svg
        viewBox="0 0 12 12"
        aria-hidden="true"
        className={`size-3 shrink-0 ${tone}`}
        fill={status === "running" ? "currentColor" : "none"}
        stroke="currentColor"
        strokeWidth="1.75"
        strokeLinecap="round"
      >
        <path d={path} />
      </svg>
      {status}
    </span>
  );
}
