// The commands of a sandbox: output that streams, read again from a byte, what a command changed, and running it again.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fixture, KEY, seen } from "./harness.ts";

const f = fixture();

test("a command streams, can be read again from any byte, and names its files", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/commands`);
  await page.getByText("No command has run yet").waitFor();
  await page
    .getByLabel("Command", { exact: true })
    .fill("echo first; until test -e go; do sleep 0.1; done; echo second > made.txt; echo last");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  const output = page.getByRole("log", { name: "Output of the command" });
  await output.getByText("first").waitFor();
  // It runs still: what was printed before its end is shown.
  await page.getByRole("button", { name: "End it" }).waitFor();
  assert.equal(await output.textContent(), "first\n");
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/fs/mkdir`, { path: "go" });
  await output.getByText("last").waitFor();
  assert.equal(await output.textContent(), "first\nlast\n");
  await page.getByText("exit 0").waitFor();
  await page.getByRole("link", { name: "made.txt" }).waitFor();
  await seen(page);

  await page.getByLabel("From byte").fill("6");
  await output.getByText(/^last\s*$/).waitFor();

  // The open command is in the address.
  const address = page.url();
  assert.match(address, /exec=[0-9a-f]{32}/);
  await page.reload();
  await output.getByText("last").waitFor();

  await page.getByRole("button", { name: "Run again" }).click();
  await page.waitForURL((url) => url.href !== address);
  await page.getByText("exit 0").nth(1).waitFor();
});

test("a running command is ended, and what is stopped shows from the audit trail", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/commands`);
  await page.getByLabel("Command", { exact: true }).fill("echo kept; exec sleep 1000");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByRole("log").getByText("kept").waitFor();
  await page.getByRole("button", { name: "End it" }).click();
  await page.getByText("killed").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByText("output, as the audit trail keeps it").waitFor();
  await page.getByText("kept", { exact: true }).waitFor();
});

test("the overview has charts with the figures of the server", async () => {
  const { id } = await f.server.create({ memory_mb: 128 });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "sh -c 'exit 3'; exit 4" });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}`);
  await page.getByText("exit 4", { exact: true }).waitFor();
  await page.getByText("CPU 1, 128 MiB memory, 1 GiB disk").waitFor();
  await page.getByText(/of 128 MiB|second sample/).waitFor();
});
