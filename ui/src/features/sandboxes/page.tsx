// The list of sandboxes.
import { Plus } from "lucide-react";
import { useState } from "react";
import { useNavigate } from "react-router";
import type { ListQuery } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, PageHead, useTitle } from "@/components/page";
import { Table } from "@/components/table";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { Bulk } from "./bulk";
import { columns } from "./columns";
import { Create } from "./create";
import { Filters } from "./filters";
import { UsagesShown, useUsages } from "./usage";
import { useRows } from "./use-rows";

const SORTS = ["created_at", "last_activity_at", "status", "image", "exec_count"] as const;

const sortOf = (name: string) => SORTS.find((each) => each === name) ?? "created_at";

function queryOf(get: (name: string) => string): ListQuery {
  const given = { status: get("status"), search: get("q"), image: get("image") };
  const named = Object.entries(given).filter(([, value]) => value);
  const order = get("order") === "asc" ? "asc" : "desc";
  return { ...Object.fromEntries(named), sort_by: sortOf(get("sort")), sort_order: order };
}

/** The same list as commands. */
function asCommands(query: ListQuery, everyone: boolean) {
  const path = everyone ? "/api/v1/admin/sandboxes" : "/api/v1/sandboxes";
  const words = ["atoll", "ls"];
  if (query.status) words.push("--status", query.status);
  if (query.search) words.push("--search", quote(query.search));
  if (query.image) words.push("--image", quote(query.image));
  return {
    cli: words.join(" "),
    curl: curl("GET", `${path}?${new URLSearchParams(query as Record<string, string>)}`),
  };
}

/** The rows that are chosen. Another search, filter or order begins with none: what is done to them is done to rows that were
 * seen together. */
function useChosen(list: string) {
  const [shown, setShown] = useState(list);
  const [chosen, setChosen] = useState(NONE);
  if (shown !== list) {
    setShown(list);
    setChosen(NONE);
  }
  return [shown === list ? chosen : NONE, setChosen] as const;
}

const NONE: ReadonlySet<string> = new Set();

export default function Sandboxes() {
  useTitle("Sandboxes");
  const navigate = useNavigate();
  const { scope } = useSignedIn();
  const [get, set] = useAddress();
  const everyone = scope === "admin" && get("of") !== "me";
  const query = queryOf(get);
  const rows = useRows(query, everyone);
  const [chosen, setChosen] = useChosen(JSON.stringify([query, everyone]));
  const inView = new Set(rows.inView.map(({ id }) => id));
  const usages = useUsages(rows.inView);
  const mayWrite = scope !== "read_only";
  const creating = mayWrite && get("create") !== "";
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const all = rows.loaded.length > 0 && rows.loaded.every((one) => chosen.has(one.id));
  const toggleAll = () => setChosen(all ? new Set() : new Set(rows.loaded.map((one) => one.id)));
  const shown = columns({ chosen, toggle, toggleAll, all }, everyone);
  const filtered = Boolean(query.status || query.search || query.image);
  return (
    <>
      <PageHead
        title="Sandboxes"
        actions={
          <>
            <CopyAs {...asCommands(query, everyone)} />
            {mayWrite && (
              <Button kind="primary" icon={<Plus size={14} />} onClick={() => set({ create: "1" })}>
                Create
              </Button>
            )}
          </>
        }
      />
      {creating && <Create onClose={() => set({ create: "" })} />}
      <Filters get={get} set={set} counts={rows.counts} />
      {chosen.size > 0 && mayWrite && (
        <Bulk
          chosen={chosen}
          outOfView={[...chosen].filter((id) => !inView.has(id)).length}
          onDone={() => setChosen(new Set())}
        />
      )}
      {rows.error !== undefined && (
        <div className="p-4">
          <ErrorNote what="The sandboxes cannot be listed" error={rows.error} retry={rows.retry} />
        </div>
      )}
      {rows.pending ? (
        <Loading what="Listing sandboxes" />
      ) : (
        <UsagesShown value={usages}>
          <Table
            label="Sandboxes"
            columns={mayWrite ? shown : shown.slice(1)}
            count={rows.count}
            row={rows.row}
            rowKey={(row) => row.id}
            onOpen={(row) => void navigate(`/sandboxes/${row.id}`)}
            isSelected={(row) => chosen.has(row.id)}
            sort={{ by: query.sort_by ?? "created_at", descending: query.sort_order !== "asc" }}
            onSort={({ by, descending }) => set({ sort: by, order: descending ? "desc" : "asc" })}
            onRange={rows.onRange}
            empty={
              rows.error === undefined &&
              (filtered ? <NothingFound clear={() => set({ status: "", q: "", image: "" })} /> : <First />)
            }
          />
        </UsagesShown>
      )}
    </>
  );
}

function First() {
  return (
    <Empty title="No sandboxes yet" command="atoll create">
      A sandbox is a small Linux computer of its own: create one above, or with the CLI or an SDK.
    </Empty>
  );
}

function NothingFound({ clear }: { clear: () => void }) {
  return (
    <Empty title="No sandbox matches">
      <Button small onClick={clear}>
        Clear the filters
      </Button>
    </Empty>
  );
}
