import { Id } from "@/components/id";
import { Status } from "@/components/status";
import type { Column } from "@/components/table";
import { Time } from "@/components/time";
import { Cpu, Disk, LastCommand, Memory } from "./usage";
import type { Sandbox } from "./use-rows";

export interface Selection {
  chosen: ReadonlySet<string>;
  toggle: (id: string) => void;
  /** All of the rows that are loaded, or none. */
  toggleAll: () => void;
  all: boolean;
}

const boxClass = "size-4 accent-(--accent) align-middle";

function labels(sandbox: Sandbox): string {
  return Object.entries(sandbox.labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}

export function columns(selection: Selection, owners: boolean): Column<Sandbox>[] {
  const select: Column<Sandbox> = {
    key: "select",
    title: (
      <input
        type="checkbox"
        className={boxClass}
        aria-label="Select all rows that are loaded"
        checked={selection.all}
        onChange={selection.toggleAll}
      />
    ),
    width: "1rem",
    cell: (sandbox) => (
      <input
        type="checkbox"
        className={boxClass}
        aria-label={`Select ${sandbox.id}`}
        checked={selection.chosen.has(sandbox.id)}
        onClick={(event) => event.stopPropagation()}
        onChange={() => selection.toggle(sandbox.id)}
      />
    ),
  };
  const owner: Column<Sandbox> = {
    key: "owner",
    title: "Owner",
    width: "minmax(4rem, 7rem)",
    wide: true,
    cell: (sandbox) => sandbox.user_name,
  };
  return [
    select,
    {
      key: "id",
      title: "ID",
      width: "6rem",
      cell: (sandbox) => <Id id={sandbox.id} to={`/sandboxes/${sandbox.id}`} />,
    },
    {
      key: "status",
      title: "Status",
      width: "minmax(6rem, 7rem)",
      sortable: true,
      cell: (sandbox) => <Status status={sandbox.status} reason={sandbox.status_reason} />,
    },
    {
      key: "image",
      title: "Image",
      width: "minmax(4rem, 8rem)",
      sortable: true,
      wide: true,
      cell: (sandbox) => sandbox.image,
    },
    ...(owners ? [owner] : []),
    { key: "cpu", title: "CPU", width: "6.5rem", wide: true, cell: (sandbox) => <Cpu sandbox={sandbox} /> },
    {
      key: "memory",
      title: "Memory",
      width: "8rem",
      wide: true,
      cell: (sandbox) => <Memory sandbox={sandbox} />,
    },
    { key: "disk", title: "Disk", width: "8rem", wide: true, cell: (sandbox) => <Disk sandbox={sandbox} /> },
    {
      key: "command",
      title: "Last command",
      width: "minmax(8rem, 2fr)",
      wide: true,
      cell: (sandbox) => <LastCommand sandbox={sandbox} />,
    },
    {
      key: "labels",
      title: "Labels",
      width: "minmax(6rem, 1fr)",
      wide: true,
      cell: (sandbox) => (
        <span className="text-xs text-muted" title={labels(sandbox)}>
          {labels(sandbox)}
        </span>
      ),
    },
    {
      key: "last_activity_at",
      title: "Active",
      width: "4rem",
      sortable: true,
      align: "right",
      cell: (sandbox) => <Time at={sandbox.last_activity_at} />,
    },
    {
      key: "created_at",
      title: "Age",
      width: "4rem",
      sortable: true,
      align: "right",
      wide: true,
      cell: (sandbox) => <Time at={sandbox.created_at} />,
    },
  ];
}
