import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { asApiError } from "@/api/errors";
import { Button } from "./button";

interface Props {
  /** What was asked, as the start of a sentence: "The sandbox was not made". */
  what: string;
  error: unknown;
  retry?: () => void;
  children?: ReactNode;
}

/** What was asked, what came back, and the next step. A refused limit shows both figures. */
export function ErrorNote({ what, error, retry, children }: Props) {
  const { message, details, code, status } = asApiError(error);
  const { asked, allowed } = details;
  return (
    <div
      role="alert"
      className="flex items-start gap-2 rounded border border-danger/50 bg-surface p-3 text-sm"
    >
      <TriangleAlert size={16} className="mt-0.5 shrink-0 text-danger" aria-hidden="true" />
      <div className="min-w-0 flex-1">
        <p className="break-words">
          <strong className="font-medium">{what}:</strong> {message}
        </p>
        {asked !== undefined && allowed !== undefined && (
          <p className="mt-1 text-muted">
            asked <b className="text-text">{String(asked)}</b>, allowed{" "}
            <b className="text-text">{String(allowed)}</b>
          </p>
        )}
        <p className="mt-1 font-mono text-xs text-muted">
          {code}
          {status > 0 && ` · ${status}`}
        </p>
        {children}
      </div>
      {retry && (
        <Button small onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}
