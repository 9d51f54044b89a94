// What does no I/O: events, retries, and errors.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { mock, test } from "node:test";
import { Client, ConnectionFailedError } from "atoll-sandbox";
import { Attempts, BrokenConnection, type Call, DEFAULT_RETRY, filePath, isId } from "../dist/esm/calls.js";
import { errorOfCode, errorOfResponse, UnavailableError } from "../dist/esm/errors.js";
import { CellSource, EventParser, ExecSource } from "../dist/esm/events.js";
import { requirements, versions } from "../dist/esm/packages.js";

const event = (id: number | undefined, said: object) => ({ data: JSON.stringify(said), ...(id === undefined ? {} : { id: String(id) }) });
const text = (data: Uint8Array) => Buffer.from(data).toString("latin1");

test("events are the same however they are cut", () => {
  const wire = ': alive\n\nid: 3\ndata: {"é":\ndata: 1}\n\ndata:x\n\nid: 9\n\n';
  const whole = [{ id: "3", data: '{"é":\n1}' }, { data: "x" }];
  for (let size = 1; size < 10; size += 1) {
    const parser = new EventParser();
    const found = [];
    for (let at = 0; at < wire.length; at += size) found.push(...parser.feed(wire.slice(at, at + size)));
    assert.deepEqual(found, whole);
  }
});

test("a resumed command repeats no byte", () => {
  const source = new ExecSource("sandboxes/s", { begin: { method: "POST", path: "exec", key: "k" } });
  assert.equal(source.call().key, "k");
  source.take(event(0, { type: "started", exec_id: "e" }));
  const take = (id: number, said: object) => source.take(event(id, said)).map((o) => [o.stream, o.offset, text(o.data)]);
  // A cut character of stdout waits at 0, and bytes of stderr come before its rest.
  assert.deepEqual(take(0, { type: "stderr", offset: 1, data: "ab" }), [["stderr", 1, "ab"]]);
  assert.deepEqual([source.call().path, source.call().params?.["from"]], ["sandboxes/s/execs/e/output", 0]);
  assert.deepEqual(take(0, { type: "stderr", offset: 1, data: "abc" }), [["stderr", 3, "c"]]);
  assert.deepEqual(take(5, { type: "stdout", offset: 0, next: 5, data: "é" }), [["stdout", 0, "\u00c3\u00a9"]]);
  assert.deepEqual(take(5, { type: "stdout", offset: 0, next: 5, data: "é" }), []);
  assert.deepEqual(take(7, { type: "stdout", offset: 5, encoding: "base64", data: "//4=" }), [["stdout", 5, "\u00ff\u00fe"]]);
  assert.equal(source.call().params?.["from"], 7);
  assert.deepEqual(take(7, { type: "something_new" }), []);
  assert.throws(() => take(7, { type: "error", error: { code: "unavailable", message: "ends" } }), UnavailableError);
});

test("a joined cell repeats nothing", () => {
  const source = new CellSource({ method: "POST", path: "run", key: "k" });
  source.call();
  const output = (said: string) => source.take(event(undefined, { type: "output", stream: "stdout", text: said }));
  assert.deepEqual(output("ab"), [{ stream: "stdout", text: "ab" }]);
  source.call();
  assert.deepEqual(output("abc"), [{ stream: "stdout", text: "c" }]);
});

test("only what does not run twice is sent again", () => {
  const plain: Call = { method: "POST", path: "x" };
  const [withKey, safe]: Call[] = [{ ...plain, key: "k" }, { method: "GET", path: "x", safe: true }] as [Call, Call];
  const failed = (code: string) => new BrokenConnection(new TypeError("fetch failed", { cause: { code } }));
  const [broken, refused] = [failed("ECONNRESET"), failed("ECONNREFUSED")];
  const away = errorOfResponse(503, new Headers(), "");
  const busy = errorOfCode("conflict", "a request with this Idempotency-Key is being carried out");
  const limited = (seconds: string) =>
    errorOfResponse(429, new Headers({ "retry-after": seconds }), '{"error":{"code":"limit_exceeded","message":"m"}}');
  const again = (call: Call | undefined, ...failures: unknown[]) => {
    const attempts = new Attempts(DEFAULT_RETRY);
    return failures.map((failure) => call && attempts.delay(call, failure)).at(-1) !== undefined;
  };
  assert.deepEqual([again(plain, broken), again(withKey, broken), again(safe, broken)], [false, true, true]);
  assert.deepEqual([again(plain, away), again(withKey, away), again(plain, refused)], [false, true, true]);
  assert.deepEqual([again(plain, limited("1")), again(withKey, limited("5"))], [true, false]);
  assert.deepEqual([again(withKey, busy), again(withKey, broken, busy)], [false, true]);
  const stream: Call = { method: "PUT", path: "x", safe: true, once: true };
  assert.deepEqual([again(stream, limited("1")), again(stream, broken), again(stream, refused)], [false, false, false]);
  assert.equal(again(withKey, errorOfCode("not_found", "m")), false);
  assert.equal(new Attempts({ ...DEFAULT_RETRY, seconds: 0 }).delay(safe as Call, refused), undefined);
});

test("a proxy's page is an error with a code", () => {
  const error = errorOfResponse(502, new Headers({ "x-request-id": "r" }), "<html>");
  assert.ok(error instanceof UnavailableError);
  assert.deepEqual([error.requestId, error.name], ["r", "UnavailableError"]);
  assert.equal(filePath("/a b/é?#%"), "/a%20b/%C3%A9%3F%23%25");
  assert.deepEqual([isId("good"), isId("183f4c1dec85503716746abadfb598df")], [false, true]);
});

test("packages are read as people write them", () => {
  const python = (...packages: string[]) => versions("python", packages);
  assert.deepEqual(python("requests", "rich ~= 13.0", "uvicorn[standard, x] >=0.30, <1", "a.b-c==1"), {
    "requests": "",
    "rich": "~=13.0",
    "uvicorn[standard,x]": ">=0.30,<1",
    "a.b-c": "==1",
  });
  assert.deepEqual(versions("node", ["ms", "ms2@^2.1", "@types/node@20", "@a/b"]), { ms: "", ms2: "^2.1", "@types/node": "20", "@a/b": "" });
  assert.deepEqual(versions("python", { pandas: "2.2.3" }), { pandas: "2.2.3" });
  assert.throws(() => python("a>1", "a<2"), /names a twice/);
  assert.deepEqual(requirements({ pandas: "2.2.3", rich: "", six: ">=1" }), ["pandas==2.2.3", "rich", "six>=1"]);
});

test("a server that never answers a stream is given up", async () => {
  let asked: (() => void) | undefined;
  const begun = new Promise<void>((resolve) => (asked = resolve));
  const silent: typeof fetch = (_, init) =>
    new Promise((_, reject) => {
      init?.signal?.addEventListener("abort", () => reject(init.signal?.reason));
      asked?.();
    });
  const client = new Client({ baseUrl: "http://127.0.0.1:1", fetch: silent, retry: { seconds: 0 } });
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const source = new ExecSource("sandboxes/s", { execId: "e" });
    const read = assert.rejects(client.follow(source).next(), (error) => {
      return error instanceof ConnectionFailedError && error.message.includes("the server is silent");
    });
    await begun;
    mock.timers.tick(50_000);
    await read;
  } finally {
    mock.timers.reset();
  }
});

test("every path is one of the API's", () => {
  const description = JSON.parse(readFileSync(join(import.meta.dirname, "../../../docs/openapi.json"), "utf8"));
  const known = Object.entries(description.paths as Record<string, object>).flatMap(([path, methods]) => {
    const segments = path.replace("/api/v1/", "").replace(/\{[^}]*\}/g, "*").split("/");
    return Object.keys(methods).map((method) => ({ method, segments }));
  });
  const sources = join(import.meta.dirname, "../src");
  const asked: { method: string; path: string }[] = [];
  for (const file of readdirSync(sources).filter((name) => name.endsWith(".ts") && name !== "api.ts")) {
    const text = readFileSync(join(sources, file), "utf8");
    for (const [, how, template, plain] of text.matchAll(/(?<![.\w])(get|keyed|pages)\((?:`([^`]+)`|"([^"]+)")/g)) {
      asked.push({ method: how === "keyed" ? "post" : "get", path: template ?? plain ?? "" });
    }
    for (const [, method = "", template, plain] of text.matchAll(/method: "(\w+)", path: (?:`([^`]+)`|"([^"]+)")/g)) {
      asked.push({ method: method.toLowerCase(), path: template ?? plain ?? "" });
    }
  }
  assert.ok(asked.length > 20, `${asked.length} paths were found`);
  for (const { method, path } of asked) {
    // A path that begins with a field is below a sandbox, or below something in it.
    const below = path.replace("../../", "/").replace(/^\$\{[^}]*this\.#[^}]*\}\//, "**").replace(/\$\{[^}]*\}/g, "*");
    const segments = below.replace("**", "").split("/");
    const same = (other: { method: string; segments: string[] }) => {
      const end = below.startsWith("**") ? other.segments.slice(-segments.length) : other.segments;
      const equal = end.length === segments.length && segments.every((one, at) => one === "*" || one === end[at]);
      return other.method === method && equal;
    };
    assert.ok(known.some(same), `${method} ${path} is no path of docs/openapi.json`);
  }
});
