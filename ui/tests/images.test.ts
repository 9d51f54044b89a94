// Images: an archive is imported, a Dockerfile is built under the eyes of the page, a failure says why.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Page } from "playwright-core";
import { fixture, KEY, seen } from "./harness.ts";
import { startRegistry } from "./registry.ts";

const registry = await startRegistry();
process.env.ATOLL_IMAGES_INSECURE_REGISTRIES = registry.address;
const f = fixture();
after(() => registry.stop());

/** A root filesystem of a static busybox alone, as an archive. */
function rootArchive(folder: string): string {
  mkdirSync(join(folder, "root/bin"), { recursive: true });
  copyFileSync("/usr/bin/busybox", join(folder, "root/bin/sh"));
  const archive = join(folder, "root.tar");
  execFileSync("tar", ["-C", join(folder, "root"), "-cf", archive, "."]);
  return archive;
}

async function importArchive(page: Page, name: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "atoll-ui-image-"));
  try {
    await page.goto("/ui/images?add=import");
    await page.getByLabel("Archive", { exact: true }).setInputFiles(rootArchive(folder));
    await page.getByLabel("Name", { exact: true }).fill(name);
    await page.getByLabel("Disk in MiB").fill("64");
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByRole("complementary", { name: `The image ${name}:latest` }).waitFor();
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function build(page: Page, name: string, dockerfile: string): Promise<void> {
  await page.goto("/ui/images");
  await page.getByRole("button", { name: "Add an image" }).click();
  await page.getByRole("menuitem", { name: "Build from a Dockerfile" }).click();
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByRole("textbox", { name: "Dockerfile" }).fill(dockerfile);
  await page.getByLabel("Disk in MiB").fill("64");
  await page.getByRole("button", { name: "Build", exact: true }).click();
  await page.waitForURL("**/ui/images/builds?build=*");
}

test("an archive is imported, a Dockerfile is built of it, and the image is approved and removed", async () => {
  const { page } = await f.tab(KEY);
  await importArchive(page, "box");
  await seen(page);

  const step = "echo '\\033]0;pwned\\007<img src=x onerror=pwned(1)>'";
  await build(page, "hello", `FROM box\nRUN ${step}\nENV A=1\n`);
  const log = page.getByRole("log", { name: "Log of the build" });
  await log.getByText("hello:latest is ready").waitFor();
  await log.getByText("<img src=x onerror=pwned(1)>").first().waitFor();
  const built = page.getByRole("complementary", { name: "Build of hello:latest" });
  await built.getByText("done", { exact: true }).waitFor();
  await seen(page);

  // What the page shows is what the server has.
  const { status } = await f.server.ask<{ status: string }>(
    "GET",
    `/api/v1/sandbox-images/builds/${new URL(page.url()).searchParams.get("build")}`,
  );
  assert.equal(status, "done");
  await page.getByRole("link", { name: "hello:latest" }).click();
  const panel = page.getByRole("complementary", { name: "The image hello:latest" });
  await panel.getByText("A=1").waitFor();
  await panel.getByRole("button", { name: "Approve" }).click();
  await panel.getByRole("button", { name: "Take the approval back" }).waitFor();
  await panel.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Remove" }).click();
  await page.getByRole("grid", { name: "Images" }).getByText("hello:latest").waitFor({ state: "detached" });
});

test("an image is chosen by its tag, found by each of its names, and refused with the server's reason", async () => {
  const { page } = await f.tab(KEY);
  await importArchive(page, "tagged");
  // Another tag than latest: its name alone is no image.
  const image = await f.server.ask<{ id: string }>("PATCH", "/api/v1/sandbox-images/tagged", {
    tags: ["1.0"],
  });
  await page.goto("/ui/sandboxes?create=1");
  const form = page.getByRole("form", { name: "Create a sandbox" });
  await form.getByLabel("Image").selectOption("tagged:1.0");
  await form.getByLabel("Memory, MiB").fill("64");
  await form.getByRole("button", { name: "Create sandbox" }).click();
  await page.waitForURL(/\/sandboxes\/[0-9a-f-]{36}/);
  await f.server.create({ image: image.id, memory_mb: 64 });
  await f.server.create({ memory_mb: 64 });
  await page.goto("/ui/sandboxes");
  await page.getByRole("button", { name: "All 3" }).waitFor();
  await page.getByLabel("Image", { exact: true }).selectOption("tagged:1.0");
  await page.getByRole("button", { name: "All 2" }).waitFor();

  const key = await f.server.key("ann");
  await f.server.ask("PATCH", "/api/v1/settings/sandbox", { atoll: { images: { require_approved: true } } });
  const { page: hers } = await f.tab(key);
  await hers.goto("/ui/sandboxes?create=1");
  await hers.getByLabel("Image", { exact: true }).first().selectOption("tagged:1.0");
  await hers
    .getByText("tagged:1.0 is not approved, and the setting images.require_approved asks for that")
    .waitFor();
  await hers.getByRole("button", { name: "Create sandbox" }).click();
  await hers.getByText("The sandbox was not made").waitFor();
});

test("an image is pushed to a registry and exported as an archive", async () => {
  const { page } = await f.tab(KEY);
  await importArchive(page, "sent");
  const panel = page.getByRole("complementary", { name: "The image sent:latest" });
  const waits = page.waitForEvent("download");
  await panel.getByRole("link", { name: "Export" }).click();
  const download = await waits;
  assert.match(execFileSync("tar", ["-tf", await download.path()]).toString(), /index\.json/);

  await panel.getByText("Push to a registry").click();
  await panel.getByLabel("To", { exact: true }).fill(`127.0.0.1:1/team/sent:2`);
  await panel.getByRole("button", { name: "Push", exact: true }).click();
  await panel.getByText("The image was not pushed").waitFor();
  await panel.getByLabel("To", { exact: true }).fill(`${registry.address}/team/sent:2`);
  await panel.getByRole("button", { name: "Push", exact: true }).click();
  await panel.getByText("The registry has it").waitFor();
  assert.deepEqual([...registry.tags.keys()], ["team/sent:2"]);
  const digest = createHash("sha256")
    .update(registry.tags.get("team/sent:2") ?? "")
    .digest("hex");
  await panel.getByText(`sha256:${digest}`).first().waitFor();
  await seen(page);
});

test("a build that fails says why; the log of one that runs streams, and it can be cancelled", async () => {
  const { page } = await f.tab(KEY);
  await importArchive(page, "tiny");
  await build(page, "broken", "FROM tiny\nRUN echo before; exit 7\n");
  const panel = page.getByRole("complementary", { name: "Build of broken:latest" });
  await panel.getByText("failed", { exact: true }).waitFor();
  await panel.getByText("ended with exit code 7").first().waitFor();
  await panel.getByRole("log").getByText("before").first().waitFor();

  // The step does not end by itself, so what it printed can only be there while it runs.
  await build(page, "endless", "FROM tiny\nRUN echo stre''ams; sleep 600\n");
  const running = page.getByRole("complementary", { name: "Build of endless:latest" });
  await running.getByRole("log").getByText("streams").waitFor();
  await running.getByRole("button", { name: "Cancel the build" }).click();
  await running.getByText("cancelled", { exact: true }).waitFor();
  const { items } = await f.server.ask<{ items: { name: string }[] }>("GET", "/api/v1/sandbox-images");
  assert(!items.some((image) => image.name === "endless" || image.name === "broken"));
});

test("the catalogue offers every template, and a build of one is asked for with one click", async () => {
  const { templates } = await f.server.ask<{ templates: { name: string }[] }>(
    "GET",
    "/api/v1/sandbox-images/templates",
  );
  const { page } = await f.tab(KEY);
  await page.goto("/ui/images/catalogue");
  for (const { name } of templates) await page.getByRole("heading", { name, exact: true }).waitFor();
  await page.getByLabel("Search the packages").fill("pandas");
  await page.getByText("Tables and time series").waitFor();
  await seen(page);
  await page.getByRole("button", { name: "Build", exact: true }).first().click();
  await page.waitForURL("**/ui/images/builds?build=*");
  await page.getByRole("button", { name: "Cancel the build" }).click();
  await page.getByRole("complementary").getByText("cancelled", { exact: true }).waitFor();
});
