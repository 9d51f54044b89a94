import type { ReactNode } from "react";

/** What is known of a thing: a list of [`Fact`]s. */
export function Facts({ children }: { children: ReactNode }) {
  return (
    <dl className="grid grid-cols-[minmax(6rem,max-content)_minmax(0,1fr)] gap-x-4 gap-y-1.5 text-sm">
      {children}
    </dl>
  );
}

/** One name and its value; nothing where there is no value. */
export function Fact({ name, children }: { name: string; children: ReactNode }) {
  if (children === null || children === undefined || children === "" || children === false) return null;
  return (
    <>
      <dt className="text-muted">{name}</dt>
      <dd className="min-w-0 break-words">{children}</dd>
    </>
  );
}
