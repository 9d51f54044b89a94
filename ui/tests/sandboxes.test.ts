// The list of sandboxes and the create form, with real sandboxes.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { fixture, KEY, PROGRAM, seen } from "./harness.ts";

const f = fixture();

const HOSTILE = [
  `<img src=x onerror="pwned('label')">`,
  `</script><script>pwned('script')</script>`,
  `javascript:pwned('url')`,
  `"><svg onload=pwned('svg')>`,
  "\u202egnp.exe",
];

test("a sandbox is created in the form and shows in the list as it changes", async () => {
  const { page } = await f.tab(KEY);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const form = page.getByRole("form", { name: "Create a sandbox" });
  await form.getByLabel("Memory, MiB").fill("8");
  await form.getByRole("button", { name: "Create sandbox" }).click();
  await form
    .getByText(/between 16/)
    .first()
    .waitFor();
  await form.getByLabel("Memory, MiB").fill("128");
  await form.getByLabel("Labels").fill("team=research");
  await form.getByRole("button", { name: "Create sandbox" }).click();
  await page.waitForURL(/\/sandboxes\/[0-9a-f-]{36}/);
  const id = page.url().split("/").at(-1) ?? "";
  const made = await f.server.ask<{ memory_mb: number; labels: object }>("GET", `/api/v1/sandboxes/${id}`);
  assert.deepEqual([made.memory_mb, made.labels], [128, { team: "research" }]);

  await page.goto("/ui/sandboxes?q=research");
  const row = page.getByRole("row").filter({ hasText: "team=research" });
  await row.getByText("running").waitFor();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "exit 3" });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/pause`);
  await row.getByText("paused").waitFor();
  await row.getByText("exit 3").waitFor();

  // Search, filter and order are in the address.
  await page.getByRole("button", { name: /^running/ }).click();
  await page.getByText("No sandbox matches").waitFor();
  assert.match(page.url(), /status=running/);
  await page.getByRole("button", { name: "Clear the filters" }).click();
  await row.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Resume" }).click();
  await row.getByText("running").waitFor();
  await row.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
});

test("what rows show of use comes with one request for those in view", async () => {
  const key = await f.server.key("ivy");
  const ids: string[] = [];
  for (const name of ["one", "two", "three"])
    ids.push((await f.server.create({ labels: { row: name }, memory_mb: 64 }, key)).id);
  await f.server.ask("POST", `/api/v1/sandboxes/${ids[0]}/exec`, { command: "exit 5" }, key);
  const { page } = await f.tab(key);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  const row = page.getByRole("row").filter({ hasText: "row=one" });
  await row.getByText("exit 5").waitFor();
  await row
    .getByText(/of|\/ 64 MiB/)
    .first()
    .waitFor();
  assert(!asked.some((path) => /\/(metrics|activity)$/.test(path)), asked.join("\n"));
  // A command that ends is shown without a reload.
  await f.server.ask("POST", `/api/v1/sandboxes/${ids[1]}/exec`, { command: "exit 6" }, key);
  await page.getByRole("row").filter({ hasText: "row=two" }).getByText("exit 6").waitFor();
  for (const id of ids) await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`, undefined, key);
});

test("the form has every field of the API, and its command makes the same sandbox", async () => {
  await f.server.ask("POST", "/api/v1/volumes", { name: "form-data", disk_mb: 64 });
  const { page } = await f.tab(KEY);
  await page.goto("/ui/sandboxes?create=1");
  const form = page.getByRole("form", { name: "Create a sandbox" });
  await form.getByLabel("Memory, MiB").fill("64");
  await form.getByLabel("Processes, at once").fill("77");
  await form.getByLabel("Network").selectOption("only what is listed");
  await form.getByLabel("Allow", { exact: true }).fill("api.example.com\nother.example.org:443");
  await form.getByLabel("Deny", { exact: true }).fill("bad.example.org");
  await form.getByRole("checkbox", { name: "python" }).check();
  await form.getByText("Limits").click();
  await form.getByLabel("Connections at a time").fill("5");
  await form.getByText("More: profile").click();
  await form.getByLabel("Profile").selectOption("root");
  await form.getByLabel("Snapshots by itself").selectOption("before_exec");
  await form.getByLabel("Longest life, seconds").fill("7200");
  await form.getByLabel("Volumes").fill("form-data:/mnt/data:ro");
  await form.getByLabel("Paths that are read-only").fill("/workspace/fixed");
  await form.getByLabel("Paths that cannot be reached").fill("/srv/none");
  await form.getByLabel("Tenant").fill("acme");
  await form.getByRole("button", { name: "Copy as" }).click();
  await page.getByRole("menuitem", { name: "CLI" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  await form.getByLabel("Secrets").fill("TOKEN=hidden");
  await form.getByRole("button", { name: "Create sandbox" }).click();
  await page.waitForURL(/\/sandboxes\/[0-9a-f-]{36}/);
  const read = (id: string) => f.server.ask<Record<string, unknown>>("GET", `/api/v1/sandboxes/${id}`);
  const of = ({
    memory_mb,
    processes,
    profile,
    auto_snapshot,
    max_lifetime_seconds,
    volumes,
    filesystem,
  }: Record<string, unknown>) => ({
    memory_mb,
    processes,
    profile,
    auto_snapshot,
    max_lifetime_seconds,
    volumes,
    filesystem,
  });
  const made = await read(page.url().split("/").at(-1) ?? "");
  assert.deepEqual(
    [made.processes, made.profile, made.auto_snapshot, made.max_lifetime_seconds],
    [77, "root", "before_exec", 7200],
  );
  assert.match(JSON.stringify(made.volumes), /"name":"form-data","path":"\/mnt\/data","read_only":true/);
  const env = { ...process.env, ATOLL_URL: f.server.url, ATOLL_API_KEY: KEY };
  const words = command.split(" ").slice(1);
  const { stdout } = await promisify(execFile)(PROGRAM, words, { env });
  assert.deepEqual(of(await read(stdout.trim())), of(made), command);
  const policyOf = async (id: string) =>
    (await f.server.ask<{ policy: object }>("GET", `/api/v1/sandboxes/${id}/egress`)).policy;
  const policy = await policyOf(String(made.id));
  assert.deepEqual(policy, {
    mode: "allowlist",
    allow: ["api.example.com", "other.example.org:443"],
    deny: ["bad.example.org"],
    presets: ["python"],
    limits: { connections: 5 },
  });
  assert.deepEqual(await policyOf(stdout.trim()), policy, command);
  for (const id of [String(made.id), stdout.trim()]) await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
});

test("several sandboxes are paused and stopped at once, and the form says what applies", async () => {
  const key = await f.server.key("hal");
  const ids: string[] = [];
  for (const name of ["one", "two"])
    ids.push((await f.server.create({ labels: { bulk: name }, memory_mb: 64 }, key)).id);
  const { page } = await f.tab(key);
  const rows = page.getByRole("row").filter({ hasText: "bulk=" });
  const bar = page.getByRole("toolbar", { name: "Chosen sandboxes" });
  const chosen = rows.getByRole("checkbox", { checked: true });
  const all = async (verb: string, after: string) => {
    for (const row of await rows.all()) await row.getByRole("checkbox").check();
    await page.getByText("2 chosen").waitFor();
    await page
      .getByRole("toolbar", { name: "Chosen sandboxes" })
      .getByRole("button", { name: verb, exact: true })
      .click();
    await rows.nth(0).getByText(after).waitFor();
    await rows.nth(1).getByText(after).waitFor();
  };
  await rows.nth(1).waitFor();

  // What was chosen is not chosen any more in a list of others, nor when the first list is back.
  await rows.nth(0).getByRole("checkbox").check();
  await bar.getByText("1 chosen").waitFor();
  await page.getByLabel("Search sandboxes").fill("bulk=one");
  await bar.waitFor({ state: "detached" });
  await page.getByLabel("Search sandboxes").fill("");
  await rows.nth(1).waitFor();
  assert.equal(await chosen.count(), 0);
  // One that leaves the list by itself stays chosen, and the page says so before it is deleted.
  await page.getByRole("button", { name: /^running/ }).click();
  await page.waitForURL(/status=running/);
  for (const row of await rows.all()) await row.getByRole("checkbox").check();
  await f.server.ask("POST", `/api/v1/sandboxes/${ids[0]}/pause`, undefined, key);
  await bar.getByText("2 chosen, 1 of them out of view").waitFor();
  await bar.getByRole("button", { name: "Delete" }).click();
  const dialog = page.getByRole("alertdialog", { name: "Delete 2 sandboxes?" });
  await dialog.getByText("1 of them is out of view").waitFor();
  await seen(page);
  await dialog.getByRole("button", { name: "Keep" }).click();
  await seen(page);
  await f.server.ask("POST", `/api/v1/sandboxes/${ids[0]}/resume`, undefined, key);
  await page.getByRole("button", { name: /^All/ }).click();
  await rows.nth(1).waitFor();

  await all("Pause", "paused");
  await all("Stop", "stopped");
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", { idle_timeout_seconds: 1234 });
  await page.goto("/ui/sandboxes?create=1");
  await page.getByLabel("Idle timeout, seconds").waitFor();
  assert.equal(await page.getByLabel("Idle timeout, seconds").getAttribute("placeholder"), "1234");
  await page.getByText("host where none is chosen").waitFor();
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", { idle_timeout_seconds: null });
});

test("two owners never see each other's sandboxes", async () => {
  const [ann, bob] = [await f.server.key("ann"), await f.server.key("bob")];
  const { id } = await f.server.create({ labels: { of: "ann" }, memory_mb: 64 }, ann);
  const hers = await f.tab(ann);
  await hers.page.getByRole("row").filter({ hasText: "of=ann" }).waitFor();
  const his = await f.tab(bob);
  await his.page.getByText("No sandboxes yet").waitFor();
  await his.page.goto(`/ui/sandboxes/${id}`);
  await his.page.getByText("there is no sandbox").first().waitFor();
  const events = await his.page.evaluate(async () => (await fetch("/api/v1/events?after=0")).text());
  assert(!events.includes(id), events);
  await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
});

test("hostile labels, session keys and owners are text", async () => {
  const ids: string[] = [];
  for (const text of HOSTILE) {
    const made = await f.server.create({
      labels: { evil: text.slice(0, 60) },
      session_key: `k${ids.length}`,
      memory_mb: 64,
    });
    ids.push(made.id);
  }
  await f.server.ask("POST", `/api/v1/sandboxes/${ids[0]}/exec`, {
    command: `: '\u001b]0;title\u0007${HOSTILE[0]}'`,
  });
  const { page, faults } = await f.tab(KEY);
  await page.getByText("<img src=x onerror").first().waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog").getByRole("combobox").fill("script");
  await page.getByRole("dialog").getByText("pwned('script')").first().waitFor();
  await page.keyboard.press("Escape");
  for (const id of ids) {
    await page.goto(`/ui/sandboxes/${id}`);
    await page.getByText(id.slice(0, 8)).first().waitFor();
    await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
  }
  assert.deepEqual(faults, []);
});

test("the page says that the server is gone and goes on by itself when it is back", async () => {
  const { id } = await f.server.create({ labels: { still: "here" }, memory_mb: 64 });
  const { page } = await f.tab(KEY);
  const row = page.getByRole("row").filter({ hasText: "still=here" });
  await row.waitFor();
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByLabel("Session key").fill("typed before");
  await f.server.kill();
  await page.getByText("The server does not answer").waitFor();
  await f.server.up();
  await page.getByText("The server does not answer").waitFor({ state: "detached" });
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(await page.getByLabel("Session key").inputValue(), "typed before");
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/pause`);
  await row.getByText("paused").waitFor();
  await f.server.ask("DELETE", `/api/v1/sandboxes/${id}`);
});
