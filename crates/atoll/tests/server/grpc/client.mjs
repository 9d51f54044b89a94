// What a program that uses Connect for ECMAScript does, over gRPC and over gRPC-Web.
// Arguments: the address, a key, and the folder of the generated code.
import assert from "node:assert/strict";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";

const [address, key, generated] = process.argv.slice(2);
const { SandboxService } = await import(`${generated}/sandbox/v1/sandbox_pb.js`);
const bearer = (next) => (request) => {
  request.header.set("authorization", `Bearer ${key}`);
  return next(request);
};
const baseUrl = `http://${address}`;
const transports = {
  grpc: createGrpcTransport({ baseUrl, interceptors: [bearer] }),
  web: createGrpcWebTransport({ baseUrl, httpVersion: "1.1", interceptors: [bearer] }),
  web2: createGrpcWebTransport({ baseUrl, httpVersion: "2", interceptors: [bearer] }),
};
for (const [name, transport] of Object.entries(transports)) {
  const client = createClient(SandboxService, transport);
  const { session } = await client.createSession({ sessionId: name });
  assert.equal(session.sessionId, name);
  assert.equal((await client.exec({ sessionId: name, command: "echo out" })).stdout, "out\n");
  await client.writeFile({ sessionId: name, path: "f", content: "é", mode: "w" });
  assert.equal((await client.readFile({ sessionId: name, path: "f" })).content, "é");
  const command = "echo begun; until [ -e go ]; do sleep 0.05; done; exit 5";
  let exit;
  for await (const event of client.execStream({ sessionId: name, command })) {
    if (event.type === "stdout") {
      // Only what comes before the command's end can end it.
      await client.writeFile({ sessionId: name, path: "go", content: "", mode: "w" });
    }
    exit = event.exitCode;
  }
  assert.equal(exit, 5);
  const stop = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of client.execStream({ sessionId: name, command: "echo x; sleep 600" }, { signal: stop.signal })) {
      stop.abort();
    }
  }, (error) => ConnectError.from(error).code === Code.Canceled);
  await assert.rejects(client.getSession({ sessionId: "none" }), (error) => error.code === Code.NotFound);
  assert.equal((await client.destroySession({ sessionId: name })).success, true);
}
