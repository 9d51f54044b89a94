// Every setting that the server has, with its bounds and what it means as the API describes them: a setting that a
// later server adds shows here without a change of this page.
import { queryOptions } from "@tanstack/react-query";
import { type Schemas, send } from "@/api/client";

interface Schema {
  type?: string | string[];
  description?: string;
  enum?: (string | null)[];
  minimum?: number;
  maximum?: number;
  properties?: Record<string, Schema>;
  $ref?: string;
}

type Kind = "switch" | "choice" | "number" | "text" | "list" | "json";

export interface Setting {
  /** As the CLI and `sources` call it: `admission.wait_seconds`. */
  name: string;
  group: string;
  kind: Kind;
  value: unknown;
  /** default, file, environment, flag or stored. */
  source: string;
  description: string;
  options: string[];
  minimum?: number;
  maximum?: number;
}

export const describedSchemas = () =>
  queryOptions({
    queryKey: ["openapi"],
    queryFn: async ({ signal }) => {
      const document = (await (await send("/openapi.json", { signal })).json()) as {
        components: { schemas: Record<string, Schema> };
      };
      return document.components.schemas;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

const OWN = "atoll";
/** Names without a dot that lie in `atoll` all the same. */
const OWN_WHOLE = ["plans", "owners"];

/** Where a setting lies in the body. */
function placeOf(name: string): string[] {
  return name.includes(".") || OWN_WHOLE.includes(name) ? [OWN, ...name.split(".")] : [name];
}

function schemaAt(all: Record<string, Schema>, root: string, place: string[]): Schema {
  let at: Schema | undefined = all[root];
  for (const step of place) {
    at = at?.properties?.[step];
    if (at?.$ref) at = all[at.$ref.split("/").at(-1) ?? ""];
  }
  return at ?? {};
}

function valueAt(item: Schemas["SettingsItem"], place: string[]): unknown {
  let at: unknown = item;
  for (const step of place) at = (at as Record<string, unknown> | undefined)?.[step];
  return at ?? null;
}

function kindOf(schema: Schema): Kind {
  const types = [schema.type ?? []].flat();
  if (types.includes("boolean")) return "switch";
  if (schema.enum) return "choice";
  if (types.includes("integer") || types.includes("number")) return "number";
  if (types.includes("array")) return "list";
  return types.includes("string") ? "text" : "json";
}

export function settingsOf(item: Schemas["SettingsItem"], schemas: Record<string, Schema>): Setting[] {
  return Object.entries(item.atoll.sources).map(([name, source]) => {
    const place = placeOf(name);
    const body = schemaAt(schemas, "SettingsBody", place);
    return {
      name,
      group: place.length > 2 ? (place[1] as string) : OWN_WHOLE.includes(name) ? "plan" : "",
      kind: kindOf(body),
      value: valueAt(item, place),
      source,
      description: schemaAt(schemas, "SettingsItem", place).description ?? "",
      options: (body.enum ?? []).filter((option) => option !== null),
      minimum: body.minimum,
      maximum: body.maximum,
    };
  });
}

/** A value as it is typed. */
export function textOf({ kind, value }: Setting): string {
  if (value === null || value === undefined) return "";
  if (kind === "list") return (value as string[]).join(", ");
  if (kind === "json") return JSON.stringify(value, null, 2);
  return String(value);
}

/** What was typed, as a value. Throws where it is no JSON. */
export function parsed({ kind, name }: Setting, text: string): unknown {
  if (kind === "switch") return text === "true";
  if (kind === "number") return text.trim() === "" ? null : Number(text);
  if (kind === "list") {
    const list = text.split(/[,\n]/).map((each) => each.trim());
    const all = list.filter(Boolean);
    // An empty list of images means that none may be used; left empty, all may.
    return name === "db_active_images" && all.length === 0 ? null : all;
  }
  if (kind === "json") return JSON.parse(text) as unknown;
  return text || null;
}

/** A change, in the places that the API has for it. */
export function bodyOf(changes: Map<string, unknown>): Schemas["SettingsBody"] {
  const body: Record<string, unknown> = {};
  for (const [name, value] of changes) {
    const place = placeOf(name);
    let at = body;
    for (const step of place.slice(0, -1)) {
      at[step] ??= {};
      at = at[step] as Record<string, unknown>;
    }
    at[place.at(-1) as string] = value;
  }
  return body as Schemas["SettingsBody"];
}
