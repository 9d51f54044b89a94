// LangChain's own server with an agent that has tools of our names. Arguments: the folder of node_modules, the URL of the
// model provider, an empty folder. Prints its URL.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { createServer } from "node:net";
import { symlinkSync, writeFileSync } from "node:fs";

const [modules, model, folder] = process.argv.slice(2);
symlinkSync(`${modules}/node_modules`, `${folder}/node_modules`);
writeFileSync(`${folder}/graph.mjs`, `
import { ChatOpenAI } from "@langchain/openai";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { tool } from "@langchain/core/tools";
const schema = { type: "object", properties: {} };
const tools = [
  tool(async () => '{"session_id": "s1"}', { name: "create_session", description: "Makes a session.", schema }),
  tool(async () => '{"stdout": "42"}', { name: "execute_terminal", description: "Runs a command.", schema }),
];
const llm = new ChatOpenAI({ model: "gpt-4o", apiKey: "k", streaming: true, configuration: { baseURL: "${model}/v1" } });
export const agent = createReactAgent({ llm, tools });
`);
process.chdir(folder);
const port = await new Promise((resolve) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  });
});
const require = createRequire(`${modules}/package.json`);
const { startServer } = await import(pathToFileURL(require.resolve("@langchain/langgraph-api/server")));
await startServer({ port, nWorkers: 2, host: "127.0.0.1", cwd: folder, graphs: { agent: "./graph.mjs:agent" } });
console.log(`\nREADY http://127.0.0.1:${port}`);
