// The settings of the server: changed together, all of them or none, at once and for good.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { settings as settingsQuery } from "@/api/queries";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Input } from "@/components/field";
import { Loading, PageHead, Panel, useTitle } from "@/components/page";
import { notify } from "@/components/toast";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { Fixed } from "./fixed";
import { bodyOf, describedSchemas, parsed, type Setting, settingsOf } from "./model";
import { type Draft, SettingRow } from "./row";
import { Tiers } from "./tiers";

const GROUPS: [group: string, title: string][] = [
  ["", "Sandboxes"],
  ["lifecycle", "Lifecycle"],
  ["plan", "Plans of owners"],
  ["admission", "Admission"],
  ["pool", "Warm pool"],
  ["images", "Images"],
  ["snapshots", "Snapshots"],
  ["tool_sessions", "Tool sessions"],
  ["http", "HTTP"],
];

export default function Settings() {
  useTitle("Settings");
  const item = useQuery(settingsQuery());
  const schemas = useQuery(describedSchemas());
  const error = item.error ?? schemas.error;
  return (
    <>
      {error && <ErrorNote what="The settings cannot be shown" error={error} />}
      {item.data && schemas.data ? (
        <Editor all={settingsOf(item.data, schemas.data)} item={item.data} />
      ) : (
        !error && <Loading />
      )}
    </>
  );
}

function Editor({ all, item }: { all: Setting[]; item: Schemas["SettingsItem"] }) {
  const client = useQueryClient();
  const [at, go] = useAddress();
  const [drafts, setDrafts] = useState(new Map<string, Draft>());
  const [typed, setTyped] = useState<Record<string, string>>({});
  const save = useMutation({
    mutationFn: (body: Schemas["SettingsBody"]) => unwrap(api.PATCH("/api/v1/settings/sandbox", { body })),
    onSuccess: (changed) => {
      client.setQueryData(settingsQuery().queryKey, changed);
      notify(drafts.size === 1 ? "1 setting was changed" : `${drafts.size} settings were changed`);
      setDrafts(new Map());
    },
  });
  const search = at("q").toLowerCase();
  const shown = all.filter(
    (setting) =>
      (!search || `${setting.name} ${setting.description}`.toLowerCase().includes(search)) &&
      (!at("set") || setting.source !== "default" || drafts.has(setting.name)),
  );
  const draft = (name: string, next: Draft | undefined) => {
    setTyped({});
    save.reset();
    setDrafts((before) => {
      const after = new Map(before);
      if (next === undefined) after.delete(name);
      else after.set(name, next);
      return after;
    });
  };
  const submit = () => {
    const [changes, wrong] = read(all, drafts);
    setTyped(wrong);
    if (Object.keys(wrong).length === 0) save.mutate(bodyOf(changes));
  };
  const fields = { ...fieldsOf(save.error), ...typed };
  const known = new Set(GROUPS.map(([group]) => group));
  const groups = [
    ...GROUPS,
    ...[...new Set(all.map((each) => each.group))].filter((g) => !known.has(g)).map((g) => [g, g] as const),
  ];
  return (
    <>
      <PageHead
        title="Settings"
        actions={
          <>
            <Input
              type="search"
              aria-label="Search the settings"
              placeholder="Search"
              className="max-w-48"
              value={at("q")}
              onChange={(event) => go({ q: event.target.value })}
            />
            <label className="flex items-center gap-1.5 text-xs text-muted">
              <input
                type="checkbox"
                checked={at("set") !== ""}
                onChange={(event) => go({ set: event.target.checked ? "1" : "" })}
              />
              only those that were set
            </label>
            <CopyAs cli={cliOf(drafts)} curl={curl("GET", "/api/v1/settings/sandbox")} />
          </>
        }
      />
      <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
        {groups.map(([group, title]) => {
          const rows = shown.filter((setting) => setting.group === group);
          if (rows.length === 0) return null;
          return (
            <Panel key={group} title={title}>
              {rows.map((setting) => (
                <SettingRow
                  key={setting.name}
                  setting={setting}
                  draft={drafts.get(setting.name)}
                  error={fields[setting.name]}
                  onDraft={(next) => draft(setting.name, next)}
                />
              ))}
            </Panel>
          );
        })}
        {shown.length === 0 && <p className="text-muted">No setting is called so.</p>}
        {!search && !at("set") && (
          <>
            <Fixed item={item} />
            <Tiers tiers={item.atoll.tiers} />
          </>
        )}
      </div>
      {drafts.size > 0 && (
        <div className="flex flex-col gap-2 border-t bg-surface px-4 py-2">
          {save.error && <ErrorNote what="Nothing was changed" error={save.error} />}
          <div className="flex items-center gap-2">
            <span className="flex-1">
              {drafts.size} {drafts.size === 1 ? "change" : "changes"}: all apply at once, or none
            </span>
            <Button onClick={() => setDrafts(new Map())}>Discard</Button>
            <Button kind="primary" disabled={save.isPending} onClick={submit}>
              Save
            </Button>
          </div>
        </div>
      )}
    </>
  );
}

/** The drafts as values, and what could not be read. */
function read(all: Setting[], drafts: Map<string, Draft>): [Map<string, unknown>, Record<string, string>] {
  const changes = new Map<string, unknown>();
  const wrong: Record<string, string> = {};
  for (const setting of all) {
    const text = drafts.get(setting.name);
    if (text === undefined) continue;
    try {
      changes.set(setting.name, text === null ? null : parsed(setting, text));
    } catch (error) {
      wrong[setting.name] = error instanceof Error ? error.message : String(error);
    }
  }
  return [changes, wrong];
}

/** The server names a field by its place in the body; the rows have the setting's own name. */
function fieldsOf(error: unknown): Record<string, string> {
  if (!error) return {};
  const fields: Record<string, string> = {};
  for (const [place, message] of Object.entries(asApiError(error).fields))
    fields[place.replace(/^atoll\./, "")] = message;
  return fields;
}

function cliOf(drafts: Map<string, Draft>): string {
  if (drafts.size === 0) return "atoll settings show";
  return [
    "atoll settings set",
    ...[...drafts].map(([name, draft]) => quote(`${name}=${draft ?? "null"}`)),
  ].join(" ");
}
