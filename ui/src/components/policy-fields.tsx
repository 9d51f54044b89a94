// The fields of an egress policy, but for its mode.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { fieldError } from "@/api/errors";
import { Field, Input } from "@/components/field";
import { cx } from "@/lib/cx";
import { boundsOf, type PolicyDraft, write } from "@/lib/egress-policy";

const LIMITS = {
  connections: "Connections at a time",
  connections_per_second: "Connections a second",
  bytes: "Bytes in all",
  bytes_per_second: "Bytes a second",
  connection_seconds: "Seconds of a connection",
} as const;

interface Props {
  draft: PolicyDraft;
  /** What the server says of fields, by name. */
  fields: Record<string, string>;
  onChange: (changes: Partial<PolicyDraft>) => void;
}

export function PolicyFields({ draft, fields, onChange }: Props) {
  const { mode, presets, limits } = draft;
  if (mode === "none") return null;
  const listed = (name: "allow" | "deny", label: string) => (
    <Field
      label={label}
      error={fieldError(fields, name)}
      hint="One in a line: host, *.suffix, host:port, address, range"
    >
      {(props) => (
        <textarea
          {...props}
          rows={4}
          spellCheck={false}
          value={draft[name]}
          onChange={(event) => onChange({ [name]: event.target.value })}
          className="rounded border border-line-strong bg-surface p-2 font-mono text-xs focus:border-accent focus:outline-none"
        />
      )}
    </Field>
  );
  return (
    <>
      {listed("allow", "Allow")}
      {listed("deny", "Deny")}
      {mode === "allowlist" && <Presets chosen={presets} onChange={(next) => onChange({ presets: next })} />}
      <details className="md:col-span-2" open={boundsOf(draft).length > 0 || undefined}>
        <summary className="cursor-pointer text-xs font-medium">Limits</summary>
        <div className="mt-2 grid gap-x-4 sm:grid-cols-3">
          {Object.entries(LIMITS).map(([name, label]) => (
            <Field key={name} label={label} error={fieldError(fields, name)} hint="empty: no bound">
              {(props) => (
                <Input
                  {...props}
                  inputMode="numeric"
                  value={limits[name] ?? ""}
                  onChange={(event) => onChange({ limits: { ...limits, [name]: event.target.value } })}
                />
              )}
            </Field>
          ))}
        </div>
      </details>
    </>
  );
}

function Presets({ chosen, onChange }: { chosen: string[]; onChange: (chosen: string[]) => void }) {
  const { data } = useQuery({
    queryKey: ["presets"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/egress/presets", { signal })),
  });
  return (
    <fieldset className="flex flex-wrap gap-1 md:col-span-2">
      <legend className="mb-1 text-xs font-medium">Presets</legend>
      {data?.map(({ name, entries }) => (
        <label
          key={name}
          title={write(entries.map((each) => each.entry))}
          className={cx(
            "flex h-7 items-center gap-1.5 rounded border px-2 text-xs",
            chosen.includes(name) && "border-accent",
          )}
        >
          <input
            type="checkbox"
            className="accent-accent"
            checked={chosen.includes(name)}
            onChange={(event) =>
              onChange(event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name))
            }
          />
          {name}
        </label>
      ))}
    </fieldset>
  );
}
