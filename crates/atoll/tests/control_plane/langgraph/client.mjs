// @langchain/langgraph-sdk against the server. Arguments: the folder of node_modules, URL, key.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [modules, apiUrl, apiKey] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const { Client } = await import(pathToFileURL(require.resolve("@langchain/langgraph-sdk")));
const client = new Client({ apiUrl, apiKey });

// As Agent Chat UI begins.
const threads = await client.threads.search({ metadata: { graph_id: "agent" }, limit: 100 });
assert.deepEqual(threads, []);
const { thread_id } = await client.threads.create();
let created;
const seen = [];
const stream = client.runs.stream(thread_id, "agent", {
  input: { messages: [{ type: "human", id: "h1", content: [{ type: "text", text: "the answer?" }] }] },
  streamMode: ["values", "messages-tuple", "custom"],
  streamSubgraphs: true,
  streamResumable: true,
  onRunCreated: (run) => (created = run),
});
for await (const part of stream) seen.push(part);
assert.equal(created.thread_id, thread_id);
assert.ok(!seen.some((part) => part.event.startsWith("updates") || part.event.includes("|")));
const values = seen.filter((part) => part.event === "values").at(-1).data;
assert.equal(values.messages.at(-1).content, "The command printed 42, so the answer is 42.");
assert.equal(values.messages[0].id, "h1");
const history = await client.threads.getHistory(thread_id, { limit: 10 });
assert.deepEqual(history[0].values, values);
assert.ok(history[0].parent_checkpoint.checkpoint_id);

// A client that joins later has the same events.
const again = [];
for await (const part of client.runs.joinStream(thread_id, created.run_id, { lastEventId: "-1", streamMode: ["values", "messages-tuple", "custom"] }))
  again.push(part);
assert.deepEqual(again.map((part) => part.event), seen.map((part) => part.event));

const final = await client.runs.wait(thread_id, "agent", { input: { messages: [{ role: "user", content: "hello" }] } });
assert.equal(final.messages.at(-1).content, "Hello there, person.");
await client.store.putItem(["a"], "k", { v: 1 });
assert.deepEqual((await client.store.getItem(["a"], "k")).value, { v: 1 });
await client.threads.delete(thread_id);
console.log("fine");
