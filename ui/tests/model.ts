// A model provider for the tests of the chat: aimock, which speaks OpenAI's protocol, with a script. The last thing that
// the person said decides what the model says, and how many results of tools came since decides how far it is.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const FOLDER = join(import.meta.dirname, "../../target/langgraph-node");

interface Message {
  role: string;
  content: string | { text?: string }[] | null;
}

interface Call {
  name: string;
  args: Record<string, unknown>;
}

/** What the model says next. */
export interface Says {
  content?: string;
  reasoning?: string;
  calls?: Call[];
  /** What the provider answers instead. */
  error?: { status: number; message: string };
}

/** What a script knows: the results of this turn, and the session that one of them made. */
export interface Turn {
  results: string[];
  session: string;
}

export type Script = (turn: Turn) => Says;

interface Mock {
  url: string;
  start: () => Promise<unknown>;
  stop: () => Promise<unknown>;
  addFixture: (fixture: unknown) => void;
}

const textOf = (content: Message["content"]) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

function sessionOf(messages: Message[]): string {
  const made = messages.flatMap(
    ({ content }) => /"session_id":\s*"([^"]+)"/.exec(textOf(content))?.[1] ?? [],
  );
  return made.at(-1) ?? "none";
}

let calls = 0;

function wire({ content = "", reasoning, calls: wanted, error }: Says): unknown {
  if (error)
    return { error: { message: error.message, type: "invalid_request_error" }, status: error.status };
  const toolCalls = wanted?.map(({ name, args }) => {
    calls += 1;
    return { id: `call_${calls}`, name, arguments: JSON.stringify(args) };
  });
  return { content, ...(reasoning && { reasoning }), ...(toolCalls && { toolCalls }) };
}

/** A session, then these calls in it one after another, then an answer. */
export function works(steps: ((session: string) => Says)[], answer: Says): Script {
  return ({ results, session }) => {
    const made: Says = {
      content: "I make a session.",
      calls: [{ name: "create_session", args: { language: "python" } }],
    };
    if (results.length === 0) return made;
    return steps[results.length - 1]?.(session) ?? answer;
  };
}

export const terminal = (command: string) => (session: string) => ({
  content: "I run it.",
  calls: [{ name: "execute_terminal", args: { session_id: session, command } }],
});

export const code = (text: string) => (session: string) => ({
  calls: [{ name: "execute_code", args: { session_id: session, code: text } }],
});

/** A model of this name has no key that fits. */
export const LOCKED = "gpt-locked";

/** Starts it; `slow` scripts come a few letters at a time. */
export async function startModel(
  scripts: Record<string, Script>,
  slow: Record<string, Script> = {},
): Promise<Mock> {
  assert(existsSync(FOLDER), "`make langgraph-tools` installs the model provider");
  const require = createRequire(`${FOLDER}/package.json`);
  const { LLMock } = (await import(pathToFileURL(require.resolve("@copilotkit/aimock")).href)) as {
    LLMock: new (options: unknown) => Mock;
  };
  const mock = new LLMock({ port: 0, host: "127.0.0.1", chunkSize: 16, logLevel: "silent" });
  const answers =
    (from: Record<string, Script>) =>
    ({ messages, model }: { messages: Message[]; model: string }) => {
      if (model === LOCKED) return wire({ error: { status: 401, message: "Incorrect API key provided" } });
      const last = messages.findLastIndex((message) => message.role === "user");
      const said = textOf(messages[last]?.content ?? "");
      const results = messages.slice(last).filter((message) => message.role === "tool");
      const [, script] = Object.entries(from).find(([words]) => said.includes(words)) ?? [];
      const turn = { results: results.map(({ content }) => textOf(content)), session: sessionOf(messages) };
      return wire(script?.(turn) ?? { content: `You said: ${said}` });
    };
  for (const words of Object.keys(slow)) {
    mock.addFixture({ match: { userMessage: words }, latency: 150, chunkSize: 8, response: answers(slow) });
  }
  mock.addFixture({ match: {}, response: answers(scripts) });
  await mock.start();
  return mock;
}
