// The policy as a form. Entries that allow single requests are JSON in a line, as the API writes them.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, Select } from "@/components/field";
import { Panel } from "@/components/page";
import { notify } from "@/components/toast";
import { cx } from "@/lib/cx";

type Policy = Schemas["EgressPolicy"];
type Entry = Schemas["EgressEntry"];
type Mode = NonNullable<Policy["mode"]>;

const LIMITS = {
  connections: "Connections at a time",
  connections_per_second: "Connections a second",
  bytes: "Bytes in all",
  bytes_per_second: "Bytes a second",
  connection_seconds: "Seconds of a connection",
} as const;

const MODES: Record<Mode, string> = {
  none: "nothing is reachable",
  allowlist: "only what is listed is reachable",
  full: "everything but private addresses is reachable",
};

const write = (entries: Entry[] = []) =>
  entries.map((entry) => (typeof entry === "string" ? entry : JSON.stringify(entry))).join("\n");

const read = (text: string): Entry[] =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => (line.startsWith("{") ? (JSON.parse(line) as Entry) : line));

interface Props {
  sandbox: string;
  info: Schemas["EgressInfo"];
  readOnly: boolean;
}

export function PolicyForm({ sandbox, info, readOnly }: Props) {
  const client = useQueryClient();
  const { policy } = info;
  const [mode, setMode] = useState<Mode>(policy.mode ?? "none");
  const [allow, setAllow] = useState(write(policy.allow));
  const [deny, setDeny] = useState(write(policy.deny));
  const [chosen, setChosen] = useState(new Set(policy.presets ?? []));
  const [limits, setLimits] = useState<Record<string, string>>(
    Object.fromEntries(
      Object.entries(policy.limits ?? {}).map(([name, value]) => [name, String(value ?? "")]),
    ),
  );
  const presets = useQuery({
    queryKey: ["presets"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/egress/presets", { signal })),
  });
  const save = useMutation({
    mutationFn: async () => {
      const bounds = Object.entries(limits).filter(([, value]) => value.trim());
      const body = {
        mode,
        ...(mode !== "none" && { allow: read(allow), deny: read(deny) }),
        ...(mode === "allowlist" && { presets: [...chosen] }),
        ...(bounds.length > 0 && {
          limits: Object.fromEntries(bounds.map(([name, value]) => [name, Number(value)])),
        }),
      } as Policy;
      return unwrap(api.PUT("/api/v1/sandboxes/{id}/egress", { params: { path: { id: sandbox } }, body }));
    },
    onSuccess: () => {
      notify("The policy is in force");
      return refreshSandbox(client, sandbox);
    },
  });
  const fields = save.error ? asApiError(save.error).fields : {};
  const listed = (name: string, label: string, text: string, set: (text: string) => void) => (
    <Field label={label} error={fields[name]} hint="One in a line: host, *.suffix, host:port, address, range">
      {(props) => (
        <textarea
          {...props}
          rows={4}
          spellCheck={false}
          value={text}
          onChange={(event) => set(event.target.value)}
          className="rounded border border-line-strong bg-surface p-2 font-mono text-xs focus:border-accent focus:outline-none"
        />
      )}
    </Field>
  );
  return (
    <Panel title="Policy">
      <form
        className="flex flex-col gap-2 p-3"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <fieldset disabled={readOnly} className="grid gap-x-4 gap-y-1 md:grid-cols-2">
          <Field label="Mode" error={fields.mode} hint={MODES[mode]} className="md:col-span-2">
            {(props) => (
              <Select
                {...props}
                value={mode}
                onChange={(event) => setMode(event.target.value as Mode)}
                className="max-w-60"
              >
                {Object.keys(MODES).map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </Select>
            )}
          </Field>
          {mode !== "none" && listed("allow", "Allow", allow, setAllow)}
          {mode !== "none" && listed("deny", "Deny", deny, setDeny)}
          {mode === "allowlist" && (
            <fieldset className="flex flex-wrap gap-1 md:col-span-2">
              <legend className="mb-1 text-xs font-medium">Presets</legend>
              {presets.data?.map(({ name, entries }) => (
                <label
                  key={name}
                  title={write(entries.map((each) => each.entry))}
                  className={cx(
                    "flex h-7 items-center gap-1.5 rounded border px-2 text-xs",
                    chosen.has(name) && "border-accent",
                  )}
                >
                  <input
                    type="checkbox"
                    className="accent-accent"
                    checked={chosen.has(name)}
                    onChange={(event) => {
                      const next = new Set(chosen);
                      if (event.target.checked) next.add(name);
                      else next.delete(name);
                      setChosen(next);
                    }}
                  />
                  {name}
                </label>
              ))}
            </fieldset>
          )}
          {mode !== "none" && (
            <details className="md:col-span-2" open={Object.keys(limits).length > 0}>
              <summary className="cursor-pointer text-xs font-medium">Limits</summary>
              <div className="mt-2 grid gap-x-4 sm:grid-cols-3">
                {Object.entries(LIMITS).map(([name, label]) => (
                  <Field key={name} label={label} error={fields[name]} hint="empty: no bound">
                    {(props) => (
                      <Input
                        {...props}
                        inputMode="numeric"
                        value={limits[name] ?? ""}
                        onChange={(event) => setLimits({ ...limits, [name]: event.target.value })}
                      />
                    )}
                  </Field>
                ))}
              </div>
            </details>
          )}
        </fieldset>
        {save.error && <ErrorNote what="The policy was not changed" error={save.error} />}
        {!readOnly && (
          <Button type="submit" kind="primary" className="self-start" disabled={save.isPending}>
            Apply
          </Button>
        )}
      </form>
    </Panel>
  );
}
