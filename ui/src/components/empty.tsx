import type { ReactNode } from "react";
import { CopyLine } from "./copy-as";

/** Nothing is here yet: says what would be, and the first step. */
export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
}) {
  return (
    <div className="mx-auto flex max-w-xl flex-col items-center gap-3 px-4 py-16 text-center">
      <p className="text-base font-medium">{title}</p>
      {children && <div className="text-muted">{children}</div>}
      {command && <CopyLine text={command} />}
    </div>
  );
}
