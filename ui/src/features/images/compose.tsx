import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Schemas } from "@/api/client";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, Select } from "@/components/field";
import { Loading, Panel } from "@/components/page";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { useStartBuild } from "./new-build";
import { packages, templates } from "./queries";

type Package = Schemas["PackageItem"];
const keyOf = (each: Package) => `${each.manager} ${each.name}`;

/** An image of chosen packages. Others than admins look at what there is. */
export function Compose({ canBuild }: { canBuild: boolean }) {
  const [at, go] = useAddress();
  const all = useQuery(packages());
  const [chosen, setChosen] = useState(new Map<string, Package>());
  const search = at("q").toLowerCase();
  const shown = useMemo(
    () =>
      all.data?.categories
        .map(({ name, packages: items }) => ({
          name,
          items: items.filter((each) => `${each.name} ${each.description}`.toLowerCase().includes(search)),
        }))
        .filter(({ items }) => items.length > 0),
    [all.data, search],
  );
  const toggle = (each: Package) =>
    setChosen((before) => {
      const after = new Map(before);
      if (!after.delete(keyOf(each))) after.set(keyOf(each), each);
      return after;
    });
  return (
    <Panel
      title="Packages"
      actions={
        <Input
          type="search"
          aria-label="Search the packages"
          placeholder="Search"
          className="max-w-48"
          value={at("q")}
          onChange={(event) => go({ q: event.target.value })}
        />
      }
    >
      {all.error && <ErrorNote what="The packages cannot be listed" error={all.error} />}
      {all.isPending && <Loading />}
      {canBuild && <Order chosen={[...chosen.values()]} />}
      {shown?.length === 0 && <p className="p-3 text-muted">No package is called so.</p>}
      {shown?.map(({ name, items }) => (
        <section key={name} className="border-t px-3 py-2 first:border-t-0">
          <h3 className="mb-1 text-xs text-muted">{name}</h3>
          <ul className="grid grid-cols-1 gap-x-4 md:grid-cols-2 xl:grid-cols-3">
            {items.map((each) => (
              <li key={keyOf(each)}>
                <label className="flex min-h-7 items-center gap-2">
                  <input
                    type="checkbox"
                    hidden={!canBuild}
                    checked={chosen.has(keyOf(each))}
                    onChange={() => toggle(each)}
                    className="shrink-0"
                  />
                  <code className="font-mono text-xs whitespace-nowrap">{each.name}</code>
                  <span className="text-xs text-muted">{each.manager}</span>
                  <span className="min-w-0 truncate text-xs text-muted" title={each.description}>
                    {each.description}
                  </span>
                </label>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </Panel>
  );
}

/** What was chosen, its name and its base, and the button that builds it. */
function Order({ chosen }: { chosen: Package[] }) {
  const [name, setName] = useState("");
  const [base, setBase] = useState("");
  const known = useQuery(templates());
  const start = useStartBuild();
  if (chosen.length === 0) {
    return <p className="border-b p-3 text-xs text-muted">Choose packages to build an image of them.</p>;
  }
  const of = (manager: Package["manager"]) =>
    chosen.filter((each) => each.manager === manager).map((each) => each.name);
  const body: Schemas["BuildBody"] = {
    spec: {
      id: name,
      base: base || undefined,
      packages: { debian: of("debian"), pip: of("pip"), npm: of("npm"), r: of("r") },
    },
  };
  return (
    <form
      className="flex flex-col gap-2 border-b p-3"
      onSubmit={(event) => {
        event.preventDefault();
        start.mutate(body);
      }}
    >
      <p>{chosen.map((each) => each.name).join(", ")}</p>
      <div className="flex flex-wrap items-start gap-3">
        <Field label="Name" className="w-48">
          {(props) => (
            <Input {...props} required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <Field label="Begins with" className="w-56">
          {(props) => (
            <Select {...props} value={base} onChange={(event) => setBase(event.target.value)}>
              <option value="">packages of Debian alone</option>
              {known.data?.templates
                .filter((each) => each.built)
                .map((each) => (
                  <option key={each.id} value={each.image ?? each.id}>
                    {each.name}
                  </option>
                ))}
            </Select>
          )}
        </Field>
        <div className="mt-5 flex items-center gap-2">
          <Button kind="primary" type="submit" disabled={!name || start.isPending}>
            Build
          </Button>
          <CopyAs curl={curl("POST", "/api/v1/sandbox-images", body)} />
        </div>
      </div>
      {start.error && <ErrorNote what="The build was not started" error={start.error} />}
    </form>
  );
}
