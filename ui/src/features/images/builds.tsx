import { useQuery } from "@tanstack/react-query";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Mark } from "@/components/mark";
import { Loading, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Duration, Time } from "@/components/time";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { BuildDetails } from "./build";
import { type Build, builds, fullName, TONES } from "./queries";

const COLUMNS: Column<Build>[] = [
  {
    key: "name",
    title: "Image",
    width: "minmax(7rem, 1fr)",
    cell: (build) => <span className="font-mono text-xs">{fullName(build)}</span>,
  },
  { key: "source", title: "From", width: "minmax(6rem, 1fr)", wide: true, cell: (build) => build.source },
  {
    key: "status",
    title: "Status",
    width: "7rem",
    cell: (build) => <Mark tone={TONES[build.status]}>{build.status}</Mark>,
  },
  {
    key: "time",
    title: "Took",
    width: "7rem",
    align: "right",
    wide: true,
    cell: (build) =>
      build.ended_at ? (
        <Duration ms={Date.parse(build.ended_at) - Date.parse(build.created_at)} />
      ) : (
        <Duration since={build.created_at} />
      ),
  },
  {
    key: "begun",
    title: "Begun",
    width: "5rem",
    align: "right",
    cell: (build) => <Time at={build.created_at} />,
  },
];

export default function Builds() {
  useTitle("Builds of images");
  const [at, go] = useAddress();
  const list = useQuery(builds());
  const items = list.data?.items ?? [];
  const open = at("build");
  return (
    <WithPanel
      panel={open ? <BuildDetails key={open} id={open} onClose={() => go({ build: "" })} /> : undefined}
    >
      <div className="flex items-center justify-end border-b px-4 py-1.5">
        <CopyAs cli="atoll image builds" curl={curl("GET", "/api/v1/sandbox-images/builds")} />
      </div>
      {list.error && <ErrorNote what="The builds cannot be listed" error={list.error} />}
      {list.isPending && <Loading />}
      {list.data && (
        <Table
          label="Builds"
          columns={COLUMNS}
          count={items.length}
          row={(index) => items[index]}
          rowKey={(build) => build.build_id}
          isSelected={(build) => build.build_id === open}
          onOpen={(build) => go({ build: build.build_id }, true)}
          empty={
            <Empty title="No builds yet" command="atoll image build --template base">
              A build makes an image of a template, a Dockerfile, a registry or an archive. It runs to its
              end, whatever becomes of this page.
            </Empty>
          }
        />
      )}
    </WithPanel>
  );
}
