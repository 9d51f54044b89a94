import { count } from "@/lib/format";
import { Button } from "./button";

interface Props {
  /** From 1. */
  page: number;
  size: number;
  total: number;
  onPage: (page: number) => void;
}

/** Steps through the pages of a list; nothing where all of it is in view. */
export function Pager({ page, size, total, onPage }: Props) {
  if (total <= size && page === 1) return null;
  const last = Math.max(1, Math.ceil(total / size));
  return (
    <div className="flex items-center justify-end gap-2 border-t px-4 py-2 text-xs text-muted">
      <span>
        {count((page - 1) * size + 1)} to {count(Math.min(total, page * size))} of {count(total)}
      </span>
      <Button small disabled={page <= 1} onClick={() => onPage(page - 1)}>
        Before
      </Button>
      <Button small disabled={page >= last} onClick={() => onPage(page + 1)}>
        Next
      </Button>
    </div>
  );
}
