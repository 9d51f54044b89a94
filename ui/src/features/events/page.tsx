// Events: what happens to sandboxes and images, as it happens, and what happened before.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { useOwnerName } from "@/api/owners";
import { useSignedIn } from "@/api/session";
import { useFeed } from "@/api/use-feed";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Input } from "@/components/field";
import { Id } from "@/components/id";
import { Loading, PageHead, useTitle } from "@/components/page";
import { SidePanel, WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Time } from "@/components/time";
import { plain } from "@/lib/plain-text";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { type Event, eventWindows, type Filters, matches } from "./query";

/** Events that came since the page was opened are kept up to this. */
const KEPT = 10_000;

const columns = (name: (id: string) => string): Column<Event>[] => [
  { key: "id", title: "Number", width: "4rem", align: "right", wide: true, cell: (event) => event.id },
  { key: "at", title: "When", width: "4rem", cell: (event) => <Time at={event.at} /> },
  {
    key: "kind",
    title: "Kind",
    width: "minmax(7rem, 10rem)",
    cell: (event) => <code className="font-mono text-xs">{event.kind}</code>,
  },
  {
    key: "sandbox",
    title: "Sandbox",
    width: "7rem",
    cell: (event) => event.sandbox_id && <Id id={event.sandbox_id} to={`/sandboxes/${event.sandbox_id}`} />,
  },
  { key: "owner", title: "Owner", width: "8rem", wide: true, cell: (event) => name(event.owner) },
  {
    key: "reason",
    title: "Reason",
    width: "minmax(8rem, 1fr)",
    wide: true,
    cell: (event) => <span className="text-muted">{event.reason && plain(event.reason)}</span>,
  },
];

/** The events of the filters, the latest first: those that were there, and those that come unless it is paused. */
function useEvents(filters: Filters, paused: boolean, name: (id: string) => string) {
  const list = useInfiniteQuery(eventWindows(filters));
  const [fresh, setFresh] = useState<Event[]>([]);
  useFeed((event) => setFresh((before) => [event, ...before].slice(0, KEPT)));
  const [frozen, setFrozen] = useState<number>();
  if (paused && frozen === undefined) setFrozen(fresh[0]?.id ?? 0);
  if (!paused && frozen !== undefined) setFrozen(undefined);
  const { data } = list;
  const rows = useMemo(() => {
    const old = data?.pages.flatMap((page) => page.events) ?? [];
    const known = old[0]?.id ?? 0;
    return { old, known };
  }, [data]);
  const came = fresh.filter((event) => event.id > rows.known && matches(event, filters, name));
  const shown = frozen === undefined ? came : came.filter((event) => event.id <= frozen);
  return { ...list, rows: [...shown, ...rows.old], waiting: came.length - shown.length };
}

export default function Events() {
  useTitle("Events");
  const { scope } = useSignedIn();
  const [at, go] = useAddress();
  const [paused, setPaused] = useState(false);
  const filters: Filters = {
    kind: at("kind") || undefined,
    owner: at("owner") || undefined,
    sandbox_id: at("sandbox_id") || undefined,
  };
  const ownerName = useOwnerName();
  const { rows, waiting, ...list } = useEvents(filters, paused, ownerName);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  const total = rows.length;
  const onRange = useCallback(
    (_first: number, last: number) => {
      if (last >= total - 20 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [total, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  const open = rows.find((event) => String(event.id) === at("event"));
  const input = (name: string, label: string) => (
    <Input
      aria-label={label}
      placeholder={label}
      className="max-w-40"
      value={at(name)}
      onChange={(event) => go({ [name]: event.target.value.trim() })}
    />
  );
  return (
    <>
      <PageHead
        title="Events"
        actions={
          <>
            {input("kind", "Kind, such as dead")}
            {scope === "admin" && input("owner", "Owner")}
            {input("sandbox_id", "Sandbox's id")}
            <Button onClick={() => setPaused(!paused)}>
              {paused ? (waiting > 0 ? `Go on, ${waiting} wait` : "Go on") : "Pause"}
            </Button>
            <CopyAs cli={cliOf(filters)} curl={curl("GET", pathOf(filters))} />
          </>
        }
      />
      <WithPanel panel={open && <Details event={open} name={ownerName} onClose={() => go({ event: "" })} />}>
        {list.error && <ErrorNote what="The events cannot be listed" error={list.error} />}
        {list.isPending && <Loading />}
        {list.data && (
          <Table
            label="Events"
            compact
            columns={columns(ownerName)}
            count={total}
            row={(index) => rows[index]}
            rowKey={(event) => String(event.id)}
            isSelected={(event) => event === open}
            onOpen={(event) => go({ event: String(event.id) }, true)}
            onRange={onRange}
            empty={
              <Empty title="No event is like that" command="atoll events -f">
                What happens to sandboxes shows here as it happens.
              </Empty>
            }
          />
        )}
      </WithPanel>
    </>
  );
}

function Details({
  event,
  name,
  onClose,
}: {
  event: Event;
  name: (id: string) => string;
  onClose: () => void;
}) {
  return (
    <SidePanel title={`${event.kind}, event ${event.id}`} label={`The event ${event.id}`} onClose={onClose}>
      <Facts>
        <Fact name="When">{new Date(event.at).toLocaleString()}</Fact>
        <Fact name="Sandbox">
          {event.sandbox_id && <Id id={event.sandbox_id} to={`/sandboxes/${event.sandbox_id}`} />}
        </Fact>
        <Fact name="Owner">{name(event.owner)}</Fact>
        <Fact name="Reason">{event.reason && plain(event.reason)}</Fact>
      </Facts>
      <pre className="rounded border bg-surface p-2 font-mono text-xs wrap-anywhere whitespace-pre-wrap">
        {plain(JSON.stringify(event.data, null, 2))}
      </pre>
    </SidePanel>
  );
}

function pathOf(filters: Filters): string {
  const query = new URLSearchParams({ after: "0" });
  for (const [key, value] of Object.entries(filters)) if (value) query.set(key, value);
  return `/api/v1/events?${query}`;
}

function cliOf({ kind, owner, sandbox_id }: Filters): string {
  const words = ["atoll events -f"];
  for (const each of kind?.split(",") ?? []) words.push("--kind", quote(each));
  if (owner) words.push("--owner", quote(owner));
  if (sandbox_id) words.push("--sandbox", quote(sandbox_id));
  return words.join(" ");
}
