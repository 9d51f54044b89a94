// The create form. Beside each limit stands what will really apply where it is left empty, and the most that the key's
// tier allows; what the server refuses is shown at its field.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { ApiError, fieldError } from "@/api/errors";
import { images } from "@/api/queries";
import { type Limits, useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, inputClass, Select } from "@/components/field";
import { PolicyFields } from "@/components/policy-fields";
import { notify } from "@/components/toast";
import type { Mode } from "@/lib/egress-policy";
import { imageNames } from "@/lib/image-names";
import { curl } from "@/lib/shell";
import { asCli, bodyOf, EMPTY, type Form } from "./create-body";
import { More } from "./create-more";

type Image = Schemas["Image"];

/** What applies where a limit is left empty: the image's, or the server's, and no more than the tier's. */
function applying(
  name: "memory_mb" | "cpu_cores" | "disk_mb" | "processes",
  image: Image | undefined,
  limits: { defaults: Limits; ceiling: Limits | null },
) {
  const own = name === "processes" ? undefined : image?.[name];
  const usual = own ?? limits.defaults[name];
  const most = limits.ceiling?.[name];
  return { usual: most === undefined ? usual : Math.min(usual, most), most };
}

export function Create({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const session = useSignedIn();
  const known = useQuery(images());
  const [form, setForm] = useState<Form>(EMPTY);
  const change = (changes: Partial<Form>) => setForm((before) => ({ ...before, ...changes }));
  const create = useMutation({
    mutationFn: (body: Schemas["CreateBody"]) => unwrap(api.POST("/api/v1/sandboxes", { body })),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ["sandboxes"] });
      if (made.stderr) notify("Some packages were not installed", made.stderr);
      void navigate(`/sandboxes/${made.id}`);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate(bodyOf(form));
  };
  const wanted = form.image || session.default_image;
  const ready = known.data?.items.filter((image) => image.status === "ready") ?? [];
  const means = (image: Image, name: string) =>
    imageNames(image).includes(name) || image.aliases.includes(name);
  const named = (name: string) => ready.find((image) => means(image, name));
  const chosen = named(wanted) ?? named(`${wanted}:latest`);
  const fields = create.error instanceof ApiError ? create.error.fields : {};
  const limit = (name: "memory_mb" | "cpu_cores" | "disk_mb" | "processes", label: string, unit: string) => {
    const { usual, most } = applying(name, chosen, session);
    const hint = `${usual} ${unit} where empty${most === undefined ? "" : `; at most ${most}`}`;
    return (
      <Field label={`${label}, ${unit}`} error={fields[name]} hint={hint}>
        {(props) => (
          <Input
            {...props}
            inputMode="decimal"
            placeholder={String(usual)}
            value={form[name]}
            onChange={(event) => change({ [name]: event.target.value })}
          />
        )}
      </Field>
    );
  };
  const refused = chosen?.refusal ? `${wanted} ${chosen.refusal}` : undefined;
  const network = session.ceiling?.network;
  return (
    <form onSubmit={submit} aria-label="Create a sandbox" className="border-b bg-surface px-4 py-3">
      <div className="grid grid-cols-[repeat(auto-fill,minmax(11rem,1fr))] gap-x-4 gap-y-1">
        <Field
          label="Image"
          error={refused ?? fields.image}
          hint={`${session.default_image} where none is chosen`}
        >
          {(props) => (
            <Select {...props} value={form.image} onChange={(event) => change({ image: event.target.value })}>
              <option value="">default</option>
              {ready.flatMap((image) =>
                imageNames(image).map((name) => (
                  <option key={name} value={name}>
                    {name}
                    {image.active ? "" : " (not for your key)"}
                  </option>
                )),
              )}
            </Select>
          )}
        </Field>
        {limit("memory_mb", "Memory", "MiB")}
        {limit("cpu_cores", "Processor", "cores")}
        {limit("disk_mb", "Disk", "MiB")}
        {limit("processes", "Processes", "at once")}
        <Field label="Idle timeout, seconds" error={fields.idle_timeout_seconds} hint="Then it is paused">
          {(props) => (
            <Input
              {...props}
              inputMode="numeric"
              placeholder={String(session.default_idle_timeout_seconds)}
              value={form.idle_timeout_seconds}
              onChange={(event) => change({ idle_timeout_seconds: event.target.value })}
            />
          )}
        </Field>
        <Field
          label="Network"
          error={fields.network_enabled ?? fieldError(fields, "egress")}
          hint={networkHint(network)}
        >
          {(props) => (
            <Select
              {...props}
              disabled={network === "none"}
              value={form.network ? "tier" : form.egress.mode}
              onChange={(event) => change(networkOf(event.target.value as Network, form))}
            >
              <option value="none">none</option>
              <option value="tier">what the tier allows</option>
              <option value="allowlist">only what is listed</option>
              <option value="full">all but private addresses</option>
            </Select>
          )}
        </Field>
        <Field label="Session key" error={fields.session_key} hint="The same key gives the same sandbox">
          {(props) => (
            <Input
              {...props}
              value={form.session_key}
              onChange={(event) => change({ session_key: event.target.value })}
            />
          )}
        </Field>
        <Field label="Labels" error={fields.labels} hint="One name=value in a line">
          {(props) => (
            <textarea
              {...props}
              rows={2}
              spellCheck={false}
              className={`${inputClass} h-auto py-1 font-mono text-xs`}
              value={form.labels}
              onChange={(event) => change({ labels: event.target.value })}
            />
          )}
        </Field>
        <Field label="Environment" error={fields.env_vars} hint="One NAME=value in a line; never shown again">
          {(props) => (
            <textarea
              {...props}
              rows={2}
              spellCheck={false}
              className={`${inputClass} h-auto py-1 font-mono text-xs`}
              value={form.env_vars}
              onChange={(event) => change({ env_vars: event.target.value })}
            />
          )}
        </Field>
      </div>
      {form.egress.mode !== "none" && (
        <div className="mb-1 grid gap-x-4 gap-y-1 md:grid-cols-2">
          <PolicyFields
            draft={form.egress}
            fields={fields}
            onChange={(changes) => change({ egress: { ...form.egress, ...changes } })}
          />
        </div>
      )}
      <More form={form} fields={fields} onChange={change} />
      {create.error && <ErrorNote what="The sandbox was not made" error={create.error} />}
      <div className="mt-2 flex items-center gap-2">
        <Button kind="primary" type="submit" disabled={create.isPending}>
          {create.isPending ? "Creating…" : "Create sandbox"}
        </Button>
        <Button onClick={onClose}>Close</Button>
        <CopyAs cli={asCli(form)} curl={curl("POST", "/api/v1/sandboxes", bodyOf(form))} />
      </div>
    </form>
  );
}

/** `tier` is what the tier allows; the others are modes of rules of its own. */
type Network = "tier" | Mode;

function networkOf(chosen: Network, { egress }: Form): Partial<Form> {
  const tier = chosen === "tier";
  return { network: tier, egress: { ...egress, mode: tier ? "none" : chosen } };
}

function networkHint(network: Limits["network"] | undefined): string {
  if (network === "none") return "The key's tier allows none";
  if (network === "restricted") return "The tier allows the hosts of package managers";
  return "Rules can be changed while it runs";
}
