// The list at its size, and the frame: ten thousand records, keyboard, themes, narrow screens, accessibility.
import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { accessible, fits, fixture, KEY } from "./harness.ts";

const f = fixture();

/** Stopped sandboxes as records alone: copies of a real one's row. */
function addRecords(count: number, of: string): void {
  const database = new DatabaseSync(join(f.server.data, "server/atoll.db"));
  const columns = database
    .prepare("SELECT name FROM pragma_table_info('sandboxes') WHERE name <> 'seq'")
    .all();
  const changed: Record<string, string> = {
    id: "randomblob(16)",
    volume: "randomblob(16)",
    container: "NULL",
    status: "'stopped'",
    session_key: "NULL",
    created_at: "created_at - 1000 * n",
    labels: `json_object('number', 'n' || n)`,
    search: "'number=n' || n || ' '",
  };
  const names = columns.map((column) => String(column.name));
  const values = names.map((name) => changed[name] ?? name);
  database.exec("PRAGMA busy_timeout = 10000");
  database.exec(
    `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count})
     INSERT INTO sandboxes (${names}) SELECT ${values} FROM sandboxes, numbers WHERE hex(id) = '${of}'`,
  );
  database.close();
}

test("ten thousand sandboxes are listed, searched and scrolled with a page of rows at a time", async () => {
  const { id } = await f.server.create({ memory_mb: 64 });
  addRecords(10_000, id.replaceAll("-", "").toUpperCase());
  const { page } = await f.tab(KEY);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.getByRole("button", { name: "All 10,001" }).waitFor();
  const grid = page.getByRole("grid", { name: "Sandboxes" });
  assert.equal(await grid.getAttribute("aria-rowcount"), "10002");
  assert((await grid.getByRole("row").count()) < 80, "only rows in view are in the document");
  await grid.locator("..").evaluate((scroller) => scroller.scrollTo({ top: scroller.scrollHeight }));
  await grid.getByText("number=n10000", { exact: true }).waitFor();
  const pages = asked.filter((url) => /admin\/sandboxes\?/.test(url) && !url.includes("search="));
  assert(pages.length <= 8, pages.join("\n"));

  await page.keyboard.press("/");
  await page.keyboard.type("number=n7777");
  await grid.getByText("number=n7777", { exact: true }).waitFor();
  await page.getByText("number=n10000", { exact: true }).waitFor({ state: "detached" });
  assert.match(page.url(), /q=number%3Dn7777/);
  await page.reload();
  await grid.getByText("number=n7777", { exact: true }).waitFor();
  assert.equal(await grid.getAttribute("aria-rowcount"), "2");
});

test("pages are reached by keyboard, and arrow keys move through rows", async () => {
  const { page } = await f.tab(KEY);
  const first = page.locator('[data-row="0"]');
  await first.waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("theme: dark");
  await page.getByRole("option", { name: /Theme: dark/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.locator("html[data-theme=dark]").waitFor();
  await page.reload();
  await page.locator("html[data-theme=dark]").waitFor();
  await first.focus();
  await page.keyboard.press("ArrowDown");
  await page.locator('[data-row="1"]:focus').waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/sandboxes\/[0-9a-f-]{36}/);
});

for (const dark of [false, true]) {
  test(`sign-in, list, form and palette are accessible, ${dark ? "dark" : "light"}`, async () => {
    const { page } = await f.tab(undefined, { dark });
    await page.goto("/ui/");
    await page.getByLabel("Key", { exact: true }).fill(KEY);
    await accessible(page);
    await page.keyboard.press("Enter");
    await page.locator('[data-row="0"]').waitFor();
    await accessible(page);
    await page.goto("/ui/sandboxes?create=1");
    await page.getByLabel("Memory, MiB").waitFor();
    await accessible(page);
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").waitFor();
    await accessible(page);
  });
}

test("a narrow screen shows the list without scrolling sideways, and the pages in a menu", async () => {
  const { page } = await f.tab(KEY, { width: 375, height: 812 });
  await page.locator('[data-row="0"]').waitFor();
  await fits(page);
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("link", { name: "Sandboxes" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor({ state: "hidden" });
});
