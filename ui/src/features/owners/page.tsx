// Owners: which plan each has, and what of it is used.
import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { settings } from "@/api/queries";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, PageHead, useTitle } from "@/components/page";
import { Pager } from "@/components/pager";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { count } from "@/lib/format";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { DEFAULT_PLAN, type Owner, owners, quotaOf, type Settings, SIZE, useFreshOwners } from "./model";
import { OwnerDetails } from "./owner";
import { PlanForm } from "./plan";

const columns = (known: Settings): Column<Owner>[] => [
  { key: "name", title: "Owner", width: "minmax(7rem, 1fr)", cell: ({ owner }) => owner },
  { key: "plan", title: "Plan", width: "6rem", cell: ({ plan }) => plan },
  { key: "keys", title: "Keys", width: "5rem", align: "right", wide: true, cell: ({ keys }) => count(keys) },
  {
    key: "alive",
    title: "At a time",
    width: "6rem",
    align: "right",
    cell: (owner) => <Used used={owner.sandboxes_at_a_time} most={quotaOf(known, owner.plan).max_per_user} />,
  },
  {
    key: "all",
    title: "In all",
    width: "6rem",
    align: "right",
    wide: true,
    cell: (owner) => <Used used={owner.sandboxes} most={quotaOf(known, owner.plan).sandboxes} />,
  },
];

function Used({ used, most }: { used: number; most: number }) {
  const full = used >= most;
  return (
    <span className={full ? "text-warn" : undefined} title={full ? "the plan is used up" : undefined}>
      {used} of {most}
    </span>
  );
}

export default function Owners() {
  useTitle("Owners");
  const [at, go] = useAddress();
  useFreshOwners();
  const page = Number(at("page") || 1);
  const list = useQuery(owners(page, at("q")));
  const known = useQuery(settings());
  const error = list.error ?? known.error;
  const open = at("owner");
  const items = list.data?.items ?? [];
  const close = () => go({ owner: "", plan: "" });
  const panel = known.data ? (
    at("plan") ? (
      <PlanForm key={at("plan")} settings={known.data} plan={at("plan")} onClose={close} />
    ) : open ? (
      <OwnerDetails key={open} id={open} settings={known.data} onClose={close} />
    ) : undefined
  ) : undefined;
  return (
    <>
      <PageHead
        title="Owners"
        actions={
          <>
            <input
              type="search"
              aria-label="Search the owners"
              placeholder="Part of a name"
              value={at("q")}
              onChange={(event) => go({ q: event.target.value, page: "" })}
              className="h-7 w-40 rounded border border-line-strong bg-surface px-2 text-xs"
            />
            <CopyAs curl={curl("GET", "/api/v1/admin/owners")} />
            <Button
              kind="primary"
              icon={<Plus size={14} />}
              onClick={() => go({ plan: "new", owner: "" }, true)}
            >
              Create a plan
            </Button>
          </>
        }
      />
      <WithPanel panel={panel}>
        {error && <ErrorNote what="The owners cannot be listed" error={error} />}
        {!error && !(list.data && known.data) && <Loading />}
        {list.data && known.data && (
          <>
            <Plans settings={known.data} onOpen={(plan) => go({ plan, owner: "" }, true)} />
            <Table
              label="Owners"
              columns={columns(known.data)}
              count={items.length}
              row={(index) => items[index]}
              rowKey={(owner) => owner.owner_id}
              isSelected={(owner) => owner.owner_id === open}
              onOpen={(owner) => go({ owner: owner.owner_id, plan: "" }, true)}
              empty={
                <Empty
                  title={at("q") ? "No owner is called so" : "No owners yet"}
                  command="atoll keys create agent --owner ann"
                >
                  An owner comes with the first key that is made for it.
                </Empty>
              }
            />
            <Pager
              page={page}
              size={SIZE}
              total={list.data.total}
              onPage={(next) => go({ page: String(next) })}
            />
          </>
        )}
      </WithPanel>
    </>
  );
}

function Plans({ settings: known, onOpen }: { settings: Settings; onOpen: (plan: string) => void }) {
  return (
    <div className="flex flex-wrap items-center gap-2 border-b px-4 py-2 text-xs">
      <span className="text-muted">Plans</span>
      {[DEFAULT_PLAN, ...Object.keys(known.atoll.plans)].map((plan) => {
        const quota = quotaOf(known, plan);
        return (
          <Button key={plan} small onClick={() => onOpen(plan)}>
            {plan}
            <span className="text-muted">
              {quota.max_per_user} at a time, {quota.sandboxes} in all
            </span>
          </Button>
        );
      })}
    </div>
  );
}
