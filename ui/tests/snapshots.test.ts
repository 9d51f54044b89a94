// Snapshots: what differs, a rollback that can be undone, a fork; and the audit trail of it all.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, fits, fixture, KEY, seen } from "./harness.ts";

const f = fixture();

test("files go back to a snapshot, and a fork has them too", async () => {
  const { id } = await f.server.create();
  const sh = (command: string, sandbox = id) =>
    f.server.ask<{ stdout: string }>("POST", `/api/v1/sandboxes/${sandbox}/exec`, { command });
  await sh("echo one > notes; echo x > old");
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/snapshots`);
  await page.getByLabel("Label", { exact: true }).fill("good");
  await page.getByRole("button", { name: "Make a snapshot" }).click();
  // The row appears when the snapshot is made: what is written from then on is not in it.
  const snapshot = page.getByRole("list", { name: "Snapshots" }).getByText("good");
  await snapshot.waitFor();
  await sh("echo two > notes; rm old; echo new > new");
  await snapshot.click();
  const changed = page.getByRole("list", { name: "Files that differ" });
  await changed.getByText("/workspace/old").waitFor();
  assert.deepEqual(
    (await changed.getByRole("listitem").allInnerTexts()).map((line) =>
      line.split(/\s+/).slice(0, 3).join(" "),
    ),
    ["+ created /workspace/new", "~ modified /workspace/notes", "− deleted /workspace/old"],
  );
  // The commands of the page, and what is compared, which is in the address.
  await page
    .getByRole("list", { name: "Snapshots" })
    .getByRole("button", { name: "Copy as" })
    .first()
    .click();
  await page.getByRole("menuitem", { name: "Roll back: CLI" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const [made] = (await f.server.ask<{ items: { id: string }[] }>("GET", `/api/v1/sandboxes/${id}/snapshots`))
    .items;
  assert.equal(command, `atoll snapshot rollback ${id} ${made?.id}`);
  await page.getByRole("button", { name: "Make a snapshot" }).click();
  await page.getByLabel("Compare with").getByRole("option").nth(1).waitFor({ state: "attached" });
  await page.getByLabel("Compare with").selectOption({ index: 1 });
  await page.waitForURL(/to=/);
  await page.reload();
  await changed.getByText("/workspace/old").waitFor();
  await seen(page);

  await page.getByRole("button", { name: "Roll back to it" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Roll back" }).click();
  await page.getByText("The files are what they were").waitFor();
  await page.getByText("before a rollback").waitFor();
  assert.equal((await sh("cat notes; ls")).stdout, "one\nnotes\nold\n");

  await page.getByRole("button", { name: "Fork from it" }).click();
  await page.waitForURL((url) => !url.pathname.includes(id));
  const fork = page.url().split("/").at(-1) ?? "";
  assert.equal((await sh("cat notes", fork)).stdout, "one\n");

  // Each of them says what it is to the other, and a fork of the fork is below it.
  const { id: third } = await f.server.ask<{ id: string }>("POST", `/api/v1/sandboxes/${fork}/fork`, {});
  await page.goto(`/ui/sandboxes/${fork}/snapshots`);
  await page
    .getByRole("paragraph")
    .filter({ hasText: "forked from" })
    .getByRole("link", { name: id.slice(0, 8) })
    .waitFor();
  await page.goto(`/ui/sandboxes/${id}/snapshots`);
  const forks = page.getByRole("list", { name: "Forks" });
  await forks.getByRole("button", { name: `Forks of ${fork.slice(0, 8)}` }).click();
  await forks.getByRole("link", { name: third.slice(0, 8) }).waitFor();

  await page.goto(`/ui/sandboxes/${id}/audit`);
  await page.getByRole("button", { name: /ok snapshot\.rollback/ }).click();
  await page.getByText("By way of").waitFor();
  await seen(page);
});

test("every part of a sandbox's page is accessible in both themes and fits a phone", async () => {
  const { id } = await f.server.create({ labels: { team: "research" } });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "echo hello; exit 2" });
  for (const dark of [false, true]) {
    const { page } = await f.tab(KEY, dark ? { dark, width: 375, height: 812 } : {});
    for (const part of [
      "",
      "commands",
      "files",
      "notebook",
      "network",
      "ports",
      "snapshots",
      "skills",
      "audit",
    ]) {
      await page.goto(`/ui/sandboxes/${id}/${part}`);
      await page.getByRole("navigation", { name: "Parts of the sandbox" }).waitFor();
      await page.locator("main [role=status]").filter({ hasText: "Loading" }).waitFor({ state: "detached" });
      await accessible(page);
      if (dark) await fits(page);
    }
  }
});
