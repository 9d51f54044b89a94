// The terminal: typing, a reload, an end, and sequences that try to act outside of it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fixture, KEY } from "./harness.ts";

const f = fixture();

test("typing reaches the shell, which is still there after a reload", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("attached").waitFor();
  const screen = page.locator(".xterm-accessibility-tree");
  await screen.getByText("$").first().waitFor();
  await page.keyboard.type("mark=$((6 * 7)); echo typed-$mark\n");
  await screen.getByText("typed-42", { exact: true }).waitFor();
  await page.reload();
  await page.getByText("attached").waitFor();
  await screen.getByText("typed-42", { exact: true }).waitFor();
  await page.keyboard.type("echo again-$mark\n");
  await screen.getByText("again-42", { exact: true }).waitFor();
  await page.keyboard.type("exit 5\n");
  await page.getByText("The shell has ended with exit 5.").waitFor();
  await page.getByRole("button", { name: "Open another" }).click();
  await page.getByText("attached").waitFor();
});

test("where there is no shell the page says so", async () => {
  const { id } = await f.server.create();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/stop`);
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("There is no shell: the sandbox is stopped").waitFor();
  await page.goto(`/ui/sandboxes/${id}/terminal?exec=${"0".repeat(32)}`);
  await page.getByText("There is no shell: the sandbox is stopped").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByText("There is no terminal:").waitFor();
});

test("a terminal that is refused is not asked for again and again", async () => {
  const { id } = await f.server.create();
  const begun = await f.server.ask<{ exec_id: string }>("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "sleep 1000",
    background: true,
  });
  const { page } = await f.tab(KEY);
  const sockets: string[] = [];
  page.on("websocket", (socket) => sockets.push(socket.url()));
  await page.goto(`/ui/sandboxes/${id}/terminal?exec=${begun.exec_id}`);
  await page.getByText("There is no terminal:").waitFor();
  await page.getByRole("button", { name: "Open another" }).click();
  await page.getByText("attached").waitFor();
  assert.equal(sockets.filter((url) => url.includes(begun.exec_id)).length, 1, sockets.join("\n"));
});

test("an image without a shell says so, in one operation", async () => {
  const folder = mkdtempSync(join(tmpdir(), "atoll-ui-image-"));
  try {
    mkdirSync(join(folder, "root/bin"), { recursive: true });
    copyFileSync("/usr/bin/busybox", join(folder, "root/bin/cat"));
    execFileSync("tar", ["-C", join(folder, "root"), "-cf", join(folder, "root.tar"), "."]);
    const response = await fetch(`${f.server.url}/api/v1/sandbox-images/import?name=bare:1`, {
      method: "POST",
      headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/x-tar" },
      body: readFileSync(join(folder, "root.tar")),
    });
    assert(response.ok, await response.text());
  } finally {
    rmSync(folder, { recursive: true });
  }
  const { id } = await f.server.create({ image: "bare:1" });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("there is no shell in this image").first().waitFor();
  const path = `/api/v1/audit?sandbox_id=${id}&kind=terminal`;
  const { entries } = await f.server.ask<{ entries: unknown[] }>("GET", path);
  assert.equal(entries.length, 1, JSON.stringify(entries));
});

test("escape sequences change neither the page nor its title", async () => {
  const { id } = await f.server.create();
  const { page, faults } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("attached").waitFor();
  const title = await page.title();
  await page.keyboard.type(
    "printf '\\033]0;pwned\\007\\033]2;<script>pwned(1)</script>\\007\\033]8;;javascript:pwned(2)\\007link\\033]8;;\\007\\033]52;c;cHduZWQ=\\007'; echo done-$((1 + 1))\n",
  );
  const screen = page.locator(".xterm-accessibility-tree");
  await screen.getByText(/done-2/).waitFor();
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await screen.getByText(/link/).last().click({ force: true });
  assert.equal(await page.title(), title);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "mine");
  assert.deepEqual(faults, []);
});
