// A model provider: aimock with a script. The last thing that the person said decides what the model says, and how many
// results of tools came since decides how far it is. Prints its URL. The first argument is the folder of node_modules. It is strict
// unless the second is `lenient`; with `thinking`, every request of Anthropic's protocol asks for thinking, and what was thought
// must come back unchanged; with `seeing`, it looks for the picture in what really was sent, which the mock leaves out.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [modules, mode = "strict"] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const { LLMock } = await import(pathToFileURL(require.resolve("@copilotkit/aimock")));

const text = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");
let calls = 0;
const call = (name, args) => ({ id: `call_${++calls}`, name, arguments: JSON.stringify(args) });

// One provider's results are JSON within JSON.
function session(results) {
  const found = results.map((result) => /session_id\\*":\s*\\*"(\w+)/.exec(text(result.content))).find(Boolean);
  return found?.[1] ?? "none";
}

// In a new session, runs a command and then answers.
const runs = (command, answer) => (results, request) => {
  if (results.length === 0)
    return { content: "I make a session.", toolCalls: [call("create_session", { runtime: "python" })] };
  if (results.length === 1)
    return { content: "I run it.", toolCalls: [call("execute_terminal", { session_id: session(results), command })] };
  return { content: typeof answer === "function" ? answer(results, request) : answer };
};

// The command of the last call, as the model is told of it.
const lastCommand = (request) => {
  const calls = request.messages.findLast((message) => message.tool_calls?.length).tool_calls;
  return JSON.parse(calls.at(-1).function.arguments).command;
};

// Makes two sessions, and then runs a command in the last one: five checkpoints before it.
const late = (results) => {
  if (results.length < 2) return { content: "", toolCalls: [call("create_session", {})] };
  return runs(gate, (all) => `It said ${/begun\\n(\d+)/.exec(last(all))?.[1]}.`)(results.slice(1));
};

// The same as the gate, as a cell of an interpreter.
const cell = `import os, time
open("n", "a").write("once\\n")
print("begun", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
print("went on")`;
const inCell = (results) => {
  if (results.length === 0) return { content: "", toolCalls: [call("create_session", { runtime: "python" })] };
  if (results.length === 1)
    return { content: "", toolCalls: [call("execute_code", { session_id: session(results), code: cell })] };
  return { content: "The cell ended." };
};

// In the session of an earlier turn.
const adding = (results, request) => {
  if (results.length > 0) return { content: `It ${/has: [a-z ]+/.exec(last(results))?.[0].trim()}` };
  const id = session(request.messages.filter((message) => message.role === "tool"));
  const command = 'echo -n " added" >> file; echo "has: $(cat file)"';
  return { content: "", toolCalls: [call("execute_terminal", { session_id: id, command })] };
};

const THOUGHT = "Six times seven.";
const SIGNATURE = "a-signature-of-this-thought";
const thinks = (results) =>
  results.length === 0
    ? { content: "", toolCalls: [call("create_session", {})], reasoning: THOUGHT, reasoningSignature: SIGNATURE }
    : { content: "I thought of it." };

// Writes a line, and waits until a test makes the file `go`.
const gate = "echo once >> n; echo begun; while [ ! -e go ]; do sleep 0.05; done; wc -l < n";

const last = (results) => text(results.at(-1).content);

// A wait and a new session at once, in a session that is there.
const both = (results) => {
  if (results.length === 0) return { content: "", toolCalls: [call("create_session", {})] };
  if (results.length === 1)
    return { content: "", toolCalls: [
      call("execute_terminal", { session_id: session(results), command: gate }), call("create_session", {})] };
  return { content: "Both are done." };
};

// Runs a command in a session that surely is there, and tells how often it ran.
const counted = (results) => {
  const id = session(results);
  if (id === "none") return { content: "", toolCalls: [call("create_session", {})] };
  const ran = /"stdout":"(\d+)/.exec(last(results));
  if (ran) return { content: `It ran ${ran[1]}.` };
  return { content: "", toolCalls: [call("execute_terminal", { session_id: id, command: "echo once >> n; wc -l < n" })] };
};

// Twenty commands that print more than the window of the model, which then says what it was sent. Steps that were folded
// into another's result are lines there.
const many = (results, request) => {
  const folded = (value) => (value.later_steps?.length ?? 0) + (value.later_steps_left_out ?? 0);
  const done = results.reduce((sum, result) => sum + 1 + folded(JSON.parse(text(result.content))), 0);
  if (done === 0) return { content: "", toolCalls: [call("create_session", {})] };
  if (done > 20)
    return { content: JSON.stringify({
      size: JSON.stringify(request.messages).length,
      said: text(request.messages.find((message) => message.role === "user").content),
      results: results.map((result) => text(result.content)),
    }) };
  const print = "head -c 3000 /dev/zero | tr '\\0' x; echo";
  const command = `${print}; echo "${done}.c: error: in step ${done}"; ${print}; exit ${done}`;
  return { content: "", toolCalls: [call("execute_terminal", { session_id: session(results), command })] };
};

const exporting = (results) => {
  const id = session(results);
  if (results.length === 2)
    return { content: "", toolCalls: [call("export_files", { session_id: id, files: [{ source: "out.txt" }] })] };
  return runs("echo exported > out.txt", "It is exported.")(results);
};

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
// The code has it in another form, so that only the picture itself is base64.
const picture = `class Picture:
    def _repr_png_(self):
        return bytes.fromhex("${Buffer.from(PNG, "base64").toString("hex")}")
Picture()`;
let shown;
const draws = (results) => {
  if (results.length === 0) return { content: "", toolCalls: [call("create_session", { runtime: "python" })] };
  if (results.length === 1)
    return { content: "", toolCalls: [call("execute_code", { session_id: session(results), code: picture })] };
  return { content: "I see no picture." };
};

const scripts = [
  ["draw it", draws],
  // What the person is shown comes after the result of the tool.
  ["Picture 1 of", () => ({ content: shown === undefined ? "A picture came." : shown ? "I see it." : "It is missing." })],
  ["the answer?", runs("echo $((6*7))", "The command printed 42, so the answer is 42.")],
  ["take your time", runs("echo begun; sleep 600", "It took its time.")],
  ["both wait", both],
  ["which command", runs("echo asked", (_, request) => `I ran ${lastCommand(request)}.`)],
  ["count it", counted],
  ["many steps", many],
  ["in pieces", runs("printf on; sleep 0.3; printf 'e\\ntwo'; sleep 0.3; echo", "It came in pieces.")],
  ["late", late],
  ["keep a file", runs("echo -n kept > file", "It is kept.")],
  ["add to the file", adding],
  ["ask the network",
    runs("for n in 1 2 3 4 5; do curl -s -o /dev/null --max-time 5 http://refused.example/; done; echo asked", "I asked.")],
  ["a cell waits", inCell],
  ["think first", thinks],
  ["use it", runs("echo used", "I **used** it:\n\n```python\nimport os\n```\n")],
  ["wait here", runs(gate, (results) => `It said ${/begun\\n(\d+)/.exec(last(results))?.[1]}.`)],
  ["die here", runs(gate, (results) => last(results).includes("CONTAINER_DIED") ? "It died." : "It lives.")],
  ["the environment", runs("env", "There is no key.")],
  ["a flood", runs("head -c 24000000 /dev/zero | tr '\\0' x | fold -w 1000", "That was much.")],
  ["an export", exporting],
  ["broken arguments", (results) => results.length === 0
    ? { content: "", toolCalls: [{ id: "call_b", name: "execute_code", arguments: '{"code": "1' }] } : { content: "They were broken." }],
  ["in its thoughts", () => ({ content: "I only thought of it.",
    reasoning: '<tool_call>{"name": "create_session", "arguments": {}}</tool_call>' })],
  ["an unknown tool", (results) => results.length === 0
    ? { content: "", toolCalls: [call("no_such_tool", { a: 1 })] } : { content: "There is no such tool." }],
  ["think", () => ({ content: "It is 42.", reasoning: "Six times seven." })],
  ["fail", () => ({ error: { message: "Incorrect API key provided", type: "invalid_request_error", code: "invalid_api_key" }, status: 401 })],
  ["hello", () => ({ content: "Hello there, person." })],
];

const mock = new LLMock({ port: 0, host: "127.0.0.1", chunkSize: 8, logLevel: "silent", strict: mode !== "lenient" });
const said = (words) => ({ userMessage: words });
mock.addFixture({
  match: said("megabytes"), chunkSize: 1 << 20,
  response: { content: "", toolCalls: [call("execute_code", { code: "x".repeat(9 << 20) })] },
});
mock.addFixture({ match: said("speak slowly"), latency: 60, response: { content: "This is said very slowly. ".repeat(100) } });
mock.addFixture({ match: said("cut off"), latency: 20, truncateAfterChunks: 3, response: { content: "This is never said to its end." } });
mock.addFixture({
  match: {},
  response: (request) => {
    const last = request.messages.findLastIndex((message) => message.role === "user");
    const said = text(request.messages[last]?.content);
    const results = request.messages.slice(last).filter((message) => message.role === "tool");
    const script = scripts.find(([words]) => said.includes(words));
    return script ? script[1](results, request) : { content: `You said: ${said}` };
  },
});
await mock.start();

// What a provider refuses whose thoughts come back otherwise; what is left out, the strict server itself refuses.
const changed = (body) =>
  body.messages.flatMap((message) => message.content).find((block) =>
    block.type === "thinking" && (block.thinking !== THOUGHT || block.signature !== SIGNATURE));

async function asked(request, response) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = JSON.parse(Buffer.concat(pieces));
  shown = JSON.stringify(body).includes(PNG);
  const wrong = mode === "thinking" && changed(body);
  if (wrong) {
    response.writeHead(400, { "content-type": "application/json" });
    return response.end(JSON.stringify({ type: "error", error: { message: `changed: ${JSON.stringify(wrong)}` } }));
  }
  const more = mode === "thinking" ? { thinking: { type: "enabled", budget_tokens: 1024 } } : {};
  const headers = { "content-type": "application/json", "x-api-key": request.headers["x-api-key"] ?? "" };
  const answer = await fetch(mock.url + request.url, { method: "POST", headers, body: JSON.stringify({ ...body, ...more }) });
  response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") });
  for await (const piece of answer.body) response.write(piece);
  response.end();
}

if (["thinking", "seeing"].includes(mode)) {
  const front = createServer((request, response) => void asked(request, response).catch((error) => response.destroy(error)));
  front.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${front.address().port}`));
} else {
  console.log(mock.url);
}
