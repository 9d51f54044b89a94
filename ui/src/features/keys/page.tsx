// Keys: who may do what, until when. A key's secret is shown once, when it is made.
import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import type { Schemas } from "@/api/client";
import { keys } from "@/api/keys";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, PageHead, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Time } from "@/components/time";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { CreateKey } from "./create";
import { KeyDetails } from "./details";
import { KeyState } from "./state";

type Key = Schemas["KeyItem"];

const COLUMNS: Column<Key>[] = [
  { key: "name", title: "Name", width: "minmax(7rem, 1fr)", cell: (key) => key.name },
  {
    key: "prefix",
    title: "Begins with",
    width: "8rem",
    wide: true,
    cell: (key) => <code className="font-mono text-xs">{key.prefix}…</code>,
  },
  { key: "owner", title: "Owner", width: "minmax(6rem, 10rem)", wide: true, cell: (key) => key.owner },
  { key: "scope", title: "Scope", width: "6rem", cell: (key) => key.scope.replace("_", "-") },
  {
    key: "tier",
    title: "Tier",
    width: "7rem",
    wide: true,
    cell: (key) => key.tier ?? <span className="text-muted">–</span>,
  },
  { key: "state", title: "State", width: "6rem", cell: (key) => <KeyState item={key} /> },
  {
    key: "used",
    title: "Last used",
    width: "6rem",
    align: "right",
    wide: true,
    cell: (key) =>
      key.last_used_at ? <Time at={key.last_used_at} /> : <span className="text-muted">never</span>,
  },
];

export default function Keys() {
  useTitle("Keys");
  const { scope } = useSignedIn();
  const [at, go] = useAddress();
  const list = useQuery(keys());
  const shown = at("all") ? list.data : list.data?.filter((key) => !key.revoked_at);
  const open = list.data?.find((key) => key.id === at("key"));
  const close = () => go({ key: "", create: "" });
  const panel = at("create") ? (
    <CreateKey onClose={close} />
  ) : open ? (
    <KeyDetails key={open.id} item={open} onClose={close} />
  ) : undefined;
  return (
    <>
      <PageHead
        title="Keys"
        actions={
          <>
            <label className="flex items-center gap-1.5 text-xs text-muted">
              <input
                type="checkbox"
                className="accent-accent"
                checked={at("all") !== ""}
                onChange={(event) => go({ all: event.target.checked ? "1" : "" })}
              />
              with revoked ones
            </label>
            <CopyAs cli="atoll keys ls" curl={curl("GET", "/api/v1/keys")} />
            {scope !== "read_only" && (
              <Button
                kind="primary"
                icon={<Plus size={14} />}
                onClick={() => go({ create: "1", key: "" }, true)}
              >
                Create
              </Button>
            )}
          </>
        }
      />
      <WithPanel panel={panel}>
        {list.error && (
          <ErrorNote what="The keys cannot be listed" error={list.error} retry={() => void list.refetch()} />
        )}
        {list.isPending && <Loading />}
        {shown && (
          <Table
            label="Keys"
            columns={COLUMNS}
            count={shown.length}
            row={(index) => shown[index]}
            rowKey={(key) => key.id}
            isSelected={(key) => key.id === open?.id}
            onOpen={(key) => go({ key: key.id, create: "" }, true)}
            empty={
              <Empty title="No keys" command="atoll keys create ci --tier restricted">
                A key is what programs and people sign in with.
              </Empty>
            }
          />
        )}
      </WithPanel>
    </>
  );
}
