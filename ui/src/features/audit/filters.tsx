import { type ReactNode, useId, useState } from "react";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { Input, Select } from "@/components/field";
import { FIELDS } from "./query";

interface Props {
  at: (name: string) => string;
  go: (changes: Record<string, string>) => void;
}

const OUTCOMES = ["ok", "failed", "refused", "lost"];

/** Kinds that are often looked for; any other can be typed. */
const KINDS = [
  "exec",
  "terminal",
  "kernel.execute",
  "file.read",
  "file.write",
  "sandbox.create",
  "sandbox.destroy",
];

export function AuditFilters({ at, go }: Props) {
  const { scope } = useSignedIn();
  const input = (name: string, label: string, width: string, type = "text") => (
    <Filter label={label} width={width}>
      {(id) => (
        <Input
          id={id}
          type={type}
          value={at(name)}
          onChange={(event) => go({ [name]: event.target.value })}
          list={name === "kind" ? "audit-kinds" : undefined}
        />
      )}
    </Filter>
  );
  const all = [...FIELDS, "open"];
  const [more, setMore] = useState(false);
  // On narrow screens the rarer ones are shown on request.
  const rare = more ? "" : " max-md:hidden";
  return (
    <search className="flex flex-wrap items-end gap-2 border-b px-4 py-2">
      {input("text", "Command, code or path", "w-56 max-md:w-full", "search")}
      {input("kind", "Operation", "w-36")}
      <datalist id="audit-kinds">
        {KINDS.map((kind) => (
          <option key={kind} value={kind} />
        ))}
      </datalist>
      <Filter label="Outcome" width="w-28">
        {(id) => (
          <Select id={id} value={at("outcome")} onChange={(event) => go({ outcome: event.target.value })}>
            <option value="">any</option>
            {OUTCOMES.map((outcome) => (
              <option key={outcome}>{outcome}</option>
            ))}
          </Select>
        )}
      </Filter>
      {input("exit_code", "Exit code", `w-20${rare}`, "number")}
      {scope === "admin" && input("owner", "Owner", `w-28${rare}`)}
      {input("sandbox_id", "Sandbox's id", `w-32${rare}`)}
      {input("key_id", "Key's id", `w-32${rare}`)}
      {input("since", "Since", `w-44${rare}`, "datetime-local")}
      {input("until", "Until", `w-44${rare}`, "datetime-local")}
      <label className={`flex h-8 items-center gap-1.5 text-xs text-muted${rare}`}>
        <input
          type="checkbox"
          checked={at("open") !== ""}
          onChange={(event) => go({ open: event.target.checked ? "1" : "" })}
        />
        running
      </label>
      <Button className="md:hidden" aria-expanded={more} onClick={() => setMore(!more)}>
        {more ? "Fewer filters" : "More filters"}
      </Button>
      {all.some((name) => at(name)) && (
        <Button kind="quiet" onClick={() => go(Object.fromEntries(all.map((name) => [name, ""])))}>
          All operations
        </Button>
      )}
    </search>
  );
}

function Filter(props: { label: string; width: string; children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className={props.width}>
      <label htmlFor={id} className="text-xs text-muted">
        {props.label}
      </label>
      {props.children(id)}
    </div>
  );
}
