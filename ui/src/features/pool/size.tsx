import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { images } from "@/api/queries";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Field, Input, Select } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { Duration, Time } from "@/components/time";
import { notify } from "@/components/toast";
import { imageNames } from "@/lib/image-names";
import { curl, quote } from "@/lib/shell";
import { POOL } from "./query";

type Body = Schemas["PoolBody"];

/** How many of an image are kept ready; without a row, of one that is chosen here. */
export function PoolSize({ row, onClose }: { row?: Schemas["PoolKeyItem"]; onClose: () => void }) {
  const client = useQueryClient();
  const known = useQuery({ ...images(), enabled: !row });
  const [image, setImage] = useState(row?.image ?? "");
  const [min, setMin] = useState(String(row?.min ?? 1));
  const [max, setMax] = useState(String(row?.max ?? 2));
  const body: Body = { images: { [image]: { min: Number(min), max: Number(max) } } };
  const change = useMutation({
    mutationFn: (next: Body) => unwrap(api.PATCH("/api/v1/pool", { body: next })),
    onSuccess: (changed) => {
      client.setQueryData(POOL, changed);
      notify(`The pool of ${image} was changed`);
      onClose();
    },
  });
  const title = row ? `Pool of ${row.image}` : "Keep an image ready";
  return (
    <SidePanel title={title} label={title} onClose={onClose}>
      {row && <State row={row} />}
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate(body);
        }}
      >
        {!row && (
          <Field label="Image">
            {(props) => (
              <Select {...props} required value={image} onChange={(event) => setImage(event.target.value)}>
                <option value="">choose one</option>
                {known.data?.items.flatMap(imageNames).map((name) => (
                  <option key={name}>{name}</option>
                ))}
              </Select>
            )}
          </Field>
        )}
        <div className="flex gap-3">
          <Field label="At least" hint="Even without any demand." className="flex-1">
            {(props) => (
              <Input
                {...props}
                type="number"
                min={0}
                max={1000}
                required
                value={min}
                onChange={(event) => setMin(event.target.value)}
              />
            )}
          </Field>
          <Field label="At most" hint="With much demand." className="flex-1">
            {(props) => (
              <Input
                {...props}
                type="number"
                min={0}
                max={1000}
                required
                value={max}
                onChange={(event) => setMax(event.target.value)}
              />
            )}
          </Field>
        </div>
        {change.error && <ErrorNote what="The pool was not changed" error={change.error} />}
        <div className="flex flex-wrap items-center gap-2">
          <Button kind="primary" type="submit" disabled={!image || change.isPending}>
            Keep so many
          </Button>
          {row && (
            <Button
              disabled={change.isPending}
              onClick={() => change.mutate({ images: { [row.image]: null } })}
              title="What was set for this image is taken back: the settings pool.min and pool.max count"
            >
              As the settings say
            </Button>
          )}
          <CopyAs
            cli={`atoll pool resize ${quote(image || "IMAGE")} --min ${min} --max ${max}`}
            curl={curl("PATCH", "/api/v1/pool", body)}
          />
        </div>
      </form>
    </SidePanel>
  );
}

function State({ row }: { row: Schemas["PoolKeyItem"] }) {
  return (
    <Facts>
      <Fact name="Profile">{row.profile}</Fact>
      <Fact name="Ready">
        {row.ready} of {row.target}
        {row.starting > 0 && `, ${row.starting} starting`}
      </Fact>
      <Fact name="Oldest">
        {row.oldest_age_seconds != null && <Duration ms={row.oldest_age_seconds * 1000} />}
      </Fact>
      <Fact name="Kernels">{row.kernels > 0 && String(row.kernels)}</Fact>
      <Fact name="Refills">{String(row.refills)}</Fact>
      <Fact name="Last failure">
        {row.last_failure && (
          <span className="text-danger">
            {row.last_failure.reason}, <Time at={row.last_failure.at} suffix=" ago" />
          </span>
        )}
      </Fact>
    </Facts>
  );
}
