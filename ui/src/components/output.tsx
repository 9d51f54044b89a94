// What a command printed: live, from any byte.
import { useEffect, useState } from "react";
import { resumed, type SseEvent } from "@/api/sse";
import { bytes } from "@/lib/format";
import { keep, OutputBox, type Piece } from "./output-box";

interface Wire {
  type: string;
  offset?: number;
  data?: string;
  encoding?: string;
  bytes?: number;
  error?: { message: string };
}

function decode(wire: Wire, decoder: TextDecoder): string {
  if (wire.encoding !== "base64") return wire.data ?? "";
  const raw = Uint8Array.from(atob(wire.data ?? ""), (letter) => letter.charCodeAt(0));
  return decoder.decode(raw, { stream: true });
}

/** Reads a command's output from a byte on and follows it, over connections that break off. */
export function useOutput(sandbox: string, exec: string, from = 0) {
  const [pieces, setPieces] = useState<Piece[]>([]);
  const [state, setState] = useState<{ at: number; ended: boolean; error?: unknown }>({
    at: from,
    ended: false,
  });
  useEffect(() => {
    const end = new AbortController();
    const decoder = new TextDecoder();
    setPieces([]);
    setState({ at: from, ended: false });
    const read = async () => {
      const path = `/api/v1/sandboxes/${sandbox}/execs/${exec}/output?follow=true&from=${from}`;
      const isLast = ({ data }: SseEvent) => /^{"type":"(exit|error)"/.test(data);
      for await (const event of resumed(path, { signal: end.signal }, isLast)) {
        if (!event.data) continue;
        const wire = JSON.parse(event.data) as Wire;
        const next = pieceOf(wire, decoder);
        if (next) setPieces((before) => keep(before, next));
        if (event.id) setState((before) => ({ ...before, at: Number(event.id) }));
      }
      if (!end.signal.aborted) setState((before) => ({ ...before, ended: true }));
    };
    read().catch((error: unknown) => {
      if (!end.signal.aborted) setState((before) => ({ ...before, ended: true, error }));
    });
    return () => end.abort();
  }, [sandbox, exec, from]);
  return { pieces, ...state };
}

function pieceOf(wire: Wire, decoder: TextDecoder): Piece | undefined {
  if (wire.type === "stdout" || wire.type === "stderr")
    return { stream: wire.type, text: decode(wire, decoder) };
  if (wire.type === "dropped")
    return { stream: "note", text: `\n[${bytes(wire.bytes ?? 0)} are no longer kept]\n` };
  if (wire.type === "error")
    return { stream: "note", text: `\n[${wire.error?.message ?? "the output broke off"}]\n` };
  return undefined;
}

export function Output({ sandbox, exec, first = 0 }: { sandbox: string; exec: string; first?: number }) {
  const [from, setFrom] = useState(first);
  const { pieces, at, ended, error } = useOutput(sandbox, exec, from);
  const raw = `/api/v1/sandboxes/${sandbox}/execs/${exec}/output?format=raw&from=${from}`;
  return (
    <OutputBox
      label="Output of the command"
      pieces={pieces}
      ended={ended}
      error={error}
      download={{ href: raw, name: `${exec}.txt` }}
    >
      {" · from byte "}
      <input
        aria-label="From byte"
        inputMode="numeric"
        defaultValue={from}
        onChange={(event) => {
          const wanted = Number(event.target.value);
          if (Number.isSafeInteger(wanted) && wanted >= first) setFrom(wanted);
        }}
        className="w-16 rounded border bg-bg px-1 text-text"
      />{" "}
      to {at}
    </OutputBox>
  );
}
