import { useMemo } from "react";
import { plain } from "@/lib/plain-text";

const ROWS = 1000;

/** Fields of RFC 4180; a quote that is not closed ends with the text. */
export function parse(text: string, separator: string, most: number): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') field += letter;
      else if (text[at + 1] === '"') {
        field += '"';
        at += 1;
      } else quoted = false;
    } else if (letter === '"' && field === "") quoted = true;
    else if (letter === separator) {
      row.push(field);
      field = "";
    } else if (letter === "\n") {
      rows.push([...row, field.replace(/\r$/, "")]);
      row = [];
      field = "";
    } else field += letter;
  }
  if (field || row.length > 0) rows.push([...row, field]);
  return rows.slice(0, most);
}

/** A file of values as a table. */
export function DataTable({ text, separator }: { text: string; separator: string }) {
  const [head = [], ...rows] = useMemo(() => parse(text, separator, ROWS + 1), [text, separator]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
    <div className="h-full overflow-auto" role="region" aria-label="Table" tabIndex={0}>
      <table className="border-collapse text-xs">
        <thead>
          <tr className="sticky top-0 bg-raised text-left">
            {head.map((cell, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns do not move
              <th key={at} className="border-r border-b px-2 py-1 font-medium whitespace-nowrap">
                {plain(cell)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows do not move
            <tr key={number} className="hover:bg-raised">
              {row.map((cell, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns do not move
                <td key={at} className="max-w-96 truncate border-r border-b px-2 py-1 font-mono">
                  {plain(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length >= ROWS && (
        <p className="p-2 text-xs text-muted">The first {ROWS.toLocaleString("en-US")} rows are shown.</p>
      )}
    </div>
  );
}
