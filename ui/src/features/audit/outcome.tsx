import { Mark, type Tone } from "@/components/mark";
import type { Entry } from "./query";

const TONES: Record<string, Tone> = { ok: "works", failed: "lost", refused: "lost", lost: "off" };

export function Outcome({ entry }: { entry: Entry }) {
  if (!entry.ended) return <Mark tone="waits">running</Mark>;
  const { outcome, exit_code } = entry.ended;
  return <Mark tone={TONES[outcome] ?? "off"}>{exit_code ? `${outcome}, exit ${exit_code}` : outcome}</Mark>;
}
