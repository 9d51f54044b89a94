// What a program does with the TypeScript SDK: client.mjs MODULES URL KEY.
import assert from "node:assert";
import { pathToFileURL } from "node:url";

const [modules, url, key] = process.argv.slice(2);
const sdk = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/sdk/dist/esm/client/${path}.js`));
const { Client } = await sdk("index");
const { StreamableHTTPClientTransport } = await sdk("streamableHttp");

const headers = { Authorization: `Bearer ${key}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const client = new Client({ name: "a test", version: "1" });
await client.connect(transport);
assert.equal((await client.listTools()).tools.length, 6);

async function call(name, args, options) {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  assert(!result.isError, JSON.stringify(result));
  return result;
}

const { session_id } = (await call("create_session", {})).structuredContent;
const picture = `
import os
class Picture:
    def _repr_png_(self):
        return b"\\x89PNG\\r\\n\\x1a\\n" + os.urandom(1_200_000)
display(Picture())`;
const shown = await call("execute_code", { session_id, code: picture });
assert(shown.content.find((content) => content.type === "image").data.length > 1 << 20);
let progress = 0;
const slow = { session_id, command: "sleep 1.5; echo late" };
const late = await call("execute_terminal", slow, { onprogress: () => progress++ });
assert(late.structuredContent.stdout === "late\n" && progress > 0, JSON.stringify(late));
await call("stop_session", { session_id });
await transport.terminateSession();
await client.close();
console.log("all of it");
