// The cells of a notebook on this page. They stay while the tab is open, also over a reload; the kernel keeps the variables.
// A cell runs on without this page and without the server: it is asked for again by the id of its run.
import { type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef } from "react";
import type { Schemas } from "@/api/client";
import { LOCAL, refreshSandbox } from "@/api/queries";
import { resumed } from "@/api/sse";
import { randomId } from "@/lib/random-id";
import { keepCells, keptCells } from "./kept-cells";

export type Result = Schemas["CellResult"];
export type Display = Schemas["DisplayItem"];

export interface Cell {
  key: number;
  code: string;
  state: "new" | "waits" | "runs" | "ended";
  output: { stream: "stdout" | "stderr"; text: string }[];
  displays: Display[];
  result?: Result;
  /** It was not run, or its end is not known. */
  error?: string;
  /** Until it has ended: by what it is asked for again. */
  run?: { id: string; kernel: string; at: number };
}

interface Wire extends Partial<Result> {
  type: "started" | "began" | "output" | "display" | "ended" | "error";
  stream?: "stdout" | "stderr";
  text?: string;
  display?: Display;
}

/** In the place of the error of a cell's code: why nothing more is known of it. */
type Failed = { message: string } | undefined;

/** How long a cell may run, in seconds; it can be interrupted before. */
const TIMEOUT = 600;
/** More output of one cell is not kept on the page, in characters. */
const KEPT = 200_000;

/** How long a change may wait before it is kept, in milliseconds. */
const GATHER = 300;

let last = 0;

export function fresh(code = ""): Cell {
  last += 1;
  return { key: last, code, state: "new", output: [], displays: [] };
}

const keyOf = (sandbox: string) => ["notebook", sandbox];

/** Those that were kept, under keys of this page. */
function first(sandbox: string): Cell[] {
  const kept = keptCells(sandbox).map((cell) => ({ ...cell, key: fresh().key }));
  return kept.length > 0 ? kept : [fresh()];
}

function after(cell: Cell, wire: Wire): Cell {
  switch (wire.type) {
    case "started":
      // A stream that is read again begins with the cell's first event.
      return { ...cell, output: [], displays: [] };
    case "began":
      return { ...cell, state: "runs" };
    case "output": {
      const piece = { stream: wire.stream ?? "stdout", text: wire.text ?? "" };
      const end = cell.output.at(-1);
      const joined =
        end?.stream === piece.stream
          ? [...cell.output.slice(0, -1), { ...end, text: (end.text + piece.text).slice(-KEPT) }]
          : [...cell.output, piece];
      return { ...cell, output: joined };
    }
    case "display":
      return wire.display ? { ...cell, displays: [...cell.displays, wire.display] } : cell;
    case "ended":
      return { ...cell, state: "ended", run: undefined, result: wire as Result };
    case "error": {
      const message = (wire.error as Failed)?.message ?? "the kernel broke";
      return { ...cell, state: "ended", run: undefined, error: message };
    }
    default:
      return cell;
  }
}

/** Of each sandbox what waits to be kept. */
const waiting = new Map<string, ReturnType<typeof setTimeout>>();

function keep(client: QueryClient, sandbox: string): void {
  clearTimeout(waiting.get(sandbox));
  waiting.delete(sandbox);
  const cells = client.getQueryData<Cell[]>(keyOf(sandbox));
  // After signing out there are none, and nothing is left behind.
  if (cells) keepCells(sandbox, cells);
}

/** The runs that this page follows. */
const followed = new Set<string>();

export function useCells(sandbox: string) {
  const client = useQueryClient();
  const shown = useRef(sandbox);
  shown.current = sandbox;
  const { data: cells = [] } = useQuery<Cell[]>({
    queryKey: keyOf(sandbox),
    queryFn: () => first(sandbox),
    initialData: () => first(sandbox),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
    meta: LOCAL,
  });
  const change = useCallback(
    (with_: (before: Cell[]) => Cell[], of = shown.current) => {
      client.setQueryData<Cell[]>(keyOf(of), (before) => with_(before ?? []));
      if (!waiting.has(of))
        waiting.set(
          of,
          setTimeout(() => keep(client, of), GATHER),
        );
    },
    [client],
  );
  const one = useCallback(
    (wanted: number, with_: (cell: Cell) => Cell, of?: string) =>
      change((before) => before.map((cell) => (cell.key === wanted ? with_(cell) : cell)), of),
    [change],
  );
  /** Begins the run of a cell, or joins it where the server knows its id. */
  const follow = useCallback(
    async ({ key, code }: Cell, { id, kernel }: NonNullable<Cell["run"]>) => {
      if (followed.has(id)) return;
      followed.add(id);
      const path = `/api/v1/sandboxes/${sandbox}/kernels/${kernel}/execute`;
      const headers = { "Content-Type": "application/json", "Idempotency-Key": id };
      const body = JSON.stringify({ code, stream: true, timeout: TIMEOUT });
      // It is followed to its end, whatever page is shown.
      const { signal } = new AbortController();
      const isLast = ({ data }: { data: string }) => /^{"type":"(ended|error)"/.test(data);
      try {
        for await (const event of resumed(path, { method: "POST", headers, body, signal }, isLast)) {
          if (!event.data) continue;
          const wire = JSON.parse(event.data) as Wire;
          one(key, (cell) => after(cell, wire), sandbox);
        }
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        one(key, (cell) => ({ ...cell, state: "ended", run: undefined, error: message }), sandbox);
      } finally {
        followed.delete(id);
      }
      await refreshSandbox(client, sandbox);
    },
    [client, one, sandbox],
  );
  const run = (kernel: string, wanted: number, code: string) => {
    const run = { id: randomId(), kernel, at: Date.now() };
    const cell: Cell = { ...fresh(code), key: wanted, state: "waits", run };
    one(wanted, () => cell);
    if (cells.at(-1)?.key === wanted) change((before) => [...before, fresh()]);
    // It is kept before it runs, so that a reload at any moment finds it.
    keep(client, sandbox);
    return follow(cell, run);
  };
  // Those that ran when the page was left.
  useEffect(() => {
    for (const cell of client.getQueryData<Cell[]>(keyOf(sandbox)) ?? []) {
      if (cell.run) void follow(cell, cell.run);
    }
    const leave = () => keep(client, sandbox);
    addEventListener("pagehide", leave);
    return () => removeEventListener("pagehide", leave);
  }, [client, sandbox, follow]);
  return { cells, change, one, run };
}
