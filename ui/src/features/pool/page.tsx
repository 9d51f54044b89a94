// The warm pool: what is kept started, so that a create need not wait for a start.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, RotateCw } from "lucide-react";
import { api, type Schemas, unwrap } from "@/api/client";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Mark } from "@/components/mark";
import { Loading, PageHead, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { notify } from "@/components/toast";
import { count, duration, percent } from "@/lib/format";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { POOL, poolQuery } from "./query";
import { PoolSize } from "./size";

type Row = Schemas["PoolKeyItem"];

const figure = (key: string, title: string, cell: Column<Row>["cell"], wide = true): Column<Row> => ({
  key,
  title,
  width: "6rem",
  align: "right",
  wide,
  cell,
});

const COLUMNS: Column<Row>[] = [
  {
    key: "image",
    title: "Image",
    width: "minmax(7rem, 1fr)",
    cell: (row) => <span className="font-mono text-xs">{row.image}</span>,
  },
  { key: "profile", title: "Profile", width: "6rem", wide: true, cell: (row) => row.profile },
  {
    key: "ready",
    title: "Ready",
    width: "6rem",
    cell: (row) => (
      <Mark tone={row.ready >= row.target ? "works" : row.failures > 0 && row.ready === 0 ? "lost" : "waits"}>
        {row.ready} of {row.target}
      </Mark>
    ),
  },
  figure("range", "Min to max", (row) => `${row.min} to ${row.max}`, false),
  figure("hits", "Hits", (row) => count(row.hits)),
  figure("misses", "Misses", (row) => count(row.misses)),
  figure("share", "Hit rate", (row) =>
    row.hits + row.misses > 0 ? percent(row.hits / (row.hits + row.misses)) : "–",
  ),
  figure("refill", "A refill", (row) => (row.refill_seconds ? duration(row.refill_seconds * 1000) : "–")),
  figure("failures", "Failures", (row) =>
    row.failures > 0 ? <span className="text-danger">{row.failures}</span> : "0",
  ),
];

export default function Pool() {
  useTitle("Pool");
  const client = useQueryClient();
  const [at, go] = useAddress();
  const pool = useQuery(poolQuery());
  const again = () => void client.invalidateQueries({ queryKey: POOL });
  const enable = useMutation({
    mutationFn: (enabled: boolean) => unwrap(api.PATCH("/api/v1/pool", { body: { enabled } })),
    meta: { failed: "The pool was not changed" },
    onSuccess: (changed) => client.setQueryData(POOL, changed),
  });
  const drain = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/pool/drain", { body: {} })),
    meta: { failed: "The pool was not drained" },
    onSuccess: ({ drained }) => {
      notify(
        drained === 1 ? "1 sandbox was drained" : `${drained} sandboxes were drained`,
        "New ones are made.",
      );
      again();
    },
  });
  const rows = pool.data?.keys ?? [];
  const open = rows.find((row) => row.image === at("image"));
  const close = () => go({ image: "", add: "" });
  const panel =
    at("add") || open ? (
      <PoolSize key={at("image")} row={at("add") ? undefined : open} onClose={close} />
    ) : undefined;
  return (
    <>
      <PageHead
        title="Pool"
        actions={
          <>
            <CopyAs cli="atoll pool show" curl={curl("GET", "/api/v1/pool")} />
            <Button kind="quiet" small icon={<RotateCw size={14} />} onClick={again}>
              Look again
            </Button>
            {pool.data?.enabled && (
              <Button disabled={drain.isPending} onClick={() => drain.mutate()}>
                Drain
              </Button>
            )}
            {pool.data && (
              <Button disabled={enable.isPending} onClick={() => enable.mutate(!pool.data.enabled)}>
                {pool.data.enabled ? "Switch off" : "Switch on"}
              </Button>
            )}
            <Button
              kind="primary"
              icon={<Plus size={14} />}
              onClick={() => go({ add: "1", image: "" }, true)}
            >
              Keep an image ready
            </Button>
          </>
        }
      />
      <WithPanel panel={panel}>
        {pool.error && <ErrorNote what="The pool cannot be shown" error={pool.error} retry={again} />}
        {pool.isPending && <Loading />}
        {pool.data && (
          <Table
            label="What is kept ready"
            columns={COLUMNS}
            count={rows.length}
            row={(index) => rows[index]}
            rowKey={(row) => `${row.image} ${row.profile}`}
            isSelected={(row) => row === open}
            onOpen={(row) => go({ image: row.image, add: "" }, true)}
            empty={
              <Empty
                title={pool.data.enabled ? "Nothing is kept ready" : "The pool is switched off"}
                command="atoll pool resize host --min 2 --max 8"
              >
                A create takes a sandbox from the pool where one of its image is ready, and starts one where
                not.
              </Empty>
            }
          />
        )}
      </WithPanel>
    </>
  );
}
