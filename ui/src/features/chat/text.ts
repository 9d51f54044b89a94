// Words of a conversation.
import type { AiMessage, Content, Message, Thread } from "@/api/agent";
import { plain } from "@/lib/plain-text";

export const TITLE = 80;

export function textOf(content: Content): string {
  if (typeof content === "string") return content;
  return content.map((block) => (block.type === "text" ? (block.text ?? "") : "")).join("");
}

/** The first line of a text, for lists. */
export function firstLine(text: string, most = TITLE): string {
  const line = text.trim().split("\n")[0] ?? "";
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** What the agent is told of files, in the words of `atoll chat`. */
export const withFiles = (text: string, paths: string[]) =>
  [text, ...paths.map(attached)].filter(Boolean).join("\n\n");

const attached = (path: string) =>
  `(A file is attached: import it with import_files, source ${JSON.stringify(path)}.)`;

const ATTACHED = /\n*\(A file is attached: import it with import_files, source ("(?:[^"\\]|\\.)*")\.\)/g;

/** A person's text and the files that it names. */
export function withoutFiles(text: string): { text: string; files: string[] } {
  const files: string[] = [];
  const rest = text.replace(ATTACHED, (_, quoted: string) => {
    files.push(unquoted(quoted));
    return "";
  });
  return { text: rest.trim(), files };
}

function unquoted(text: string): string {
  try {
    return String(JSON.parse(text));
  } catch {
    return text.slice(1, -1);
  }
}

/** What a conversation is called: its title, or how it began. */
export function titleOf(thread: Pick<Thread, "metadata"> & Partial<Pick<Thread, "values">>): string {
  const { title } = thread.metadata;
  if (typeof title === "string" && title.trim()) return plain(firstLine(title));
  const said = thread.values?.messages.find((message) => message.type === "human");
  return (said && plain(firstLine(withoutFiles(textOf(said.content)).text))) || "Untitled";
}

const sessionOf = (value: unknown): unknown =>
  typeof value === "object" && value !== null && "session_id" in value ? value.session_id : undefined;

/** What a session speaks, as it was made in this conversation. */
export function languageOf(messages: Message[], session: unknown): string {
  for (const message of messages) {
    if (message.type !== "tool" || message.name !== "create_session") continue;
    const result = parsed(textOf(message.content));
    if (sessionOf(result) === session && typeof result?.runtime === "string") return result.runtime;
  }
  return "python";
}

/** An object in JSON; nothing where it is none. */
export function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** The beginning of a text in JSON that is still being written: `"code": "…`. */
export function unfinished(json: string, name: string): string | undefined {
  const found = new RegExp(`"${name}"\\s*:\\s*"((?:[^"\\\\]|\\\\(?:u[0-9a-fA-F]{4}|["\\\\/bfnrt]))*)`).exec(
    json,
  );
  return found ? unquoted(`"${found[1]}"`) : undefined;
}

export interface Part {
  type: "text" | "reasoning";
  text: string;
}

/** What a model thought, in its order with what it said. */
export function partsOf({ content }: AiMessage): Part[] {
  if (typeof content === "string") return content ? [{ type: "text", text: content }] : [];
  return content.flatMap((block): Part[] => {
    if (block.type === "reasoning") return [{ type: "reasoning", text: block.reasoning ?? "" }];
    return block.text ? [{ type: "text", text: block.text }] : [];
  });
}
