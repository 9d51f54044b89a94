// The cells of a notebook over a reload: the tab's session storage has them, with what came of them as far as it fits. A
// cell that ran is not run again; its run has an id by which the server is asked for it.
import { keepDraft, readDraft } from "@/lib/use-draft";
import type { Cell } from "./cells";

/** A run that was begun before this is not asked for: the server may have forgotten it, and would run the cell again. */
const ASKED_FOR = 60 * 60_000;

const nameOf = (sandbox: string) => `notebook.${sandbox}`;

/** Without what came of them, where all of it is too much for the storage. */
const bare = (cell: Cell): Cell =>
  cell.state === "ended"
    ? {
        ...cell,
        output: [],
        displays: [],
        result: undefined,
        error: "its result was too large to be kept here",
      }
    : { ...cell, output: [], displays: [] };

export function keepCells(sandbox: string, cells: Cell[]): void {
  for (const some of [cells, cells.map(bare), []]) {
    try {
      keepDraft(nameOf(sandbox), some.length > 0 ? JSON.stringify(some) : "");
      return;
    } catch (error) {
      // The storage is full.
      if (!(error instanceof DOMException)) throw error;
    }
  }
}

/** What was kept. The end of a cell whose run the console does not ask for any more is unknown. */
export function keptCells(sandbox: string): Cell[] {
  let cells: Cell[] = [];
  try {
    cells = JSON.parse(readDraft(nameOf(sandbox)) || "[]") as Cell[];
  } catch {
    // Of another version of the console.
  }
  return cells.map((cell) => {
    if (cell.state !== "waits" && cell.state !== "runs") return cell;
    if (cell.run && Date.now() - cell.run.at < ASKED_FOR) return cell;
    return { ...cell, state: "ended", run: undefined, error: "it is not known how it ended" };
  });
}
