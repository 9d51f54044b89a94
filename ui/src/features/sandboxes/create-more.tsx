// The fields of the create form that few need: they are folded.
import { fieldError } from "@/api/errors";
import { Field, Input, inputClass, Select } from "@/components/field";
import type { Form } from "./create-body";

interface Props {
  form: Form;
  /** What the server says of fields, by name. */
  fields: Record<string, string>;
  onChange: (changes: Partial<Form>) => void;
}

type Texts = Exclude<keyof Form, "network" | "egress">;

/** Fields of one line or several, with what they mean. */
const LINES: [name: Texts, label: string, hint: string, rows: number][] = [
  ["max_lifetime_seconds", "Longest life, seconds", "Then it is destroyed, whatever it does", 1],
  ["tenant_id", "Tenant", "Its storage is attached at /mnt/user-data", 1],
  ["secrets", "Secrets", "One NAME=value in a line; shown in no log and no answer", 2],
  ["dependencies", "Packages", "One LANGUAGE:NAME or LANGUAGE:NAME==VERSION in a line", 2],
  ["volumes", "Volumes", "One NAME:/path or NAME:/path:ro in a line", 2],
  ["read_only", "Paths that are read-only", "One in a line; file requests still write there", 2],
  ["read_write", "Paths that may be written", "Also below one that is read-only", 2],
  ["blocked", "Paths that cannot be reached", "One in a line; by root neither", 2],
];

/** What is wrong with the rules of paths together stands at the first of them. */
const errorOf = (fields: Record<string, string>, name: string) =>
  fieldError(fields, name) ?? (name === "read_only" ? fields.filesystem : undefined);

export function More({ form, fields, onChange }: Props) {
  const wrong = LINES.some(([name]) => errorOf(fields, name)) || undefined;
  return (
    <details open={wrong} className="mb-1">
      <summary className="cursor-pointer py-1 text-xs text-muted">
        More: profile, life, secrets, packages, volumes, paths, snapshots
      </summary>
      <div className="grid grid-cols-[repeat(auto-fill,minmax(14rem,1fr))] gap-x-4 gap-y-1">
        <Field
          label="Profile"
          error={errorOf(fields, "profile")}
          hint="Who commands run as, and what they may write"
        >
          {(props) => (
            <Select
              {...props}
              value={form.profile}
              onChange={(event) => onChange({ profile: event.target.value })}
            >
              <option value="">default</option>
              <option>tools</option>
              <option>root</option>
              <option>build</option>
            </Select>
          )}
        </Field>
        <Field
          label="Snapshots by itself"
          error={errorOf(fields, "auto_snapshot")}
          hint="Before what its files are kept"
        >
          {(props) => (
            <Select
              {...props}
              value={form.auto_snapshot}
              onChange={(event) => onChange({ auto_snapshot: event.target.value })}
            >
              <option value="">never</option>
              <option value="before_exec">before each command</option>
              <option value="before_run">before each cell</option>
            </Select>
          )}
        </Field>
        {LINES.map(([name, label, hint, rows]) => (
          <Field key={name} label={label} error={errorOf(fields, name)} hint={hint}>
            {(props) =>
              rows === 1 ? (
                <Input
                  {...props}
                  value={form[name]}
                  onChange={(event) => onChange({ [name]: event.target.value })}
                />
              ) : (
                <textarea
                  {...props}
                  rows={rows}
                  spellCheck={false}
                  className={`${inputClass} h-auto py-1 font-mono text-xs`}
                  value={form[name]}
                  onChange={(event) => onChange({ [name]: event.target.value })}
                />
              )
            }
          </Field>
        ))}
      </div>
    </details>
  );
}
