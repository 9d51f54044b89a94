import type { ReactNode } from "react";

export type Tone = "works" | "waits" | "lost" | "verified" | "off";

/** As of a sandbox's status: a word and a shape, which colour only repeats. */
const SHAPES: Record<Tone, { path: string; color: string }> = {
  works: { path: "M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", color: "text-accent" },
  waits: { path: "M6 1.5a4.5 4.5 0 1 1-4.5 4.5", color: "text-warn" },
  lost: { path: "M3 3l6 6M9 3l-6 6", color: "text-danger" },
  verified: { path: "M2.5 6.5l2.5 2.5 4.5-6", color: "text-ok" },
  off: { path: "M2.5 6h7", color: "text-muted" },
};

export function Mark({ tone, children, title }: { tone: Tone; children: ReactNode; title?: string }) {
  const { path, color } = SHAPES[tone];
  return (
    <span className="inline-flex items-center gap-1.5 align-middle whitespace-nowrap" title={title}>
      <svg
        viewBox="0 0 12 12"
        aria-hidden="true"
        className={`size-3 shrink-0 ${color}`}
        fill={tone === "works" ? "currentColor" : "none"}
        stroke="currentColor"
        strokeWidth="1.75"
        strokeLinecap="round"
      >
        <path d={path} />
      </svg>
      {children}
    </span>
  );
}
