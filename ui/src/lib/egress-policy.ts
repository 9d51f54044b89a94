// An egress policy as forms edit it. Entries that allow single requests are JSON in a line, as the API writes them.
import type { components } from "@/api/schema";
import { quote } from "./shell";

type Policy = components["schemas"]["EgressPolicy"];
type Entry = components["schemas"]["EgressEntry"];
export type Mode = NonNullable<Policy["mode"]>;

export interface PolicyDraft {
  mode: Mode;
  allow: string;
  deny: string;
  presets: string[];
  limits: Record<string, string>;
}

export const NOTHING: PolicyDraft = { mode: "none", allow: "", deny: "", presets: [], limits: {} };

export const MODES: Record<Mode, string> = {
  none: "nothing is reachable",
  allowlist: "only what is listed is reachable",
  full: "everything but private addresses is reachable",
};

export const write = (entries: Entry[] = []) =>
  entries.map((entry) => (typeof entry === "string" ? entry : JSON.stringify(entry))).join("\n");

/** A line that is no JSON goes to the server as it is, which says what is wrong with it. */
function entryOf(line: string): Entry {
  if (!line.startsWith("{")) return line;
  try {
    return JSON.parse(line) as Entry;
  } catch {
    return line;
  }
}

export const linesOf = (text: string) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** The limits that say something. */
export const boundsOf = ({ limits }: PolicyDraft) =>
  Object.entries(limits).filter(([, value]) => value.trim());

export function draftOf(policy: Policy): PolicyDraft {
  const limits = Object.entries(policy.limits ?? {}).map(([name, value]) => [name, String(value ?? "")]);
  return {
    mode: policy.mode ?? "none",
    allow: write(policy.allow),
    deny: write(policy.deny),
    presets: policy.presets ?? [],
    limits: Object.fromEntries(limits),
  };
}

/** The words of a command after the mode; nothing where rules are of single requests, which have no flag. */
export function policyWords(draft: PolicyDraft): string[] | undefined {
  const rules = draft.mode === "none" ? [] : linesOf(`${draft.allow}\n${draft.deny}`);
  if (rules.some((rule) => rule.startsWith("{"))) return undefined;
  const words: string[] = [];
  const add = (flag: string, value: string) => words.push(flag, quote(value));
  if (draft.mode !== "none") {
    for (const line of linesOf(draft.allow)) add("--allow", line);
    for (const line of linesOf(draft.deny)) add("--deny", line);
  }
  for (const name of draft.mode === "allowlist" ? draft.presets : []) add("--preset", name);
  for (const [name, value] of boundsOf(draft)) add("--limit", `${name}=${value.trim()}`);
  return words;
}

export function policyOf(draft: PolicyDraft): Policy {
  const { mode, allow, deny, presets } = draft;
  const bounds = boundsOf(draft);
  return {
    mode,
    ...(mode !== "none" && { allow: linesOf(allow).map(entryOf), deny: linesOf(deny).map(entryOf) }),
    ...(mode === "allowlist" && { presets }),
    ...(bounds.length > 0 && {
      limits: Object.fromEntries(bounds.map(([name, value]) => [name, Number(value)])),
    }),
  } as Policy;
}
