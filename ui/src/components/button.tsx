import type { ComponentProps, ReactNode } from "react";
import { cx } from "@/lib/cx";

type Kind = "primary" | "plain" | "quiet" | "danger";

const KINDS: Record<Kind, string> = {
  primary: "bg-accent-text text-on-accent border-transparent hover:opacity-90 font-medium",
  plain: "bg-surface border-line-strong hover:bg-raised",
  quiet: "border-transparent text-muted hover:text-text hover:bg-raised",
  danger: "bg-surface border-line-strong text-danger hover:border-danger",
};

interface Props extends ComponentProps<"button"> {
  kind?: Kind;
  /** 28 px instead of 32. */
  small?: boolean;
  icon?: ReactNode;
}

export const buttonClass = (kind: Kind = "plain", small = false) =>
  cx(
    "inline-flex items-center justify-center gap-1.5 rounded border whitespace-nowrap transition-colors select-none",
    "disabled:opacity-50 disabled:pointer-events-none",
    small ? "h-7 px-2 text-xs" : "h-8 px-3 text-sm",
    KINDS[kind],
  );

export function Button({ kind = "plain", small = false, icon, className, children, ...rest }: Props) {
  return (
    <button type="button" {...rest} className={cx(buttonClass(kind, small), className)}>
      {icon}
      {children}
    </button>
  );
}
