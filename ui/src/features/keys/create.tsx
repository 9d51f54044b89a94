import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs, CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, Select } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { curl, quote } from "@/lib/shell";

type Body = Schemas["KeyBody"];
const TIERS = ["sandbox", "restricted", "standard", "elevated", "unrestricted"] as const;
const LIVES: [label: string, seconds: string][] = [
  ["a day", "86400"],
  ["a week", "604800"],
  ["30 days", "2592000"],
  ["a year", "31536000"],
];

/** A session makes no key without an end; a server without keys has no sessions. */
const FOR_EVER: [label: string, seconds: string] = ["for ever", ""];
const USUAL = 2592000;

export function CreateKey({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  // The secret is in this component alone: it goes with the panel, and no cache has it.
  const [secret, setSecret] = useState<Schemas["NewKeyItem"]>();
  const create = useMutation({
    mutationFn: (body: Body) => unwrap(api.POST("/api/v1/keys", { body })),
    gcTime: 0,
    onSuccess: (made) => {
      setSecret(made);
      create.reset();
      void client.invalidateQueries({ queryKey: ["keys"] });
    },
  });
  return (
    <SidePanel title="Create a key" label="Create a key" onClose={onClose}>
      {secret ? (
        <Once made={secret} onClose={onClose} />
      ) : (
        <Form busy={create.isPending} error={create.error} onSend={(body) => create.mutate(body)} />
      )}
    </SidePanel>
  );
}

function Once({ made, onClose }: { made: Schemas["NewKeyItem"]; onClose: () => void }) {
  return (
    <div className="flex flex-col gap-3">
      <p>
        <strong className="font-medium">{made.name}</strong> was made for {made.owner}. This is its secret,
        shown this once: the server keeps only a hash of it.
      </p>
      <CopyLine text={made.key} />
      <div>
        <Button kind="primary" onClick={onClose}>
          I have it
        </Button>
      </div>
    </div>
  );
}

function cliOf(body: Body): string {
  const words = ["atoll keys create", quote(body.name || "NAME")];
  if (body.owner) words.push("--owner", quote(body.owner));
  if (body.scope) words.push("--scope", body.scope);
  if (body.tier) words.push("--tier", body.tier);
  if (body.expires_in_seconds) words.push("--expires-in", `${body.expires_in_seconds}s`);
  return words.join(" ");
}

function Form({ busy, error, onSend }: { busy: boolean; error: unknown; onSend: (body: Body) => void }) {
  const session = useSignedIn();
  const open = session.access === "open";
  const [body, setBody] = useState<Body>({
    name: "",
    scope: "user",
    expires_in_seconds: open ? undefined : USUAL,
  });
  const set = (change: Partial<Body>) => setBody((before) => ({ ...before, ...change }));
  const fields = error ? asApiError(error).fields : {};
  const admin = session.scope === "admin";
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(body);
      }}
    >
      <Field label="Name" error={fields.name} hint="What to call it, such as the program that uses it.">
        {(props) => (
          <Input
            {...props}
            required
            maxLength={100}
            value={body.name}
            onChange={(event) => set({ name: event.target.value })}
          />
        )}
      </Field>
      {admin && (
        <Field label="Owner" error={fields.owner} hint={`Whose it is; ${session.owner} where it is empty.`}>
          {(props) => (
            <Input
              {...props}
              value={body.owner ?? ""}
              onChange={(event) => set({ owner: event.target.value || undefined })}
            />
          )}
        </Field>
      )}
      <Field
        label="Scope"
        error={fields.scope}
        hint="An admin's key does everything, for all owners; a read-only one changes nothing."
      >
        {(props) => (
          <Select
            {...props}
            value={body.scope ?? "user"}
            onChange={(event) => {
              const scope = event.target.value as Body["scope"];
              set(scope === "admin" ? { scope, tier: undefined } : { scope });
            }}
          >
            <option value="user">user</option>
            <option value="read_only">read-only</option>
            {admin && <option value="admin">admin</option>}
          </Select>
        )}
      </Field>
      {body.scope !== "admin" && (
        <Field label="Tier" error={fields.tier} hint="The ceiling of what its requests may ask for.">
          {(props) => (
            <Select
              {...props}
              value={body.tier ?? ""}
              onChange={(event) => set({ tier: (event.target.value || undefined) as Body["tier"] })}
            >
              <option value="">standard, or yours where that is lower</option>
              {TIERS.map((tier) => (
                <option key={tier}>{tier}</option>
              ))}
            </Select>
          )}
        </Field>
      )}
      <Field label="Valid" error={fields.expires_in_seconds} hint="It can be revoked at any time.">
        {(props) => (
          <Select
            {...props}
            value={body.expires_in_seconds ? String(body.expires_in_seconds) : ""}
            onChange={(event) => set({ expires_in_seconds: Number(event.target.value) || undefined })}
          >
            {(open ? [FOR_EVER, ...LIVES] : LIVES).map(([label, seconds]) => (
              <option key={label} value={seconds}>
                {label}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {error != null && Object.keys(fields).length === 0 && (
        <ErrorNote what="The key was not made" error={error} />
      )}
      <div className="flex items-center gap-2">
        <Button kind="primary" type="submit" disabled={!body.name.trim() || busy}>
          Create
        </Button>
        <CopyAs cli={cliOf(body)} curl={curl("POST", "/api/v1/keys", body)} />
      </div>
    </form>
  );
}
