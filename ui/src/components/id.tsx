import { Check, Copy } from "lucide-react";
import { Link } from "react-router";
import { useCopy } from "@/lib/use-copy";

/** How much of an id is shown: enough to tell sandboxes of one page apart. */
const SHOWN = 8;

export const shortId = (id: string) => id.replaceAll("-", "").slice(0, SHOWN);

/** An id, short, with one click to copy all of it; a link where it leads somewhere. */
export function Id({ id, to }: { id: string; to?: string }) {
  const [copied, copy] = useCopy();
  return (
    <span className="group/id inline-flex items-center gap-1 font-mono text-xs" title={id}>
      {to ? (
        <Link to={to} className="text-accent-text hover:underline">
          {shortId(id)}
        </Link>
      ) : (
        shortId(id)
      )}
      <button
        type="button"
        aria-label={copied ? "Copied" : `Copy the id ${id}`}
        onClick={(event) => {
          event.stopPropagation();
          copy(id);
        }}
        className="rounded p-0.5 text-muted opacity-0 hover:text-text focus-visible:opacity-100 group-hover/id:opacity-100"
      >
        {copied ? <Check size={12} /> : <Copy size={12} />}
      </button>
    </span>
  );
}
