// The notebook: a cell with a picture, variables, checkpoints, an interrupt, and results that attack.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { fixture, KEY, seen } from "./harness.ts";

const f = fixture();

const PICTURE = `import base64
class Picture:
    def _repr_png_(self):
        return base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
n = 41
print("before the picture")
Picture()`;

const HOSTILE = `class Hostile:
    def _repr_html_(self):
        return "<b onclick=pwned(1)>shown</b><script>pwned(2)</script><style>b{color:red}</style><img src=x onerror=pwned(3)><iframe srcdoc='<script>parent.pwned(4)</script>'></iframe><a href='javascript:pwned(5)'>a</a><form action=/x><input></form><meta http-equiv=refresh content='0;url=/'><base href=//x>"
Hostile()`;

async function open(id: string): Promise<{ page: Page; faults: string[] }> {
  const tab = await f.tab(KEY);
  await tab.page.goto(`/ui/sandboxes/${id}/notebook`);
  await tab.page.getByRole("button", { name: "Start a kernel" }).click();
  await tab.page.getByLabel("Kernel", { exact: true }).waitFor();
  return tab;
}

/** Types a cell into the last place and runs it. Returns its result. */
async function run(page: Page, code: string) {
  const cells = page.getByRole("region", { name: "Cell" });
  const at = (await cells.count()) - 1;
  const cell = cells.nth(at);
  await cell.getByLabel("Code of the cell").click();
  await page.keyboard.insertText(code);
  await page.keyboard.press("Shift+Enter");
  return cell.getByRole("log", { name: "Result of the cell" });
}

test("a cell shows text and a picture; variables go back to a checkpoint", async () => {
  const { id } = await f.server.create();
  const { page } = await open(id);
  const result = await run(page, PICTURE);
  await result.getByText("before the picture").waitFor();
  const picture = result.getByRole("img", { name: "A picture of a result" });
  await picture.waitFor();
  assert.equal(await picture.evaluate((image: HTMLImageElement) => image.naturalWidth), 1);

  await page.getByLabel("Name of the checkpoint").fill("forty-one");
  await page.getByRole("button", { name: "Keep", exact: true }).click();
  const checkpoint = page.getByRole("list", { name: "Checkpoints" }).getByText("forty-one");
  await checkpoint.waitFor();
  await (await run(page, "n += 1; n")).getByText("42").waitFor();
  await page.getByRole("button", { name: "Roll back" }).click();
  await page.getByText("The variables are what they were").waitFor();
  await (await run(page, "n")).getByText("41").waitFor();
  await page.getByRole("button", { name: "Look", exact: true }).click();
  await page.getByRole("row", { name: "n int 41" }).waitFor();
  // A fork of the checkpoint is another kernel, whose variables are its own.
  const kernel = page.getByLabel("Kernel", { exact: true });
  const before = await kernel.inputValue();
  await page.getByRole("list", { name: "Checkpoints" }).getByRole("button", { name: "Fork" }).click();
  await page.waitForFunction((old) => !location.search.includes(old), before);
  await page.waitForURL(/kernel=/);
  await (await run(page, "n = n * 100; n")).getByText("4100").waitFor();
  // The same cell at a terminal, as the page writes it.
  const cell = page.getByRole("region", { name: "Cell" }).filter({ hasText: "n * 100" });
  await cell.getByRole("button", { name: "Copy as" }).click();
  await page.getByRole("menuitem", { name: "CLI" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, new RegExp(`^atoll run-code ${id} --kernel [0-9a-f-]+ -- 'n = n \\* 100; n'$`));
  await kernel.selectOption(before);
  await (await run(page, "n + 1")).getByText("42").waitFor();
  await seen(page);
});

test("a cell that does not end is interrupted, and an error shows where it was", async () => {
  const { id } = await f.server.create();
  const { page } = await open(id);
  const result = await run(page, "print('begun', flush=True)\nwhile True: pass");
  await result.getByText("begun").waitFor();
  await page.getByRole("button", { name: "Interrupt" }).click();
  await result.getByText("interrupted").waitFor();
  await (await run(page, "1 / 0")).getByText("ZeroDivisionError").waitFor();
});

test("HTML of a result runs nothing and asks for nothing", async () => {
  const { id } = await f.server.create();
  const { page, faults } = await open(id);
  const result = await run(page, HOSTILE);
  const frame = result.frameLocator("iframe");
  await frame.getByText("shown").click();
  assert.equal(await frame.locator("script, iframe, form, [onclick], [href], [src]").count(), 0);
  assert.equal(await result.locator("iframe").getAttribute("sandbox"), "");
  assert.deepEqual(faults, []);
});
