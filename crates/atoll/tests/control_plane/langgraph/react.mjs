// @langchain/react in a React application without a page. Arguments: the folder of node_modules, URL, key.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [modules, apiUrl, apiKey] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { useStream } = await load("@langchain/react");
const { createElement } = (await load("react")).default;
const { create } = (await load("react-test-renderer")).default;

// An application that shows nothing; `stream` is what the hook gave it last.
function open(options) {
  const shown = {};
  const App = () => {
    shown.stream = useStream({ assistantId: "agent", apiUrl, apiKey, ...options });
    return null;
  };
  shown.app = create(createElement(App));
  return shown;
}

async function until(what, holds) {
  const end = Date.now() + 60_000;
  while (!holds()) {
    assert.ok(Date.now() < end, `${what} did not come about`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

const said = (text) => ({ messages: [{ type: "human", content: text }] });
const texts = (stream) => stream.messages.map((message) => [message.getType(), message.text]);

// A conversation, whose messages grow while the model writes.
const shown = open({});
let grew = 0;
const watch = setInterval(() => {
  const last = shown.stream?.messages?.at(-1);
  if (last?.getType() === "ai" && last.text && shown.stream.isLoading) grew += 1;
}, 1);
await until("the hook", () => shown.stream);
await shown.stream.submit(said("the answer?"));
const end = "The command printed 42, so the answer is 42.";
await until("the answer", () => !shown.stream.isLoading && shown.stream.messages.at(-1)?.text === end);
clearInterval(watch);
assert.equal(shown.stream.error, undefined);
assert.deepEqual(texts(shown.stream).map(([kind]) => kind), ["human", "ai", "tool", "ai", "tool", "ai"]);
assert.deepEqual(shown.stream.toolCalls.map((call) => call.name), ["create_session", "execute_terminal"]);
assert.equal(shown.stream.values.messages.length, 6);
assert.ok(grew > 0, "the messages were seen while they were written");

// Another application that opens the same thread has the same messages.
const again = open({ threadId: shown.stream.threadId });
await until("the same messages", () => again.stream && again.stream.messages.length === 6);
assert.deepEqual(texts(again.stream), texts(shown.stream));

// A person decides.
const asked = open({});
await until("the hook", () => asked.stream);
await asked.stream.submit(said("the answer?"), { config: { configurable: { approval: "all" } } });
const waiting = () => asked.stream.interrupt?.value?.action_requests?.[0]?.name;
await until("the first question", () => waiting() === "create_session" && !asked.stream.isLoading);
await asked.stream.respond({ decisions: [{ type: "approve" }] });
await until("the second question", () => waiting() === "execute_terminal" && !asked.stream.isLoading);
await asked.stream.respond({ decisions: [{ type: "reject", message: "not now" }] });
await until("the end", () => !asked.stream.interrupt && !asked.stream.isLoading && asked.stream.messages.length === 6);
assert.match(asked.stream.messages[4].text, /not now/);

for (const one of [shown, again, asked]) one.app.unmount();
console.log("fine");
process.exit(0);
