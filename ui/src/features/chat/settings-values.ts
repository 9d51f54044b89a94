// The fields of the settings as text, and back. A field of the model that is empty is the server's, and stays so: only what
// the owner sets itself is sent.
import type { ModelSettings } from "@/api/agent";
import type { RunSettings } from "./queries";

const NUMBERS = ["max_iterations", "max_tokens", "max_seconds"] as const;
const APPROVALS = ["none", "write", "network", "all"] as const;

export interface Form {
  model: string;
  provider: string;
  api_key: string;
  base_url: string;
  supports_vision: string;
  context_tokens: string;
  approval: string;
  max_iterations: string;
  max_tokens: string;
  max_seconds: string;
}

export const formOf = ({ own }: ModelSettings, run: RunSettings): Form => ({
  model: own.model ?? "",
  provider: own.provider ?? "",
  api_key: "",
  base_url: own.base_url ?? "",
  supports_vision: own.supports_vision === null ? "" : String(own.supports_vision),
  context_tokens: String(own.context_tokens ?? ""),
  approval: run.approval ?? "none",
  max_iterations: String(run.max_iterations ?? ""),
  max_tokens: String(run.max_tokens ?? ""),
  max_seconds: String(run.max_seconds ?? ""),
});

export const bodyOf = ({ model, provider, api_key, base_url, supports_vision, context_tokens }: Form) => ({
  model,
  provider,
  api_key,
  base_url,
  supports_vision,
  context_tokens: Number(context_tokens) || null,
});

export function runOf(form: Form): RunSettings {
  const settings: RunSettings = { approval: APPROVALS.find((each) => each === form.approval) };
  for (const name of NUMBERS) {
    const value = Number(form[name]);
    if (Number.isSafeInteger(value) && value > 0) settings[name] = value;
  }
  return settings;
}

/** What applies where a field is left empty: the server's, which only shows where the owner set nothing. */
export const serverOf = (model: ModelSettings, name: "model" | "provider" | "base_url") => ({
  placeholder: (model.own[name] === null && model[name]) || "",
});

export function keyHint({ own, has_api_key, api_key_hint }: ModelSettings, moved: boolean): string {
  if (moved) return "A key goes with its provider and base URL: give the one of this place.";
  if (own.has_api_key)
    return `${api_key_hint ?? "One"} is kept. It is never shown again; leave this empty to keep it.`;
  return has_api_key ? "The server has one. Yours goes before it." : "None is kept. It is never shown again.";
}
