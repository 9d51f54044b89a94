// Volumes: what outlives sandboxes. An admin sees those of all owners.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Loading, PageHead, useTitle } from "@/components/page";
import { Pager } from "@/components/pager";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Time } from "@/components/time";
import { mebibytes } from "@/lib/format";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { CreateVolume } from "./create";
import { VolumeDetails } from "./details";

type Volume = Schemas["Volume"];
const SIZE = 100;

const columns = (admin: boolean): Column<Volume>[] => [
  {
    key: "name",
    title: "Name",
    width: "minmax(8rem, 1fr)",
    cell: (volume) => <span className="font-mono text-xs">{volume.name}</span>,
  },
  ...(admin
    ? [{ key: "owner", title: "Owner", width: "10rem", wide: true, cell: (v: Volume) => v.user_name }]
    : []),
  {
    key: "tenant",
    title: "Tenant",
    width: "10rem",
    wide: true,
    cell: (volume) => volume.tenant_id ?? <span className="text-muted">–</span>,
  },
  {
    key: "limit",
    title: "Limit",
    width: "6rem",
    align: "right",
    cell: (volume) => mebibytes(volume.disk_mb),
  },
  {
    key: "made",
    title: "Made",
    width: "5rem",
    align: "right",
    cell: (volume) => <Time at={volume.created_at} />,
  },
];

export default function Volumes() {
  useTitle("Volumes");
  const { scope } = useSignedIn();
  const [at, go] = useAddress();
  const page = Number(at("page") || 1);
  const list = useQuery({
    queryKey: ["volumes", page],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/volumes", { params: { query: { page, page_size: SIZE } }, signal })),
    placeholderData: keepPreviousData,
  });
  const open = at("volume");
  const owner = at("owner") || undefined;
  const close = () => go({ volume: "", owner: "", create: "" });
  const panel = at("create") ? (
    <CreateVolume onClose={close} onMade={(made) => go({ create: "", volume: made.name })} />
  ) : open ? (
    <VolumeDetails key={`${owner} ${open}`} name={open} owner={owner} onClose={close} />
  ) : undefined;
  const items = list.data?.items ?? [];
  return (
    <>
      <PageHead
        title="Volumes"
        actions={
          <>
            <CopyAs cli="atoll volume ls" curl={curl("GET", "/api/v1/volumes")} />
            {scope !== "read_only" && (
              <Button
                kind="primary"
                icon={<Plus size={14} />}
                onClick={() => go({ create: "1", volume: "" }, true)}
              >
                Create
              </Button>
            )}
          </>
        }
      />
      <WithPanel panel={panel}>
        {list.error && (
          <ErrorNote
            what="The volumes cannot be listed"
            error={list.error}
            retry={() => void list.refetch()}
          />
        )}
        {list.isPending && <Loading />}
        {list.data && (
          <>
            <Table
              label="Volumes"
              columns={columns(scope === "admin")}
              count={items.length}
              row={(index) => items[index]}
              rowKey={(volume) => `${volume.user_id} ${volume.name}`}
              isSelected={(volume) => volume.name === open && (!owner || owner === volume.user_id)}
              onOpen={(volume) =>
                go(
                  {
                    volume: volume.name,
                    owner: scope === "admin" ? volume.user_id : "",
                    create: "",
                  },
                  true,
                )
              }
              empty={
                <Empty title="No volumes yet" command="atoll volume create data --disk 256m">
                  A volume keeps files beyond the life of a sandbox, and several sandboxes can share it.
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
