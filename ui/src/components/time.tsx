import { ago, bytes, duration } from "@/lib/format";
import { useNow } from "@/lib/use-now";

/** How long ago, with the absolute time on hover. */
export function Time({ at, suffix = "" }: { at: string; suffix?: string }) {
  const now = useNow();
  const then = new Date(at);
  return (
    <time dateTime={at} title={then.toLocaleString()} className="whitespace-nowrap">
      {ago(then.getTime(), now)}
      {suffix}
    </time>
  );
}

/** How long something has run, or ran. */
export function Duration({ ms, since }: { ms?: number; since?: string }) {
  const now = useNow();
  const shown = ms ?? (since ? Math.max(0, now - new Date(since).getTime()) : 0);
  return <span className="whitespace-nowrap">{duration(shown)}</span>;
}

export function Bytes({ count }: { count: number }) {
  return (
    <span className="whitespace-nowrap" title={`${count.toLocaleString("en-US")} bytes`}>
      {bytes(count)}
    </span>
  );
}
