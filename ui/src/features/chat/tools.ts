// The six tools: what a call of one is called, what it runs, and what its result says.
import type { Shown, ToolMessage } from "@/api/agent";
import type { Piece } from "@/components/output-box";
import { parsed, textOf } from "./text";

const TITLES: Record<string, string> = {
  create_session: "Make a session",
  execute_code: "Run code",
  execute_terminal: "Run a command",
  import_files: "Import files",
  export_files: "Export files",
  stop_session: "Stop a session",
};

export const titleOf = (name: string) => (Object.hasOwn(TITLES, name) ? TITLES[name] : undefined) ?? name;

/** The argument that is a program, and its language. */
export function programOf(
  name: string,
  args: Record<string, unknown>,
  runtime: string,
): { argument: string; text: string; language: string } | undefined {
  const [argument, language] = name === "execute_code" ? ["code", runtime] : ["command", "sh"];
  const text = args[argument];
  const runs = name === "execute_code" || name === "execute_terminal";
  return runs && typeof text === "string" ? { argument, language, text } : undefined;
}

export interface ExportedFile {
  session: string;
  path: string;
  size?: number;
  error?: string;
}

/** A result, as far as its shape is known. */
export interface Result {
  output: Piece[];
  shown: Shown[];
  /** A file that was imported or exported. */
  files: ExportedFile[];
  /** How it ended, where that is not simply done. */
  word?: string;
  failed: boolean;
  error?: string;
  /** Of another shape: the text itself. */
  rest?: string;
}

const string = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const list = (value: unknown): Record<string, unknown>[] =>
  Array.isArray(value) ? value.filter((each) => typeof each === "object" && each !== null) : [];

/** The value of code by the best type that can be shown. */
const VALUES = ["image/png", "image/jpeg", "image/svg+xml", "text/html", "text/plain"];

function shownOf(value: Record<string, unknown>, pictures: Shown[]): Shown[] {
  const left = [...pictures];
  const displays = list(value.display_outputs).flatMap(({ type, data }): Shown[] => {
    if (typeof type !== "string" || typeof data !== "string") return [];
    if (!type.startsWith("image/") || type === "image/svg+xml") return [{ type, data }];
    // Pictures made of pixels stand beside the result.
    const at = left.findIndex((picture) => picture.type === type);
    const [picture] = at < 0 ? [] : left.splice(at, 1);
    return [picture ?? { type: "text/plain", data: "[a picture that was not kept]" }];
  });
  if (displays.length > 0) return displays;
  const result = value.result as Record<string, unknown> | null | undefined;
  const type = VALUES.find((each) => typeof result?.[each] === "string");
  return type ? [{ type, data: String(result?.[type]) }] : [];
}

function errorOf({ error, hint }: Record<string, unknown>): string | undefined {
  if (typeof error === "string") return [error, string(hint)].filter(Boolean).join("\n");
  if (typeof error !== "object" || error === null) return undefined;
  const { type, message, traceback } = error as Record<string, unknown>;
  return string(traceback) ?? [string(type), string(message)].filter(Boolean).join(": ");
}

export function resultOf(message: ToolMessage): Result {
  const text = textOf(message.content);
  const failed = message.status === "error";
  const value = parsed(text);
  if (!value) return { output: [], shown: [], files: [], failed, rest: text };
  const output: Piece[] = [];
  for (const stream of ["stdout", "stderr"] as const) {
    const printed = string(value[stream]);
    if (printed) output.push({ stream, text: printed });
  }
  const code = typeof value.exit_code === "number" ? value.exit_code : undefined;
  const files = list(value.files).map((file) => ({
    session: string(file.session_id) ?? "",
    path: string(file.path) ?? string(file.destination) ?? "",
    size: typeof file.size === "number" ? file.size : undefined,
    error: string(file.error),
  }));
  return {
    output,
    files,
    shown: shownOf(value, message.artifact?.display_outputs ?? []),
    word: code === undefined ? undefined : `exit ${code}`,
    failed: failed || value.success === false || (code !== undefined && code !== 0),
    error: errorOf(value),
  };
}

/** Where a file that was exported is downloaded. */
export const downloadUrl = (thread: string, { session, path }: Pick<ExportedFile, "session" | "path">) =>
  `/threads/${thread}/files/download?${new URLSearchParams({ session_id: session, path })}`;
