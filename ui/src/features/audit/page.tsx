// The audit explorer: every operation that changed something or returned contents of files, the latest first.
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, RotateCw, ShieldCheck } from "lucide-react";
import { useCallback } from "react";
import { useOwnerName } from "@/api/owners";
import { useSignedIn } from "@/api/session";
import { Button, buttonClass } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Id } from "@/components/id";
import { Loading, PageHead, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Duration, Time } from "@/components/time";
import { count, duration } from "@/lib/format";
import { visible } from "@/lib/plain-text";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { AuditFilters } from "./filters";
import { Operation } from "./operation";
import { Outcome } from "./outcome";
import { type Entry, type Filters, filtersOf, summary, trail } from "./query";
import { Verify } from "./verify";

const columns = (name: (id: string) => string): Column<Entry>[] => [
  { key: "at", title: "Begun", width: "4rem", cell: (entry) => <Time at={entry.at} /> },
  {
    key: "kind",
    title: "Operation",
    width: "minmax(7rem, 10rem)",
    cell: (entry) => <code className="font-mono text-xs">{entry.kind}</code>,
  },
  {
    key: "detail",
    title: "Detail",
    width: "minmax(6rem, 1fr)",
    wide: true,
    cell: (entry) => <code className="font-mono text-xs">{visible(entry.detail)}</code>,
  },
  { key: "outcome", title: "Outcome", width: "8rem", cell: (entry) => <Outcome entry={entry} /> },
  {
    key: "sandbox",
    title: "Sandbox",
    width: "7rem",
    wide: true,
    cell: (entry) => entry.sandbox_id && <Id id={entry.sandbox_id} to={`/sandboxes/${entry.sandbox_id}`} />,
  },
  { key: "owner", title: "Owner", width: "7rem", wide: true, cell: (entry) => name(entry.owner) },
  {
    key: "took",
    title: "Took",
    width: "5rem",
    align: "right",
    wide: true,
    cell: (entry) => entry.ended && <Duration ms={entry.ended.duration_ms} />,
  },
];

export default function Audit() {
  useTitle("Audit");
  const { scope } = useSignedIn();
  const client = useQueryClient();
  const [at, go] = useAddress();
  const filters = filtersOf(at);
  const list = useInfiniteQuery(trail(filters));
  const rows = list.data?.pages.flatMap((page) => page.entries) ?? [];
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  const total = rows.length;
  const onRange = useCallback(
    (_first: number, last: number) => {
      if (last >= total - 20 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [total, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  const ownerName = useOwnerName();
  const open = at("operation");
  const close = () => go({ operation: "", verify: "" });
  const panel = at("verify") ? (
    <Verify onClose={close} />
  ) : open ? (
    <Operation key={open} id={open} onClose={close} />
  ) : undefined;
  return (
    <>
      <PageHead
        title="Audit"
        actions={
          <>
            <Button
              kind="quiet"
              small
              icon={<RotateCw size={14} />}
              onClick={() => void client.resetQueries({ queryKey: ["audit"] })}
            >
              Look again
            </Button>
            <CopyAs cli={cliOf(filters)} curl={curl("GET", pathOf(filters))} />
            {scope === "admin" && (
              <>
                <a className={buttonClass()} href="/api/v1/audit/export" download="audit.jsonl">
                  <Download size={14} /> Export
                </a>
                <Button
                  kind="primary"
                  icon={<ShieldCheck size={14} />}
                  onClick={() => go({ verify: "1", operation: "" }, true)}
                >
                  Verify
                </Button>
              </>
            )}
          </>
        }
      />
      <AuditFilters at={at} go={go} />
      <Sums filters={filters} />
      <WithPanel panel={panel}>
        {list.error && <ErrorNote what="The trail cannot be read" error={list.error} />}
        {list.isPending && <Loading />}
        {list.data && (
          <Table
            label="Operations"
            compact
            columns={columns(ownerName)}
            count={total}
            row={(index) => rows[index]}
            rowKey={(entry) => entry.operation_id}
            isSelected={(entry) => entry.operation_id === open}
            onOpen={(entry) => go({ operation: entry.operation_id, verify: "" }, true)}
            onRange={onRange}
            empty={
              <Empty title="No operation is like that" command="atoll audit ls">
                Everything that changes something, or reads the contents of files, is a row here.
              </Empty>
            }
          />
        )}
      </WithPanel>
    </>
  );
}

/** What the operations of the filters add up to. */
function Sums({ filters }: { filters: Filters }) {
  const { data } = useQuery(summary(filters));
  return (
    <p className="border-b px-4 py-1.5 text-xs text-muted" role="status">
      {data
        ? `${count(data.total.count)} operations, ${count(data.total.ok)} ok, ${count(data.total.failed)} not, ${duration(data.total.mean_ms)} in the mean`
        : "…"}
    </p>
  );
}

function pathOf(filters: Filters): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters))
    if (value !== undefined) query.set(name, String(value));
  return query.size > 0 ? `/api/v1/audit?${query}` : "/api/v1/audit";
}

const FLAGS: Partial<Record<keyof Filters, string>> = {
  sandbox_id: "sandbox",
  key_id: "key",
  exit_code: "exit-code",
};

function cliOf(filters: Filters): string {
  const words = ["atoll audit ls"];
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined) continue;
    const flag = `--${FLAGS[name as keyof Filters] ?? name}`;
    words.push(value === true ? flag : `${flag} ${quote(String(value))}`);
  }
  return words.join(" ");
}
