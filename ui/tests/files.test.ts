// The files of a sandbox: bytes that go in come out, edits that do not lose another's, names and content that attack.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { fixture, KEY, seen } from "./harness.ts";

const f = fixture();

async function content(id: string, path: string): Promise<Buffer> {
  const response = await fetch(`${f.server.url}/api/v1/sandboxes/${id}/files/${encodeURIComponent(path)}`, {
    headers: { Authorization: `Bearer ${KEY}` },
  });
  assert(response.ok, `${path}: ${response.status}`);
  return Buffer.from(await response.arrayBuffer());
}

test("a file is uploaded, edited and downloaded with the same bytes", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files`);
  const binary = randomBytes(300_000);
  await page.getByLabel("Files to upload").setInputFiles([
    { name: "raw.bin", mimeType: "application/octet-stream", buffer: binary },
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("one\n") },
  ]);
  await page
    .getByRole("list", { name: "Uploads" })
    .getByText(/uploaded/)
    .nth(1)
    .waitFor();
  assert.deepEqual(await content(id, "raw.bin"), binary);

  const entries = page.getByRole("list", { name: "Entries" });
  await entries.getByText("raw.bin").click();
  await page.getByText("This is not text").waitFor();
  const waits = page.waitForEvent("download");
  await page.getByRole("region", { name: "File" }).getByRole("link", { name: "Download" }).first().click();
  const download = await waits;
  assert.equal(download.suggestedFilename(), "raw.bin");
  assert.deepEqual(await readFile(await download.path()), binary);
  await page.getByRole("region", { name: "File" }).getByRole("button", { name: "Copy as" }).click();
  await page.getByRole("menuitem", { name: "CLI" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(command, `atoll cp ${id}:/workspace/raw.bin .`);

  await page.getByRole("navigation", { name: "Files" }).getByText("notes.txt").click();
  const editor = page.getByLabel("Content of notes.txt");
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("two");
  await page.keyboard.press("Control+s");
  await page.getByText("As in the sandbox").waitFor();
  assert.equal((await content(id, "notes.txt")).toString(), "one\ntwo");
  await seen(page);
});

test("a file that is too big to edit goes up with its progress and shows its beginning; values are a table", async () => {
  const { id } = await f.server.create();
  const { page, context } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files`);
  const devtools = await context.newCDPSession(page);
  const network = { offline: false, latency: 0, downloadThroughput: -1 };
  await devtools.send("Network.emulateNetworkConditions", { ...network, uploadThroughput: 512 * 1024 });
  const big = Buffer.from(`the beginning\n${"line\n".repeat(500_000)}`);
  await page
    .getByLabel("Files to upload")
    .setInputFiles({ name: "big.log", mimeType: "text/plain", buffer: big });
  await page.waitForFunction(() => {
    const { value = 0 } = document.querySelector("progress") ?? {};
    return value > 0 && value < 1;
  });
  await devtools.send("Network.emulateNetworkConditions", { ...network, uploadThroughput: -1 });
  await page.getByRole("list", { name: "Uploads" }).getByText("uploaded").waitFor();
  assert.deepEqual(await content(id, "big.log"), big);
  const asked = page.waitForRequest(
    (request) => /\/files\/.*big\.log/.test(request.url()) && request.method() === "GET",
  );
  await page.getByRole("list", { name: "Entries" }).getByText("big.log").click();
  assert.equal((await asked).headers().range, "bytes=0-65535");
  await page.getByText("Too big to edit here: its beginning.").waitFor();
  await page.locator("pre").getByText("the beginning").waitFor();
  await seen(page);

  const row = Array.from({ length: 20 }, (_, at) => `column ${at}`).join(",");
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: `printf '${row}\n${row}\n' > table.csv`,
  });
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/table.csv`);
  await page.getByRole("columnheader", { name: "column 19" }).waitFor();
  await seen(page);
  // What is looked for among the files is in the address, and stays beside a file.
  await page.getByLabel("Find a file").fill("*.log");
  await page.getByRole("list", { name: "Found" }).getByText("big.log").click();
  await page.waitForURL((url) => url.searchParams.get("find") === "*.log" && url.href.includes("big.log"));
  await page.reload();
  await page.getByRole("list", { name: "Found" }).getByText("big.log").waitFor();
});

test("what was dragged in, folders as archives", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files`);
  const target = page.getByRole("region", { name: "Folder" });
  await target.waitFor();
  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["dragged"], "dragged.txt"));
    return transfer;
  });
  await target.dispatchEvent("drop", { dataTransfer: data });
  await page.getByRole("list", { name: "Entries" }).getByText("dragged.txt").waitFor();
  assert.equal((await content(id, "dragged.txt")).toString(), "dragged");
  const waits = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download as tar" }).click();
  const archive = await readFile(await (await waits).path());
  assert(archive.includes("dragged.txt"));
});

/** Drags a folder of this machine onto the page, as a file manager does. */
async function dragFolder(page: Page, context: BrowserContext, folder: string): Promise<void> {
  const box = await page.getByRole("region", { name: "Folder" }).boundingBox();
  assert(box);
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  const session = await context.newCDPSession(page);
  for (const type of ["dragEnter", "dragOver", "drop"] as const) {
    await session.send("Input.dispatchDragEvent", { type, x, y, data });
  }
  await session.detach();
}

test("a folder that is dropped replaces no file unasked, at any depth", async () => {
  const { id } = await f.server.create();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "mkdir -p project/deep; printf mine > project/deep/kept.txt; printf other > project/other.txt",
  });
  const folder = mkdtempSync(join(tmpdir(), "atoll-ui-drop-"));
  try {
    mkdirSync(join(folder, "project/deep"), { recursive: true });
    writeFileSync(join(folder, "project/deep/kept.txt"), "dropped");
    writeFileSync(join(folder, "project/new.txt"), "new");
    const { page, context } = await f.tab(KEY);
    await page.goto(`/ui/sandboxes/${id}/files`);
    await page.getByRole("list", { name: "Entries" }).getByText("project").waitFor();
    await dragFolder(page, context, join(folder, "project"));
    const dialog = page.getByRole("alertdialog", { name: "Replace what is there?" });
    await dialog.getByText("/workspace/project/deep/kept.txt is lost").waitFor();
    assert.equal((await content(id, "project/deep/kept.txt")).toString(), "mine");
    await dialog.getByRole("button", { name: "Keep" }).click();

    await dragFolder(page, context, join(folder, "project"));
    await dialog.getByRole("button", { name: "Replace" }).click();
    await page
      .getByRole("list", { name: "Uploads" })
      .getByText(/uploaded/)
      .nth(1)
      .waitFor();
    assert.equal((await content(id, "project/deep/kept.txt")).toString(), "dropped");
    assert.equal((await content(id, "project/other.txt")).toString(), "other");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a folder gets another name and is deleted with what is in it; a new file takes no name that is taken", async () => {
  const { id } = await f.server.create();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "mkdir -p old/in; printf words > old/in/file.txt",
  });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/old/in`);
  await page.getByRole("button", { name: "New file" }).click();
  await page.getByLabel("Name of the new file").fill("file.txt");
  await page.getByRole("button", { name: "Make", exact: true }).click();
  await page.getByText("something has that name already").first().waitFor();
  assert.equal((await content(id, "old/in/file.txt")).toString(), "words");

  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/old`);
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("new");
  await page.getByLabel("New name").press("Enter");
  await page.waitForURL((url) => url.searchParams.get("path") === "/workspace/new");
  assert.equal((await content(id, "new/in/file.txt")).toString(), "words");
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alertdialog").getByText("with all that is in it").waitFor();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("The folder is empty.").waitFor();
  // The sandbox's own folder has neither.
  assert.equal(await page.getByRole("button", { name: "Delete" }).count(), 0);
});

test("a save is refused where another wrote a moment before it", async () => {
  const { id } = await f.server.create();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "printf theirs > shared.txt" });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/shared.txt`);
  await page.getByLabel("Content of shared.txt").click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type(" and mine");
  // The other writes when the page asks, before it saves, whether the file is still the one that was opened: no stream
  // of changes can have told the page before.
  let asked = false;
  await page.route("**/fs/stat?**", async (route) => {
    if (!asked) {
      asked = true;
      await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "printf newer > shared.txt" });
    }
    await route.continue();
  });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Something else changed this file").waitFor();
  assert(asked);
  assert.equal((await content(id, "shared.txt")).toString(), "newer");
  await page.getByRole("button", { name: "The other: load it" }).click();
  await page.getByLabel("Content of shared.txt").getByText("newer").waitFor();
});

test("a save does not lose what another wrote", async () => {
  const { id } = await f.server.create();
  const write = (text: string) =>
    f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: `printf '${text}' > shared.txt` });
  await write("theirs");
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/shared.txt`);
  const editor = page.getByLabel("Content of shared.txt");
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type(" and mine");
  await write("theirs, again");
  await page.getByText("Something else changed this file").waitFor();
  assert.equal((await content(id, "shared.txt")).toString(), "theirs, again");
  await page.getByRole("button", { name: "Mine: write over it" }).click();
  await page.getByText("As in the sandbox").waitFor();
  assert.equal((await content(id, "shared.txt")).toString(), "theirs and mine");
  // Nothing was typed: the newer content takes its place.
  await write("fresh");
  await editor.getByText("fresh").waitFor();
});

test("no open page wakes a sandbox that is paused", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  for (const tab of ["files", "", "commands", "notebook", "ports", "terminal"]) {
    await f.server.ask("POST", `/api/v1/sandboxes/${id}/resume`);
    await page.goto(`/ui/sandboxes/${id}/${tab}`);
    const heading = page.getByRole("heading", { level: 1 });
    await heading.getByText("running").waitFor();
    if (tab === "files") await page.getByRole("region", { name: "Folder" }).waitFor();
    if (tab === "terminal") await page.getByText("attached").waitFor();
    await f.server.ask("POST", `/api/v1/sandboxes/${id}/pause`);
    await heading.getByText("paused").waitFor();
    // Another event of it, after which the page is read again.
    await f.server.ask("PATCH", `/api/v1/sandboxes/${id}`, { labels: { seen: `on-${tab}` } });
    await f.server.ask("POST", `/api/v1/sandboxes/${id}/snapshots`, {});
    await heading.getByText(`seen=on-${tab}`).waitFor();
    // Streams stay open, so the page is never idle; what it asks after an event is asked within this time.
    await page.waitForLoadState("networkidle", { timeout: 2000 }).catch(() => {});
    const { status } = await f.server.ask<{ status: string }>("GET", `/api/v1/sandboxes/${id}`);
    assert.equal(status, "paused", `with /${tab} open`);
  }
});

test("names and content from inside are text", async () => {
  const { id } = await f.server.create();
  const script = `<svg xmlns='http://www.w3.org/2000/svg' onload='pwned(1)'><script>pwned(2)</script><circle r='9'/></svg>`;
  const put = (path: string, body: string) =>
    fetch(`${f.server.url}/api/v1/sandboxes/${id}/files/${encodeURIComponent(path)}`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${KEY}` },
      body,
    });
  const name = `<img src=x onerror=pwned(3)>`;
  await put(`/workspace/${name}`, "<script>pwned(4)</script>");
  await put("/workspace/two\nlines\u202egnp.exe", "x");
  await put("/workspace/picture.svg", script);
  await put("/workspace/values.csv", `name,value\n"<script>pwned(5)</script>",1\n`);
  const { page, faults } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/files`);
  const entries = page.getByRole("list", { name: "Entries" });
  await entries.getByText(name).click();
  await page.getByText("<script>pwned(4)</script>").waitFor();
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/picture.svg`);
  await page.getByRole("img", { name: "picture.svg" }).waitFor();
  await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/values.csv`);
  await page.getByRole("cell", { name: "<script>pwned(5)</script>" }).waitFor();
  assert.deepEqual(faults, []);
});
