import { File as FileIcon, X } from "lucide-react";
import { visibleLine } from "@/lib/plain-text";

/** A file by its name. */
export function FileChip({ name, note, onRemove }: { name: string; note?: string; onRemove?: () => void }) {
  return (
    <span className="inline-flex h-6 max-w-64 items-center gap-1 rounded border bg-raised px-1.5 text-xs">
      <FileIcon size={12} className="shrink-0" aria-hidden="true" />
      <span className="truncate">{visibleLine(name)}</span>
      {note && <span className="shrink-0 text-muted">{note}</span>}
      {onRemove && (
        <button
          type="button"
          aria-label={`Leave ${visibleLine(name)} out`}
          onClick={onRemove}
          className="rounded text-muted hover:text-text"
        >
          <X size={12} />
        </button>
      )}
    </span>
  );
}
