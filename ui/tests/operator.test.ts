// The lists and the operator's pages: settings, keys, audit, events, volumes, skills, owners, pool.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { accessible, fits, fixture, KEY, PROGRAM, seen, signIn } from "./harness.ts";

const f = fixture();
const run = promisify(execFile);

/** Waits until every part of the page has its answer. */
async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    const main = document.querySelector("#main");
    return main?.querySelector("h1, [role=alert]") && !/Loading…|The server checks/.test(main.textContent);
  });
}

interface Settings {
  idle_timeout_seconds: number;
  atoll: { admission: { wait_seconds: number }; sources: Record<string, string> };
}
const settings = () => f.server.ask<Settings>("GET", "/api/v1/settings/sandbox");

test("settings are changed together or not at all, and taken back", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/settings");
  await page.getByLabel("idle_timeout_seconds", { exact: true }).fill("1200");
  await page.getByLabel("admission.wait_seconds", { exact: true }).fill("9999");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("Nothing was changed").waitFor();
  assert.equal((await settings()).idle_timeout_seconds, 1800);

  await page.getByLabel("admission.wait_seconds", { exact: true }).fill("7");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("2 settings were changed").waitFor();
  const changed = await settings();
  assert.deepEqual([changed.idle_timeout_seconds, changed.atoll.admission.wait_seconds], [1200, 7]);
  assert.equal(changed.atoll.sources["admission.wait_seconds"], "stored");

  // Every setting that the server has is on the page, and a variable of the environment is said to be one.
  for (const name of Object.keys(changed.atoll.sources)) {
    assert.equal(await page.getByLabel(name, { exact: true }).count(), 1, name);
  }
  await page.getByText("from a variable").first().waitFor();
  await page.getByLabel("Search the settings").fill("idle_timeout");
  await page.getByLabel("admission.wait_seconds", { exact: true }).waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Take back" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("1 setting was changed").waitFor();
  assert.equal((await settings()).idle_timeout_seconds, 1800);
});

test("a key is shown once, signs in, and is worthless when it is revoked", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/keys");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByLabel("Name").fill("short-lived");
  await page.getByLabel("Owner").fill("zoe");
  await page.getByLabel("Scope").selectOption("read_only");
  await page.getByRole("complementary").getByRole("button", { name: "Create" }).click();
  const secret = ((await page.getByRole("complementary").locator("code").textContent()) ?? "").trim();
  assert.match(secret, /^atoll_/);
  await page.getByRole("button", { name: "I have it" }).click();
  await page.getByRole("row", { name: /short-lived/ }).waitFor();
  assert(!(await page.content()).includes(secret), "the secret is still on the page");

  // A key that only reads sees no buttons that change something.
  const other = await f.tab(secret);
  await other.page.goto("/ui/volumes");
  await other.page.getByText("No volumes yet").waitFor();
  assert.equal(await other.page.getByRole("button", { name: "Create" }).count(), 0);
  assert.equal(await other.page.getByRole("link", { name: "Settings" }).count(), 0);

  await page.getByRole("row", { name: /short-lived/ }).click();
  await page.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("complementary").getByText("revoked").first().waitFor();
  const refused = await fetch(`${f.server.url}/api/v1/volumes`, {
    headers: { Authorization: `Bearer ${secret}` },
  });
  assert.equal(refused.status, 401);
});

test("the trail is filtered, shown and verified, by the server and without it", async () => {
  const { id } = await f.server.create({ memory_mb: 64 });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "echo found-in-the-trail; exit 3" });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "true" });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/audit?sandbox_id=${id}`);
  await page.getByText("3 operations, 2 ok, 1 not").waitFor();
  await page.getByLabel("Exit code").fill("3");
  await page.getByText("1 operations").waitFor();
  await page.getByRole("row", { name: /found-in-the-trail/ }).click();
  const panel = page.getByRole("complementary", { name: "The operation exec" });
  await panel.getByRole("log").getByText("found-in-the-trail").waitFor();
  await panel.getByText("failed, exit 3").waitFor();
  await seen(page);

  await page.getByRole("button", { name: "Verify" }).click();
  const verdict = page.getByRole("complementary", { name: "Verify the trail" });
  await verdict.getByText("sound", { exact: true }).waitFor();
  await accessible(page);
  // The command of the page, with the folder of this server, agrees.
  const shown = (await verdict.getByText("--expect").textContent()) ?? "";
  const expected = shown.split("--expect ")[1]?.trim() ?? "";
  const args = ["audit", "verify", "--data-dir", f.server.data, "--expect", expected];
  assert.match((await run(PROGRAM, args)).stdout, /^sound/);
  const [row, code] = expected.split(":");
  const forged = [...args.slice(0, -1), `${row}:${code?.replace(/^./, (c) => (c === "0" ? "1" : "0"))}`];
  await assert.rejects(run(PROGRAM, forged));
});

test("an admin sees what the server found out about the machine, and no other caller does", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/doctor");
  const found = page.getByRole("list", { name: "Findings" }).getByRole("listitem");
  await found
    .filter({ hasText: "kernel" })
    .getByText(/good|lacking/)
    .first()
    .waitFor();
  const { stdout } = await run(PROGRAM, ["doctor", "--json", "--data-dir", f.server.data]).catch(
    (failed: { stdout: string }) => failed,
  );
  const said = (JSON.parse(stdout) as { findings: { name: string; seen: string }[] }).findings;
  const kernel = said.find(({ name }) => name === "kernel");
  await found
    .getByText(kernel?.seen ?? "no kernel", { exact: false })
    .first()
    .waitFor();
  const { page: other } = await f.tab(await f.server.key("kim"));
  assert.equal(await other.getByRole("link", { name: "Doctor" }).count(), 0);
  await other.goto("/ui/doctor");
  await other.getByText("this needs an admin key").waitFor();
});

test("events come as they happen, and can be held", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/events");
  await page.getByRole("grid", { name: "Events" }).waitFor();
  const { id } = await f.server.create({ memory_mb: 64 });
  const short = id.replaceAll("-", "").slice(0, 8);
  const rows = page.getByRole("row", { name: new RegExp(short) });
  await rows.filter({ hasText: "ready" }).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  const seen = await rows.count();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/stop`);
  await page.getByRole("button", { name: /Go on, \d+ wait/ }).waitFor();
  assert.equal(await rows.count(), seen);
  await page.getByRole("button", { name: /Go on/ }).click();
  await rows.filter({ hasText: "stopped" }).waitFor();
  await page.goto(`/ui/events?sandbox_id=${id}&kind=stopped`);
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
});

test("two owners never see each other's things", async () => {
  const [ann, ben] = [await f.server.key("ann"), await f.server.key("ben")];
  await f.server.ask("POST", "/api/v1/volumes", { name: "of-ann", disk_mb: 64 }, ann);
  const skill = { name: "skill-of-ann", description: "Hers", skill_md_content: "# Hers\n" };
  const { id: skillId } = await f.server.ask<{ id: string }>("POST", "/api/v1/skills", skill, ann);
  const { id } = await f.server.create({ memory_mb: 64, labels: { whose: "label-of-ann" } }, ann);
  const [trail] = (
    await f.server.ask<{ entries: { operation_id: string }[] }>("GET", "/api/v1/audit", undefined, ann)
  ).entries;
  const { page } = await f.tab(ben);
  const asked = ["", "sandboxes", "volumes", "skills", "audit", "events", "keys", "images/builds"];
  const direct = [
    "volumes?volume=of-ann",
    `skills?skill=${skillId}`,
    `audit?operation=${trail?.operation_id}`,
    `sandboxes/${id}`,
    `events?sandbox_id=${id}`,
    "pool",
    "owners",
    "settings",
    "doctor",
  ];
  for (const path of [...asked, ...direct]) {
    await page.goto(`/ui/${path}`);
    await page.locator("h1, [role=alert]").first().waitFor();
    await settled(page);
    // A refusal repeats the id that was asked for.
    const said = (await page.locator("#main").textContent()) ?? "";
    const text = said.replaceAll(`there is no sandbox ${id}`, "");
    for (const hers of ["label-of-ann", "skill-of-ann", "# Hers", id.slice(0, 8)]) {
      assert(!text.includes(hers), `${path} shows ${hers}: ${text}`);
    }
  }
  // Her own pages do show them.
  const hers = await f.tab(ann);
  await hers.page.goto("/ui/volumes");
  await hers.page.getByRole("row", { name: /of-ann/ }).waitFor();
  await hers.page.goto("/ui/skills");
  await hers.page.getByRole("row", { name: /skill-of-ann/ }).click();
  await hers.page.getByRole("complementary", { name: "The skill skill-of-ann" }).waitFor();
});

test("volumes are made, resized and deleted; plans of owners are made and given", async () => {
  await f.server.key("una");
  const { page } = await f.tab(KEY);
  await page.goto("/ui/volumes?create=1");
  await page.getByLabel("Name").fill("Not a name");
  await page.getByRole("complementary").getByRole("button", { name: "Create" }).click();
  await page.getByText(/a-z/).waitFor();
  await page.getByLabel("Name").fill("made-here");
  await page.getByLabel("Limit in MiB").fill("64");
  await page.getByRole("complementary").getByRole("button", { name: "Create" }).click();
  const panel = page.getByRole("complementary", { name: "The volume made-here" });
  await panel.getByLabel("Limit in MiB").fill("128");
  await panel.getByRole("button", { name: "Resize" }).click();
  await panel.getByText("of 128 MiB").waitFor();
  await panel.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /made-here/ }).waitFor({ state: "detached" });

  await page.goto("/ui/owners?plan=new");
  await page.getByLabel("Name").fill("team");
  await page.getByLabel("Sandboxes at a time").fill("9");
  await page.getByRole("button", { name: "Save" }).click();
  // The form closes when it was saved, and would take a panel with it that was opened before.
  await page.waitForURL((url) => !url.searchParams.has("plan"));
  await page.getByRole("row", { name: /una/ }).click();
  const owner = page.getByRole("complementary", { name: "The owner una" });
  await owner.getByLabel("Plan").selectOption("team");
  await owner.getByText("0 of 9").waitFor();
  const { atoll } = await f.server.ask<{ atoll: { owners: Record<string, string> } }>(
    "GET",
    "/api/v1/settings/sandbox",
  );
  assert.equal(atoll.owners.una, "team");
});

test("a skill is written, changed, installed in a sandbox and deleted", async () => {
  const { id } = await f.server.create({ memory_mb: 64 });
  const { page } = await f.tab(KEY);
  await page.goto("/ui/skills?add=1");
  await page.getByLabel("Name", { exact: true }).fill("made-here");
  await page.getByLabel("Description").fill("When a test runs");
  await page.getByLabel("SKILL.md").fill("# First\n");
  await page.getByRole("button", { name: "Create" }).click();
  const panel = page.getByRole("complementary", { name: "The skill made-here" });
  const text = panel.getByLabel("SKILL.md");
  await text.fill((await text.inputValue()).replace("# First", "# Second"));
  await panel.getByRole("button", { name: "Save" }).click();
  await page.getByText("made-here was changed").waitFor();
  await seen(page);

  await page.goto(`/ui/sandboxes/${id}/skills`);
  const row = page.locator("div.min-h-9").filter({ hasText: "made-here" });
  await row.getByRole("button", { name: "Install" }).click();
  await page.getByText("The skill is installed").waitFor();
  await page.getByRole("link", { name: "made-here" }).click();
  await page.getByRole("list", { name: "Entries" }).getByText("SKILL.md").click();
  await page.getByLabel("Content of SKILL.md").getByText("# Second").waitFor();

  await page.goto("/ui/skills");
  await page.getByRole("row", { name: /made-here/ }).click();
  await panel.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /made-here/ }).waitFor({ state: "detached" });
});

test("the pool is switched on, sized, drained and switched off", async () => {
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", { atoll: { pool: { min: 0 } } });
  const { page } = await f.tab(KEY);
  await page.goto("/ui/pool");
  await page.getByRole("button", { name: "Keep an image ready" }).first().click();
  await page.getByLabel("Image", { exact: true }).selectOption("host");
  await page.getByLabel("At least").fill("1");
  await page.getByLabel("At most").fill("1");
  await page.getByRole("button", { name: "Keep so many" }).click();
  await page.getByText("The pool of host was changed").waitFor();
  await page.getByRole("button", { name: "Switch on" }).click();
  const row = page.getByRole("row").filter({ hasText: "host" });
  const full = async () => {
    // What the pool starts is no event of a sandbox.
    while (!(await row.getByText("1 of 1").isVisible()))
      await page.getByRole("button", { name: "Look again" }).click();
  };
  await full();
  await page.getByRole("button", { name: "Drain" }).click();
  await page.getByText("1 sandbox was drained").waitFor();
  await full();
  await row.click();
  const panel = page.getByRole("complementary", { name: "Pool of host" });
  await seen(page);
  await panel.getByLabel("At most").fill("2");
  await panel.getByRole("button", { name: "Keep so many" }).click();
  await row.getByText("1 to 2").waitFor();
  await page.getByRole("button", { name: "Switch off" }).click();
  await page.getByRole("button", { name: "Switch on" }).waitFor();
});

test("every owner is listed with what it has, by one request, whatever happens meanwhile", async () => {
  // Owners of whom there is a volume, a sandbox or a plan, and one without anything but a key.
  const keys = new Map<string, string>();
  for (const owner of ["list-a", "list-b", "list-c"]) keys.set(owner, await f.server.key(owner));
  await f.server.ask("POST", "/api/v1/volumes", { name: "of-list", disk_mb: 64 }, keys.get("list-a"));
  const { id } = await f.server.create({ memory_mb: 64, disk_mb: 32 }, keys.get("list-a"));
  const { atoll } = await f.server.ask<{ atoll: { owners: object; plans: object } }>(
    "GET",
    "/api/v1/settings/sandbox",
  );
  const plans = { ...atoll.plans, "of-list-d": { sandboxes: 7 } };
  const owners = { ...atoll.owners, "list-d": "of-list-d" };
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", { atoll: { plans, owners } });
  const { page } = await f.tab(KEY);
  const asked: string[] = [];
  page.on("request", (request) => {
    const isList = /\/api\/v1\/(admin|volumes|skills|keys)/.test(request.url());
    if (isList && page.url().includes("/ui/owners")) asked.push(request.url());
  });
  await page.goto("/ui/owners?q=list-");
  const row = (name: string) => page.getByRole("row", { name: new RegExp(name) });
  for (const name of ["list-a", "list-b", "list-c", "list-d"]) await row(name).waitFor();
  await row("list-a")
    .getByText(/^1 of /)
    .first()
    .waitFor();
  await row("list-d").getByText("0 of 7").waitFor();
  assert.equal(asked.length, 1, asked.join("\n"));
  await row("list-a").click();
  const panel = page.getByRole("complementary", { name: "The owner list-a" });
  await panel.getByText(/96 MiB of/).waitFor();
  // Many events are read once, and the panel shows what they led to.
  asked.length = 0;
  for (const verb of ["pause", "resume", "pause", "resume", "stop"])
    await f.server.ask("POST", `/api/v1/sandboxes/${id}/${verb}`);
  await panel
    .getByText(/^0 of /)
    .first()
    .waitFor();
  assert(asked.length <= 8, asked.join("\n"));
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", {
    atoll: { plans: atoll.plans, owners: atoll.owners },
  });
});

for (const dark of [false, true]) {
  test(`no page has a serious finding or is too wide, ${dark ? "dark" : "light"}`, async () => {
    const { page } = await f.tab(undefined, { dark });
    await signIn(page, KEY);
    const name = dark ? "seen-dark" : "seen-light";
    await f.server.ask("POST", "/api/v1/volumes", { name, disk_mb: 64 });
    const skill = { name, description: "A skill", skill_md_content: "# Words\n\n```sh\necho a\n```\n" };
    const { id: skillId } = await f.server.ask<{ id: string }>("POST", "/api/v1/skills", skill);
    const { id: key } = await f.server.ask<{ id: string }>("POST", "/api/v1/keys", { name, owner: name });
    const owner = `/api/v1/admin/owners?search=${name}`;
    const { items } = await f.server.ask<{ items: { owner_id: string }[] }>("GET", owner);
    const trail = "/api/v1/audit?kind=skill.create&limit=1";
    const { entries } = await f.server.ask<{ entries: { operation_id: string }[] }>("GET", trail);
    const paths = [
      `volumes?volume=${name}`,
      `skills?skill=${skillId}`,
      `keys?key=${key}`,
      `owners?owner=${items[0]?.owner_id}`,
      `audit?operation=${entries[0]?.operation_id}`,
      "audit?verify=1",
      "images?add=import",
      "owners?plan=new",
      "images",
      "images/catalogue",
      "images/builds",
      "images?add=dockerfile",
      "images?add=pull",
      "volumes?create=1",
      "skills?add=1",
      "audit",
      "events",
      "keys?create=1",
      "pool?add=1",
      "owners?plan=free",
      "settings",
      "doctor",
    ];
    for (const path of paths) {
      await page.goto(`/ui/${path}`);
      await page.locator("h1").first().waitFor();
      await settled(page);
      await accessible(page);
      if (dark) continue;
      await page.setViewportSize({ width: 375, height: 812 });
      await fits(page);
      await page.setViewportSize({ width: 1440, height: 900 });
    }
  });
}
