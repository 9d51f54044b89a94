// A registry that takes what is pushed to it and keeps it in memory.
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";

export interface Registry {
  address: string;
  /** The manifests by NAME:TAG. */
  tags: Map<string, Buffer>;
  stop: () => void;
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

export async function startRegistry(): Promise<Registry> {
  const tags = new Map<string, Buffer>();
  const blobs = new Set<string>();
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? "/", "http://registry");
    const [, name = "", kind, what = ""] = /^\/v2\/(.*)\/(blobs|manifests)\/(.*)$/.exec(url.pathname) ?? [];
    const body = await bodyOf(request);
    const reply = (status: number, headers: Record<string, string> = {}) =>
      response.writeHead(status, headers).end();
    if (!name) return reply(200);
    if (kind === "manifests") {
      if (request.method !== "PUT") return reply(404);
      tags.set(`${name}:${what}`, body);
      return reply(201);
    }
    if (request.method === "HEAD") return reply(blobs.has(what) ? 200 : 404);
    const digest = url.searchParams.get("digest");
    if (!digest) return reply(202, { Location: `/v2/${name}/blobs/uploads/one` });
    blobs.add(digest);
    return reply(201);
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  assert(address && typeof address === "object");
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { address: `127.0.0.1:${address.port}`, tags, stop };
}
