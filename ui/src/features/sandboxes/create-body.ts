// The create form as a request, and as a command.
import type { Schemas } from "@/api/client";
import { linesOf, NOTHING, policyOf, policyWords } from "@/lib/egress-policy";
import { quote } from "@/lib/shell";

type Body = Schemas["CreateBody"];

export const EMPTY = {
  image: "",
  profile: "",
  memory_mb: "",
  cpu_cores: "",
  disk_mb: "",
  processes: "",
  idle_timeout_seconds: "",
  max_lifetime_seconds: "",
  session_key: "",
  auto_snapshot: "",
  labels: "",
  env_vars: "",
  secrets: "",
  dependencies: "",
  volumes: "",
  tenant_id: "",
  read_only: "",
  read_write: "",
  blocked: "",
  /** Whether it has what the tier allows, where there are no rules of its own. */
  network: false,
  /** Its own rules; the mode `none` is none. */
  egress: NOTHING,
};

export type Form = typeof EMPTY;

/** Lines of name=value. A line without `=` is a name with an empty value. */
function pairs(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  const entries = lines.map((line): [string, string] => {
    const at = line.indexOf("=");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
  });
  return Object.fromEntries(entries);
}

/** Lines of LANGUAGE:NAME or LANGUAGE:NAME==VERSION, by language. */
function packages(text: string): Record<string, Record<string, string>> {
  const all: Record<string, Record<string, string>> = {};
  for (const line of linesOf(text)) {
    const [, language = "python", name = "", version = ""] =
      /^(?:([^:]*):)?(.*?)(?:==(.*))?$/.exec(line) ?? [];
    all[language] = { ...all[language], [name]: version };
  }
  return all;
}

/** Lines of NAME:PATH or NAME:PATH:ro. */
function attached(text: string): Schemas["Attachment"][] {
  return linesOf(text).map((line) => {
    const [name = "", path = "", how] = line.split(":");
    return { name, path, read_only: how === "ro" };
  });
}

/** A text that is no number goes to the server as it is, which says what is wrong with the field. */
function figure(text: string): number | undefined {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  const value = Number(trimmed);
  return Number.isFinite(value) ? value : (trimmed as unknown as number);
}

/** Nothing of what holds nothing. */
function some<T extends object>(value: T): T | undefined {
  return Object.keys(value).length > 0 ? value : undefined;
}

export function bodyOf(form: Form): Body {
  const rules = {
    read_only: some(linesOf(form.read_only)),
    read_write: some(linesOf(form.read_write)),
    blocked: some(linesOf(form.blocked)),
  };
  const body = {
    image: form.image || undefined,
    profile: form.profile || undefined,
    memory_mb: figure(form.memory_mb),
    cpu_cores: figure(form.cpu_cores),
    disk_mb: figure(form.disk_mb),
    processes: figure(form.processes),
    idle_timeout_seconds: figure(form.idle_timeout_seconds),
    max_lifetime_seconds: figure(form.max_lifetime_seconds),
    session_key: form.session_key || undefined,
    auto_snapshot: form.auto_snapshot || undefined,
    labels: some(pairs(form.labels)),
    env_vars: some(pairs(form.env_vars)),
    secrets: some(pairs(form.secrets)),
    dependencies: some(packages(form.dependencies)),
    volumes: some(attached(form.volumes)),
    tenant_id: form.tenant_id || undefined,
    filesystem: Object.values(rules).some(Boolean) ? rules : undefined,
    network_enabled: form.network || undefined,
    egress: form.egress.mode === "none" ? undefined : policyOf(form.egress),
  };
  return JSON.parse(JSON.stringify(body)) as Body;
}

/** Nothing where there are secrets, which are not for the list of a machine's processes, or rules of single requests,
 * which have no flag. */
export function asCli(form: Form): string | undefined {
  const { egress } = form;
  const policy = policyWords(egress);
  if (form.secrets.trim() || !policy) return undefined;
  const words = ["atoll", "create"];
  const add = (flag: string, value: string, unit = "") =>
    value.trim() && words.push(flag, quote(value.trim() + unit));
  add("--image", form.image);
  add("--profile", form.profile);
  add("--memory", form.memory_mb, "m");
  add("--cpus", form.cpu_cores);
  add("--disk", form.disk_mb, "m");
  add("--processes", form.processes);
  add("--idle-timeout", form.idle_timeout_seconds, "s");
  add("--max-lifetime", form.max_lifetime_seconds, "s");
  if (form.network) words.push("--network");
  if (egress.mode !== "none") words.push("--egress-mode", egress.mode, ...policy);
  add("--session-key", form.session_key);
  add("--auto-snapshot", form.auto_snapshot);
  for (const [name, value] of Object.entries(pairs(form.labels))) add("--label", `${name}=${value}`);
  for (const [name, value] of Object.entries(pairs(form.env_vars))) add("--env", `${name}=${value}`);
  for (const line of linesOf(form.dependencies))
    add("--dependency", line.includes(":") ? line : `python:${line}`);
  for (const line of linesOf(form.volumes)) add("--volume", line);
  add("--tenant", form.tenant_id);
  for (const line of linesOf(form.read_only)) add("--read-only", line);
  for (const line of linesOf(form.read_write)) add("--read-write", line);
  for (const line of linesOf(form.blocked)) add("--blocked", line);
  return words.join(" ");
}
