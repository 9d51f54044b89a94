// The page of one sandbox: what it is, what can be done with it, and a tab for each way of working in it.
import { useQuery } from "@tanstack/react-query";
import { NavLink, Outlet } from "react-router";
import { sandbox } from "@/api/queries";
import { ErrorNote } from "@/components/error-note";
import { Id, shortId } from "@/components/id";
import { Loading, useTitle } from "@/components/page";
import { Status } from "@/components/status";
import { cx } from "@/lib/cx";
import { Actions } from "./actions";
import { useSandboxId } from "./queries";
import { TABS } from "./tabs";

export default function SandboxPage() {
  const id = useSandboxId();
  const { data, error, refetch } = useQuery(sandbox(id));
  useTitle(`Sandbox ${shortId(id)}`);
  if (error && !data) {
    return (
      <div className="p-4">
        <ErrorNote what="This sandbox cannot be shown" error={error} retry={() => void refetch()} />
      </div>
    );
  }
  if (!data) return <Loading />;
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div className="flex min-h-12 flex-wrap items-center justify-between gap-2 px-4 py-2">
        <h1 className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-1">
          <Id id={id} />
          <Status status={data.status} reason={data.status_reason} />
          <span className="text-muted">{data.image}</span>
          {Object.entries(data.labels).map(([name, value]) => (
            <span
              key={name}
              className="max-w-48 truncate rounded border bg-raised px-1.5 text-xs"
              title={`${name}=${value}`}
            >
              {name}={value}
            </span>
          ))}
        </h1>
        <Actions sandbox={data} />
      </div>
      {data.status_reason && data.status !== "running" && (
        <p className="px-4 pb-2 text-muted">{data.status_reason}</p>
      )}
      <nav aria-label="Parts of the sandbox" className="flex shrink-0 overflow-x-auto border-b px-2">
        {TABS.map(({ path, title }) => (
          <NavLink
            key={path}
            to={path ? `/sandboxes/${id}/${path}` : `/sandboxes/${id}`}
            end={!path}
            className={({ isActive }) =>
              cx(
                "-mb-px shrink-0 border-b-2 px-2 py-1.5",
                isActive ? "border-accent font-medium" : "border-transparent text-muted hover:text-text",
              )
            }
          >
            {title}
          </NavLink>
        ))}
      </nav>
      <Outlet />
    </div>
  );
}
