import type { ReactNode } from "react";
import { useEffect } from "react";

/** The title of the tab, and of the page for screen readers. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Atoll`;
  }, [title]);
}

interface Props {
  title: string;
  /** To the right of the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** A page with a heading. Lists that fill the height use [`PageHead`] alone. */
export function Page({ title, actions, children }: Props) {
  useTitle(title);
  return (
    <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
      <PageHead title={title} actions={actions} />
      <div className="flex flex-col gap-4 p-4">{children}</div>
    </div>
  );
}

export function PageHead({ title, actions }: { title: ReactNode; actions?: ReactNode }) {
  return (
    <div className="flex min-h-12 flex-wrap items-center justify-between gap-2 border-b px-4 py-2">
      <h1 className="text-base font-medium">{title}</h1>
      {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
    </div>
  );
}

/** A bordered part of a page. */
export function Panel({
  title,
  actions,
  children,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section className="rounded border bg-surface">
      {title && (
        <div className="flex min-h-9 items-center justify-between gap-2 border-b px-3 py-1">
          <h2 className="text-sm font-medium">{title}</h2>
          {actions && <div className="flex items-center gap-1">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

/** What shows while a page's first answer is on its way. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p role="status" className="p-4 text-muted">
      {what}…
    </p>
  );
}
