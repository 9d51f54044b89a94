// The table of every list: the rows that are in view are in the document, however many there are. It is a grid for
// keyboard and screen reader: arrow keys move through rows, Enter opens one.
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, ArrowUp } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { cx } from "@/lib/cx";

export interface Column<Row> {
  /** What the server sorts by, where `sortable`. */
  key: string;
  title: ReactNode;
  /** A track of CSS grid: `8rem`, `minmax(6rem, 1fr)`. */
  width: string;
  sortable?: boolean;
  align?: "right";
  /** Not shown on narrow screens. */
  wide?: boolean;
  cell: (row: Row) => ReactNode;
}

export interface Sort {
  by: string;
  descending: boolean;
}

interface Props<Row> {
  label: string;
  columns: Column<Row>[];
  /** How many rows there are; `row` may not have all of them yet. */
  count: number;
  row: (index: number) => Row | undefined;
  rowKey: (row: Row) => string;
  onOpen?: (row: Row) => void;
  isSelected?: (row: Row) => boolean;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  /** The first and last row in view, so that their data can be asked for. */
  onRange?: (first: number, last: number) => void;
  compact?: boolean;
  /** Shown instead of rows where there are none. */
  empty?: ReactNode;
}

export function Table<Row>(props: Props<Row>) {
  const { label, columns, count, row, rowKey, onOpen, isSelected, sort, onSort, onRange, compact, empty } =
    props;
  const scroller = useRef<HTMLDivElement>(null);
  const height = compact ? 28 : 36;
  const rows = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 8,
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  useEffect(() => onRange?.(first, last), [first, last, onRange]);
  const tracks = columns.map((column) => column.width).join(" ");
  const wide = columns
    .filter((column) => !column.wide)
    .map((column) => column.width)
    .join(" ");

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    const here = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
    if (!step || !here || event.target !== here) return;
    event.preventDefault();
    const next = Math.min(count - 1, Math.max(0, Number(here.dataset.row) + step));
    rows.scrollToIndex(next);
    requestAnimationFrame(() =>
      scroller.current?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus(),
    );
  };

  return (
    <div
      ref={scroller}
      className="min-h-0 flex-1 overflow-auto"
      style={{ "--tracks": tracks, "--narrow": wide } as never}
    >
      <div
        role="grid"
        aria-label={label}
        aria-rowcount={count + 1}
        tabIndex={-1}
        onKeyDown={onKeyDown}
        className="min-w-fit"
      >
        <div
          role="row"
          aria-rowindex={1}
          tabIndex={-1}
          className={cx(ROW, "sticky top-0 z-10 h-8 bg-bg text-xs text-muted")}
        >
          {columns.map((column) => (
            <HeadCell key={column.key} column={column} sort={sort} onSort={onSort} />
          ))}
        </div>
        <div className="relative" style={{ height: rows.getTotalSize() }}>
          {items.map((item) => {
            const data = row(item.index);
            return (
              <div
                key={data ? rowKey(data) : `row ${item.index}`}
                role="row"
                aria-rowindex={item.index + 2}
                aria-selected={data && isSelected ? isSelected(data) : undefined}
                data-row={item.index}
                tabIndex={0}
                onClick={() => data && onOpen?.(data)}
                onKeyDown={(event) =>
                  event.key === "Enter" && event.target === event.currentTarget && data && onOpen?.(data)
                }
                className={cx(
                  ROW,
                  "absolute inset-x-0 hover:bg-raised focus-visible:outline-offset-[-2px]",
                  onOpen && "cursor-pointer",
                  data && isSelected?.(data) && "bg-raised",
                )}
                style={{ height, top: item.start }}
              >
                {columns.map((column) => (
                  <div
                    key={column.key}
                    role="gridcell"
                    tabIndex={-1}
                    className={cx(
                      "min-w-0 truncate",
                      column.align === "right" && "text-right",
                      column.wide && "max-md:hidden",
                    )}
                  >
                    {data ? column.cell(data) : <span className="text-muted">·</span>}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {count === 0 && empty}
    </div>
  );
}

const ROW =
  "grid items-center gap-3 border-b px-4 [grid-template-columns:var(--narrow)] md:[grid-template-columns:var(--tracks)]";

function HeadCell<Row>({
  column,
  sort,
  onSort,
}: {
  column: Column<Row>;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
}) {
  const mine = sort?.by === column.key;
  const order = mine ? (sort.descending ? "descending" : "ascending") : undefined;
  const style = cx(
    "min-w-0 truncate",
    column.align === "right" && "text-right",
    column.wide && "max-md:hidden",
  );
  return (
    <div role="columnheader" aria-sort={order} tabIndex={-1} className={style}>
      {column.sortable && onSort ? (
        <button
          type="button"
          className={cx("inline-flex items-center gap-1 rounded hover:text-text", mine && "text-text")}
          onClick={() => onSort({ by: column.key, descending: mine ? !sort.descending : true })}
        >
          {column.title}
          {mine && (sort.descending ? <ArrowDown size={12} /> : <ArrowUp size={12} />)}
        </button>
      ) : (
        column.title
      )}
    </div>
  );
}
