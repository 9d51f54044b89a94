// CopilotKit's runtime with this server as its agent, asked by AG-UI's client. Arguments: the folder of node_modules, URL, key.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
const [modules, apiUrl, apiKey] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { CopilotRuntime } = await load("@copilotkit/runtime/v2");
const { createCopilotNodeListener } = await load("@copilotkit/runtime/v2/node");
const { LangGraphAgent } = await load("@copilotkit/runtime/langgraph");
const { HttpAgent } = await load("@ag-ui/client");

const agent = new LangGraphAgent({ deploymentUrl: apiUrl, graphId: "agent", langsmithApiKey: apiKey });
const runtime = new CopilotRuntime({ agents: { default: agent } });
const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api" }));
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const base = `http://127.0.0.1:${server.address().port}/api`;

const threadId = crypto.randomUUID();
const client = new HttpAgent({ url: `${base}/agent/default/run`, threadId });
const events = [];
const talk = async (text) => {
  client.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  await client.runAgent({}, { onEvent: ({ event }) => void events.push(event) });
};
await talk("the answer?");
const kinds = new Set(events.map((event) => event.type));
for (const kind of ["RUN_STARTED", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"])
  assert.ok(kinds.has(kind), `${kind}: ${[...kinds]}`);
assert.ok(!kinds.has("RUN_ERROR"), JSON.stringify(events.filter((event) => event.type === "RUN_ERROR")));
const called = events.filter((event) => event.type === "TOOL_CALL_START").map((event) => event.toolCallName);
assert.deepEqual(called, ["create_session", "execute_terminal"]);
const last = client.messages.at(-1);
assert.equal(last.content, "The command printed 42, so the answer is 42.", JSON.stringify(client.messages));

// The second message of the same thread.
events.length = 0;
await talk("hello");
assert.equal(client.messages.at(-1).content, "Hello there, person.", JSON.stringify(client.messages));
assert.ok(events.some((event) => event.type === "RUN_FINISHED"));
console.log("fine");
process.exit(0);
