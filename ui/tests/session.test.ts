// Signing in and out, and what a session may and may not do.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Response } from "playwright-core";
import { accessible, fixture, KEY, signIn } from "./harness.ts";

const f = fixture();

test("a wrong key is refused and a right one signs in; signing out ends the session", async () => {
  const { page, context } = await f.tab();
  await page.goto("/");
  await page.waitForURL("**/ui/**");
  await page.getByLabel("Key", { exact: true }).fill("atoll_not_a_key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("not known").waitFor();

  await signIn(page, KEY);
  await page.getByText("No sandboxes yet").waitFor();
  const [cookie] = await context.cookies();
  assert(cookie?.httpOnly && cookie.sameSite === "Strict", JSON.stringify(cookie));
  const stored = await page.evaluate(() =>
    JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
  );
  assert(!stored.includes(KEY) && !stored.includes(cookie.value), stored);

  // A reload keeps the session; what a program sends with the cookie alone changes nothing.
  await page.reload();
  await page.getByText("No sandboxes yet").waitFor();
  const headers = { Cookie: `${cookie.name}=${cookie.value}` };
  const path = `${f.server.url}/api/v1/sandboxes`;
  assert.equal((await fetch(path, { headers })).status, 200);
  assert.equal((await fetch(path, { headers, method: "POST", body: "{}" })).status, 403);
  const elsewhere = { ...headers, Origin: "http://127.0.0.1:1", "X-Atoll-Console": "1" };
  assert.equal((await fetch(path, { headers: elsewhere, method: "POST", body: "{}" })).status, 403);
  const sameSite = { ...headers, "Sec-Fetch-Site": "same-site" };
  assert.equal((await fetch(path, { headers: sameSite })).status, 403);

  await page.getByRole("button", { name: "admin" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByLabel("Key", { exact: true }).waitFor();
  assert.equal((await fetch(path, { headers })).status, 401);
  const trail = await f.server.ask<{ entries: { kind: string; front: string }[] }>(
    "GET",
    "/api/v1/audit?limit=20",
  );
  const kinds = trail.entries.filter((row) => row.front === "console").map((row) => row.kind);
  assert.deepEqual(kinds, ["console.sign_out", "console.sign_in"]);
});

test("a session ends with its key, and what was typed stays", async () => {
  const made = await f.server.ask<{ id: string; key: string }>("POST", "/api/v1/keys", {
    name: "short",
    owner: "eve",
  });
  const { page } = await f.tab(made.key);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByLabel("Session key").fill("typed before");
  await f.server.ask("DELETE", `/api/v1/keys/${made.id}`);
  await page.getByRole("button", { name: "Create sandbox" }).click();
  await page.getByText("Your session has ended").waitFor();
  const other = await f.server.key("eve");
  await page.getByLabel("Key", { exact: true }).fill(other);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Your session has ended").waitFor({ state: "detached" });
  assert.equal(await page.getByLabel("Session key").inputValue(), "typed before");
});

test("a tab in which another owner signs in knows nothing of the one before", async () => {
  const made = await f.server.ask<{ id: string; key: string }>("POST", "/api/v1/keys", {
    name: "short",
    owner: "fay",
  });
  const { id } = await f.server.create({ labels: { of: "fay" }, memory_mb: 64 }, made.key);
  const { page } = await f.tab(made.key);
  const row = page.getByRole("row").filter({ hasText: "of=fay" });
  await row.waitFor();
  await page.evaluate(() => sessionStorage.setItem("atoll.draft.new", "what fay wrote"));
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByLabel("Session key").fill("typed by fay");
  await f.server.ask("DELETE", `/api/v1/keys/${made.id}`);
  await page.getByText("Your session has ended").waitFor();
  await accessible(page);
  await page.getByLabel("Key", { exact: true }).fill(await f.server.key("gus"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("No sandboxes yet").waitFor();
  assert.equal(await row.count(), 0);
  assert.equal(await page.getByLabel("Session key").count(), 0);
  assert(!(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).includes("fay wrote"));
  await page.goBack().catch(() => {});
  await page.getByText("No sandboxes yet").waitFor();
  assert(!(await page.content()).includes("of=fay"));
  await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
});

test("what is open ends with the session: events and terminals", async () => {
  const { id } = await f.server.create();
  const { page, context } = await f.tab(KEY);
  await page.getByText("live", { exact: true }).waitFor();
  const [cookie] = await context.cookies();
  const headers = { Cookie: `${cookie?.name}=${cookie?.value}`, Origin: f.server.url };
  // Node's own client takes headers, which browsers' do not.
  const Client = WebSocket as unknown as new (url: string, options: object) => WebSocket;
  const path = `${f.server.url.replace("http", "ws")}/api/v1/sandboxes/${id}/terminal`;
  const socket = new Client(path, { headers });
  const said: string[] = [];
  const ready = new Promise<void>((done) => {
    socket.addEventListener("message", ({ data }) => {
      if (typeof data !== "string") return;
      said.push(data);
      done();
    });
  });
  const closed = new Promise<number>((done) => {
    socket.addEventListener("close", ({ code }) => done(code));
  });
  await ready;
  // Another tab of the same browser signs out.
  const out = { ...headers, "X-Atoll-Console": "1" };
  assert((await fetch(`${f.server.url}/ui/session`, { method: "DELETE", headers: out })).ok);
  assert.equal(await closed, 1008);
  assert.match(said.at(-1) ?? "", /the session has ended/);
  await page.getByText("Your session has ended").waitFor();
  await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
});

test("the pages have a strict policy, are not framed, and are small", async () => {
  const first = await fetch(`${f.server.url}/ui/sandboxes`);
  const policy = first.headers.get("content-security-policy") ?? "";
  const { CspEvaluator, CspParser } = await evaluator();
  const findings = new CspEvaluator(new CspParser(policy).csp).evaluate();
  assert.deepEqual(
    findings.filter((one) => one.severity <= 30),
    [],
    policy,
  );
  assert.match(policy, /frame-ancestors 'none'/);
  assert.notEqual(
    policy,
    (await fetch(`${f.server.url}/ui/`)).headers.get("content-security-policy"),
    "a nonce is used once",
  );
  const html = await first.text();
  assert(!/<script(?![^>]*nonce)/.test(html) && !html.includes("ATOLL_NONCE"), html);
  const api = await fetch(`${f.server.url}/health`);
  assert.match(api.headers.get("content-security-policy") ?? "", /sandbox/);

  let bytes = 0;
  const { page } = await f.tab();
  const sized: Promise<void>[] = [];
  const scripts: Promise<string>[] = [];
  const size = async (response: Response) => {
    const { responseBodySize, responseHeadersSize } = await response.request().sizes();
    bytes += responseBodySize + responseHeadersSize;
  };
  const parts = ["document", "script", "stylesheet", "image", "font"];
  page.on("response", (response) => {
    if (parts.includes(response.request().resourceType())) sized.push(size(response));
    if (response.request().resourceType() === "script") scripts.push(response.text());
  });
  await signIn(page, KEY);
  await page.getByText("No sandboxes yet").waitFor();
  await Promise.all(sized);
  assert(bytes < 300_000, `the first view has ${bytes} bytes`);
  // Terminal, editor, charts and chat come when they are opened: each is somewhere, and not there.
  const folder = join(import.meta.dirname, "../dist/assets");
  const names = (await readdir(folder)).filter((name) => name.endsWith(".js"));
  const all = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  const view = (await Promise.all(scripts)).join();
  for (const mark of ["xterm-helper", "cm-scroller", "u-cursor", "Ask the agent for something"]) {
    assert(
      all.some((script) => script.includes(mark)),
      `no script has ${mark}`,
    );
    assert(!view.includes(mark), `the first view has ${mark}`);
  }
  console.log(`first view: ${bytes} bytes compressed`);
  const asset = (await page.locator("script[src]").getAttribute("src")) ?? "";
  const once = await fetch(f.server.url + asset, { headers: { "Accept-Encoding": "br" } });
  assert.equal(once.headers.get("content-encoding"), "br");
  assert.match(once.headers.get("cache-control") ?? "", /immutable/);
  const again = await fetch(f.server.url + asset, {
    headers: { "Accept-Encoding": "br", "If-None-Match": once.headers.get("etag") ?? "" },
  });
  assert.equal(again.status, 304);
});

test("the API reference renders offline, and a call that is tried goes with the session", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/docs#/sandboxes");
  const list = page.locator(".opblock-get").filter({ hasText: "Lists sandboxes." }).first();
  await list.locator(".opblock-summary-control").click();
  await page.getByRole("button", { name: "Try it out" }).click();
  await page.getByRole("button", { name: "Execute" }).click();
  await page.locator(".live-responses-table .response-col_status").getByText("200").waitFor();
});

/** Google's evaluator of policies; its severities up to 30 are high and medium. */
async function evaluator() {
  const [{ CspEvaluator }, { CspParser }] = await Promise.all([
    import("csp_evaluator/dist/evaluator.js"),
    import("csp_evaluator/dist/parser.js"),
  ]);
  return { CspEvaluator, CspParser };
}
