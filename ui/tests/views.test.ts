// Views that other files do not look at: accessible in both themes, nothing to scroll sideways at 375 px, and the charts.
import { test } from "node:test";
import type { Page } from "playwright-core";
import { accessible, fits, fixture, KEY } from "./harness.ts";

process.env.ATOLL_METRICS_INTERVAL_SECONDS = "1";
const f = fixture();

async function settled(page: Page): Promise<void> {
  await page.locator("h1, [role=alert]").first().waitFor();
  await page.waitForFunction(() => !document.body.textContent?.includes("Loading…"));
}

test("terminal, editor, API reference and unknown pages are no wider than a telephone", async () => {
  const { id } = await f.server.create({ memory_mb: 128 });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "printf '%0200d\\n' 1 > long-name-of-a-file-that-says-what-it-is-about.txt",
  });
  const { page } = await f.tab(KEY, { width: 375, height: 812 });
  await page.goto("/ui/nowhere");
  await settled(page);
  await fits(page);
  const file = "/workspace/long-name-of-a-file-that-says-what-it-is-about.txt";
  await page.goto(`/ui/sandboxes/${id}/files?history=1&path=${file}`);
  await page.getByLabel("Content of long-name").waitFor();
  await page.getByRole("list", { name: "History" }).getByText("printf").waitFor();
  await fits(page);
  await page.goto(`/ui/sandboxes/${id}/terminal`);
  await page.getByText("attached").waitFor();
  await fits(page);
  await page.goto("/docs");
  await page.getByRole("heading", { name: /Atoll/ }).first().waitFor();
  await fits(page);
});

for (const dark of [false, true]) {
  test(`terminal, editor, API reference and unknown pages are accessible, ${dark ? "dark" : "light"}`, async () => {
    const { id } = await f.server.create({ memory_mb: 128 });
    await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
      command: "printf 'import os\\n# a comment\\nprint(\"text\", 12)\\n' > code.py",
    });
    const { page } = await f.tab(KEY, { dark });
    await page.goto(`/ui/sandboxes/${id}/terminal`);
    await page.getByText("attached").waitFor();
    await accessible(page);
    await page.goto(`/ui/sandboxes/${id}/files?path=/workspace/code.py`);
    await page.getByLabel("Content of code.py").waitFor();
    await accessible(page);
    await page.goto("/ui/nowhere");
    await settled(page);
    await accessible(page);
    await page.goto("/docs");
    await page.locator(".opblock-tag").first().waitFor();
    await accessible(page);
  });
}

test("the charts have a mark where a command began", async () => {
  const { id } = await f.server.create({ memory_mb: 128 });
  const samples = async (): Promise<number> =>
    (await f.server.ask<{ history: unknown[] }>("GET", `/api/v1/sandboxes/${id}/metrics`)).history.length;
  const more = async (than: number) => {
    while ((await samples()) <= than) await new Promise((done) => setTimeout(done, 200));
  };
  await more(1);
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "exit 3" });
  await more(await samples());
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}`);
  const chart = page.locator("figure").filter({ hasText: "CPU" }).locator("canvas");
  await chart.waitFor();
  // A command that failed is marked in the colour of what was lost, which nothing else in a chart has.
  await page.waitForFunction(() => {
    const canvas = document.querySelector<HTMLCanvasElement>("figure canvas");
    const paint = document.createElement("canvas").getContext("2d");
    if (!canvas || !paint) return false;
    paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--danger").trim();
    paint.fillRect(0, 0, 1, 1);
    const wanted = paint.getImageData(0, 0, 1, 1).data;
    const all = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    for (let at = 0; at < all.length; at += 4) {
      const near = [0, 1, 2].every((part) => Math.abs((all[at + part] ?? 0) - (wanted[part] ?? 0)) < 40);
      if (near && (all[at + 3] ?? 0) > 100) return true;
    }
    return false;
  });
});
