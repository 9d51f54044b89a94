import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ask, type Message, type ModelSettings } from "@/api/agent";
import { ApiError } from "@/api/errors";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { Field, Input, Select } from "@/components/field";
import { Mark } from "@/components/mark";
import { notify } from "@/components/toast";
import { duration } from "@/lib/format";
import { plain } from "@/lib/plain-text";
import { modelSettings, putRunSettings, type RunSettings, runSettings } from "./queries";
import { bodyOf, type Form, formOf, keyHint, runOf, serverOf } from "./settings-values";
import { firstLine, textOf } from "./text";

const PROVIDERS = ["openai", "openai_responses", "anthropic", "google_genai", "ollama"];

const APPROVALS = [
  ["none", "nothing"],
  ["write", "tools that change something"],
  ["network", "tools that may reach the network"],
  ["all", "every tool"],
] as const;

interface Tested {
  ms: number;
  answer: string;
}

/** Asks the model for a word, in a run that leaves nothing behind and may call no tool. */
async function testModel(): Promise<Tested> {
  const began = performance.now();
  const outcome = await ask<{ messages?: Message[]; __error__?: { error: string; message: string } }>(
    "POST",
    "/runs/wait",
    {
      assistant_id: "agent",
      input: { messages: [{ type: "human", content: "Answer with the single word: ready" }] },
      config: { configurable: { max_iterations: 1, max_seconds: 60, approval: "all" } },
    },
  );
  if (outcome.__error__) throw new ApiError(outcome.__error__.message, 0, outcome.__error__.error);
  const said = outcome.messages?.findLast((message) => message.type === "ai");
  return { ms: performance.now() - began, answer: firstLine(textOf(said?.content ?? ""), 200) };
}

interface Props {
  model: ModelSettings;
  run: RunSettings;
  onClose: () => void;
}

export function SettingsForm({ model, run, onClose }: Props) {
  const client = useQueryClient();
  const readOnly = useSignedIn().scope === "read_only";
  const [form, setForm] = useState<Form>(() => formOf(model, run));
  const change = (changes: Partial<Form>) => setForm((before) => ({ ...before, ...changes }));
  const save = useMutation({
    mutationFn: async (tests: boolean) => {
      const kept = await ask<ModelSettings>("PUT", "/settings", bodyOf(form));
      await putRunSettings(runOf(form));
      client.setQueryData(modelSettings().queryKey, kept);
      client.setQueryData(runSettings().queryKey, runOf(form));
      change({ api_key: "" });
      return tests;
    },
    onSuccess: (tests) => {
      if (tests) test.mutate();
      else {
        notify("The settings are saved");
        onClose();
      }
    },
  });
  const test = useMutation({ mutationFn: testModel });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    test.reset();
    save.mutate(false);
  };
  const input = (name: keyof Form, label: string, hint: string, more: Record<string, unknown> = {}) => (
    <Field label={label} hint={hint}>
      {(props) => (
        <Input
          {...props}
          {...more}
          disabled={readOnly}
          value={form[name]}
          onChange={(event) => change({ [name]: event.target.value })}
        />
      )}
    </Field>
  );
  const number = (name: keyof Form, label: string, hint: string) =>
    input(name, label, hint, { type: "number", min: 1, step: 1 });
  const { own } = model;
  const moved = form.provider !== (own.provider ?? "") || form.base_url !== (own.base_url ?? "");
  const forget = useMutation({
    mutationFn: () => ask<ModelSettings>("DELETE", "/settings/api-key"),
    onSuccess: (kept) => client.setQueryData(modelSettings().queryKey, kept),
    meta: { failed: "The key was not removed" },
  });
  const busy = save.isPending || test.isPending || forget.isPending;
  return (
    <form onSubmit={submit} className="flex min-h-0 flex-col">
      <div className="flex min-h-0 flex-col gap-2 overflow-y-auto p-4">
        <div className="grid gap-x-4 gap-y-1 md:grid-cols-2">
          {input("model", "Model", "Such as gpt-4o; the server's where empty", serverOf(model, "model"))}
          {input("provider", "Provider", "The server's, or found out by the model's name, where empty", {
            list: "providers",
            ...serverOf(model, "provider"),
          })}
          <datalist id="providers">
            {PROVIDERS.map((each) => (
              <option key={each} value={each} />
            ))}
          </datalist>
          <div>
            {input("api_key", "Key", keyHint(model, moved), {
              type: "password",
              autoComplete: "new-password",
              placeholder: model.api_key_hint ?? "",
            })}
            {own.has_api_key && !readOnly && (
              <Button kind="quiet" small disabled={busy} onClick={() => forget.mutate()}>
                Remove the key
              </Button>
            )}
          </div>
          {input("base_url", "Base URL", "The server's, or the provider's own, where empty", {
            type: "url",
            ...serverOf(model, "base_url"),
          })}
          {number(
            "context_tokens",
            "Context",
            "Tokens that the model reads at once; found out by its name where empty",
          )}
          <Field label="Pictures" hint="Whether the model is sent pictures that code shows">
            {(props) => (
              <Select
                {...props}
                disabled={readOnly}
                value={form.supports_vision}
                onChange={(event) => change({ supports_vision: event.target.value })}
              >
                <option value="">found out by the model's name</option>
                <option value="true">it sees pictures</option>
                <option value="false">it sees none</option>
              </Select>
            )}
          </Field>
          <Field label="Ask me before" hint="The agent waits for your approval">
            {(props) => (
              <Select
                {...props}
                disabled={readOnly}
                value={form.approval}
                onChange={(event) => change({ approval: event.target.value })}
              >
                {APPROVALS.map(([value, words]) => (
                  <option key={value} value={value}>
                    {words}
                  </option>
                ))}
              </Select>
            )}
          </Field>
        </div>
        <div className="grid gap-x-4 gap-y-1 border-t pt-3 md:grid-cols-3">
          {number("max_iterations", "Steps of a run", "The server's most where empty")}
          {number("max_tokens", "Tokens of a run", "The server's most where empty")}
          {number("max_seconds", "Seconds of a run", "The server's most where empty")}
        </div>
        {save.error && <ErrorNote what="The settings were not saved" error={save.error} />}
        {test.error && <ErrorNote what="The model does not answer" error={test.error} />}
        {test.data && (
          <p role="status" className="text-sm">
            <Mark tone="verified">The model answers</Mark> in {duration(test.data.ms)}:{" "}
            <q className="text-muted">{plain(test.data.answer)}</q>
          </p>
        )}
      </div>
      {!readOnly && (
        <div className="flex justify-end gap-2 border-t px-4 py-3">
          <Button disabled={busy} onClick={() => save.mutate(true)}>
            {test.isPending ? "Asking the model…" : "Save and test"}
          </Button>
          <Button kind="primary" type="submit" disabled={busy}>
            Save
          </Button>
        </div>
      )}
    </form>
  );
}
