// What a sandbox may reach: a refused host is allowed with one click, under the command that asked for it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fixture, KEY, seen } from "./harness.ts";

const f = fixture();

interface Info {
  policy: { mode?: string; allow?: unknown[] };
}

test("a refusal shows under its command and is allowed with one click", async () => {
  const { id } = await f.server.create();
  await f.server.ask("PUT", `/api/v1/sandboxes/${id}/egress`, {
    mode: "allowlist",
    allow: ["known.invalid"],
  });
  const ask = () =>
    f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
      command: "curl -s --max-time 5 http://wanted.invalid:8080/path",
    });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/network`);
  await page.getByText("It has asked for nothing").waitFor();
  await ask();
  // The page hears of it by itself.
  await page.getByRole("link", { name: /curl -s .*wanted\.invalid/ }).waitFor();
  await page.locator("span").getByText("refused", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Allow wanted.invalid:8080" }).click();
  await page.getByText("wanted.invalid:8080 is allowed from now on").waitFor();
  const { policy } = await f.server.ask<Info>("GET", `/api/v1/sandboxes/${id}/egress`);
  assert.deepEqual(policy.allow, ["known.invalid", "wanted.invalid:8080"]);
  await ask();
  await page.locator("span").getByText("allowed", { exact: true }).waitFor();
  await seen(page);
});

test("the policy is changed in the form, and a wrong entry says so", async () => {
  const { id } = await f.server.create();
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/network`);
  await page.getByLabel("Mode").selectOption("allowlist");
  await page.getByLabel("Allow", { exact: true }).fill("not a host!");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("The policy was not changed").waitFor();
  await page.getByLabel("Allow", { exact: true }).fill("api.example.com\n*.example.org:443");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("The policy is in force").waitFor();
  const { policy } = await f.server.ask<Info>("GET", `/api/v1/sandboxes/${id}/egress`);
  assert.equal(policy.mode, "allowlist");
  assert.deepEqual(policy.allow, ["api.example.com", "*.example.org:443"]);
  await page.locator("form").getByRole("button", { name: "Copy as" }).click();
  await page.getByRole("menuitem", { name: "CLI" }).click();
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    `atoll egress set ${id} --mode allowlist --allow api.example.com --allow '*.example.org:443'`,
  );
});

test("a port has a preview link that opens the page until it is revoked", async () => {
  const { id } = await f.server.create();
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, { command: "echo served > page.txt" });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "exec python3 -m http.server 8000",
    background: true,
  });
  await f.server.ask("POST", `/api/v1/sandboxes/${id}/exec`, {
    command: "until curl -sf --noproxy '*' http://127.0.0.1:8000/ >/dev/null; do sleep 0.1; done",
  });
  const { page } = await f.tab(KEY);
  await page.goto(`/ui/sandboxes/${id}/ports`);
  await page.getByRole("button", { name: "Make a preview link" }).click();
  const link = await page.getByRole("link", { name: "Open" }).getAttribute("href");
  assert(link);
  const opened = await page.context().newPage();
  await opened.goto(link);
  await opened.getByRole("link", { name: "page.txt" }).waitFor();
  await seen(page);
  // The page that is made anew has the link in its list, and no address of it; revoked, it opens nothing.
  await page.reload();
  const links = page.getByRole("list", { name: "Preview links" });
  await links.getByText("8000").waitFor();
  assert.equal(await page.getByRole("link", { name: "Open" }).count(), 0);
  await page.getByRole("button", { name: /^Revoke the link/ }).click();
  await links.waitFor({ state: "detached" });
  const refused = await opened.reload();
  assert.equal(refused?.status(), 401);
});
