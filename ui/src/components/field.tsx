import { type ComponentProps, type ReactNode, useId } from "react";
import { cx } from "@/lib/cx";

export const inputClass =
  "h-8 w-full rounded border border-line-strong bg-surface px-2 text-sm focus:border-accent focus:outline-none disabled:opacity-50";

interface FieldProps {
  label: string;
  /** What the server says about it. */
  error?: string;
  /** What applies when it is left empty, or what it means. */
  hint?: ReactNode;
  children: (props: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => ReactNode;
  className?: string;
}

/** A label, its control, and below it the error or the hint. */
export function Field({ label, error, hint, children, className }: FieldProps) {
  const id = useId();
  const note = `${id}-note`;
  return (
    <div className={cx("flex flex-col gap-1", className)}>
      <label htmlFor={id} className="text-xs font-medium">
        {label}
      </label>
      {children({ id, "aria-describedby": note, "aria-invalid": error !== undefined })}
      <div id={note} className={cx("min-h-4 text-xs", error ? "text-danger" : "text-muted")}>
        {error ?? hint}
      </div>
    </div>
  );
}

export function Input({ className, ...rest }: ComponentProps<"input">) {
  return <input autoComplete="off" spellCheck={false} {...rest} className={cx(inputClass, className)} />;
}

export function Select({ className, ...rest }: ComponentProps<"select">) {
  return <select {...rest} className={cx(inputClass, className)} />;
}

export function FileInput({ className, ...rest }: ComponentProps<"input">) {
  return (
    <input
      {...rest}
      type="file"
      className={cx(
        "max-w-full text-sm text-muted file:mr-2 file:h-8 file:rounded file:border file:border-line-strong",
        "file:bg-surface file:px-3 file:text-sm file:text-text",
        className,
      )}
    />
  );
}
