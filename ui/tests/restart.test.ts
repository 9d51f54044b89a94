// What is open when the server goes and comes back: it goes on after the last byte, without the reader.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { fixture, KEY } from "./harness.ts";

const f = fixture();

async function restart(page: Page): Promise<void> {
  await f.server.kill();
  await page.getByText("The server does not answer").waitFor();
  await f.server.up();
  await page.getByText("live", { exact: true }).first().waitFor();
}

const mkdir = (id: string, path: string) =>
  f.server.ask("POST", `/api/v1/sandboxes/${id}/fs/mkdir`, { path });

test("the output of a command goes on after the last byte", async () => {
  const { id } = await f.server.create({ memory_mb: 128 });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/commands`);
  await page
    .getByLabel("Command", { exact: true })
    .fill("echo first; until test -e go; do sleep 0.1; done; echo last");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  const output = page.getByRole("log", { name: "Output of the command" });
  await output.getByText("first").waitFor();
  await restart(page);
  await mkdir(id, "go");
  await output.getByText("last").waitFor();
  assert.equal(await output.textContent(), "first\nlast\n");
  await page.getByText("exit 0").waitFor();
});

test("a cell goes on, over a reload too, and the notebook is there again", async () => {
  const { id } = await f.server.create({ memory_mb: 256 });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/notebook`);
  await page.getByRole("button", { name: "Start a kernel" }).click();
  await page.getByLabel("Kernel", { exact: true }).waitFor();
  const wait = (name: string) =>
    `import os, time\nprint('begun ${name}', flush=True)\nwhile not os.path.exists('${name}'): time.sleep(.1)\nprint('over ${name}')`;
  const cells = page.getByRole("region", { name: "Cell" });
  const run = async (at: number, code: string) => {
    await cells.nth(at).getByLabel("Code of the cell").click();
    await page.keyboard.insertText(code);
    await page.keyboard.press("Shift+Enter");
    return cells.nth(at).getByRole("log", { name: "Result of the cell" });
  };
  const one = await run(0, `n = 41\n${wait("one")}`);
  await one.getByText("begun one").waitFor();
  await restart(page);
  await mkdir(id, "one");
  await one.getByText("over one").waitFor();
  assert.equal(await one.locator("pre").textContent(), "begun one\nover one\n");

  const two = await run(1, wait("two"));
  await two.getByText("begun two").waitFor();
  await page.reload();
  await two.getByText("begun two").waitFor();
  await mkdir(id, "two");
  await two.getByText("over two").waitFor();
  assert.equal(await two.locator("pre").textContent(), "begun two\nover two\n");
  assert.equal(await one.locator("pre").textContent(), "begun one\nover one\n");
  // Neither was run a second time, and the variables are those of the first.
  await (await run(2, "n")).getByText("41").waitFor();
  const counted = await page.evaluate(async (sandbox) => {
    const answer = await fetch(`/api/v1/sandboxes/${sandbox}/kernels`);
    return ((await answer.json()) as { execution_count: number }[])[0]?.execution_count;
  }, id);
  assert.equal(counted, 3);

  // Signing out leaves nothing of it in the tab.
  await page.getByRole("button", { name: "admin" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByLabel("Key", { exact: true }).waitFor();
  assert(!(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).includes("begun"));
});

test("what is typed into a terminal without a connection is sent once, when there is one", async () => {
  const { id } = await f.server.create({ memory_mb: 128 });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("attached").waitFor();
  const screen = page.locator(".xterm-accessibility-tree");
  await screen.getByText("$").first().waitFor();
  await f.server.kill();
  await page.getByText("connection lost").waitFor();
  await page.keyboard.type("echo x >> typed; echo lines-$(wc -l < typed)\n");
  await f.server.up();
  await screen.getByText("lines-1", { exact: true }).waitFor();
});

test("the log of a build ends where the server says how it ended", async () => {
  const folder = mkdtempSync(join(tmpdir(), "atoll-ui-image-"));
  try {
    mkdirSync(join(folder, "root/bin"), { recursive: true });
    copyFileSync("/usr/bin/busybox", join(folder, "root/bin/sh"));
    execFileSync("tar", ["-C", join(folder, "root"), "-cf", join(folder, "root.tar"), "."]);
    const response = await fetch(`${f.server.url}/api/v1/sandbox-images/import?name=tiny`, {
      method: "POST",
      headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/x-tar" },
      body: readFileSync(join(folder, "root.tar")),
    });
    assert(response.ok, await response.text());
  } finally {
    rmSync(folder, { recursive: true });
  }
  const body = { dockerfile: "FROM tiny\nRUN echo stre''ams; sleep 600\n", name: "endless", disk_mb: 64 };
  const begun = await f.server.ask<{ build_id: string }>("POST", "/api/v1/sandbox-images", body);
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/images/builds?build=${begun.build_id}`);
  const panel = page.getByRole("complementary", { name: "Build of endless:latest" });
  await panel.getByRole("log").getByText("streams").waitFor();
  await restart(page);
  // A build does not outlive its server; what it said before is shown once, and how it ended.
  await panel.getByText("failed", { exact: true }).waitFor();
  await panel.getByText("output", { exact: true }).waitFor();
  assert.equal((await panel.getByRole("log").textContent())?.match(/^streams$/gm)?.length, 1);
});
