import { useInfiniteQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { useEffect } from "react";
import { Link, useParams } from "react-router";
import { useSignedIn } from "@/api/session";
import { Button, buttonClass } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { Input } from "@/components/field";
import { Loading } from "@/components/page";
import { cx } from "@/lib/cx";
import { useAddress } from "@/lib/use-address";
import { useTyped } from "@/lib/use-typed";
import { threads } from "./queries";
import { titleOf } from "./text";
import { ThreadRow } from "./thread-row";

export function Threads({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { thread: current } = useParams();
  const readOnly = useSignedIn().scope === "read_only";
  const list = useInfiniteQuery(threads());
  const [at, go] = useAddress();
  const [search, setSearch] = useTyped(at("q"), (q) => go({ q }));
  const wanted = search.trim().toLowerCase();
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  // The server finds no words in titles, so all of them are read to look through.
  useEffect(() => {
    if (wanted && hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [wanted, hasNextPage, isFetchingNextPage, fetchNextPage]);
  const all = list.data?.pages.flatMap((page) => page.items) ?? [];
  const found = wanted ? all.filter((thread) => titleOf(thread).toLowerCase().includes(wanted)) : all;
  return (
    <aside
      aria-label="Conversations"
      onKeyDown={(event) => event.key === "Escape" && open && !event.defaultPrevented && onClose()}
      className={cx(
        "z-20 flex w-64 shrink-0 flex-col border-r bg-bg",
        open ? "max-md:fixed max-md:inset-x-0 max-md:top-12 max-md:bottom-0 max-md:w-auto" : "max-md:hidden",
      )}
    >
      <div className="flex min-h-12 items-center gap-2 border-b px-2 py-2">
        <Input
          type="search"
          aria-label="Search conversations"
          placeholder="Search"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
          className="min-w-0 flex-1"
        />
        {!readOnly && (
          <Link to="/chat" className={buttonClass("plain")}>
            <Plus size={14} />
            New
          </Link>
        )}
        {open && (
          <Button kind="quiet" small className="md:hidden" aria-label="Close the list" onClick={onClose}>
            <X size={14} />
          </Button>
        )}
      </div>
      {list.error && <ErrorNote what="The conversations cannot be listed" error={list.error} />}
      {list.isPending && <Loading />}
      {list.data && found.length === 0 && (
        <p className="p-4 text-muted">
          {wanted ? "No conversation is called that." : "No conversations yet."}
        </p>
      )}
      <ul className="flex min-h-0 flex-1 flex-col gap-0.5 overflow-y-auto p-2">
        {found.map((thread) => (
          <ThreadRow
            key={thread.thread_id}
            thread={thread}
            isCurrent={thread.thread_id === current}
            readOnly={readOnly}
          />
        ))}
        {hasNextPage && !wanted && (
          <li>
            <Button kind="quiet" small disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
              Older ones
            </Button>
          </li>
        )}
      </ul>
    </aside>
  );
}
