// A browser for the figures of the console. Each line of the input names one measurement; its figures are the line of the
// output. Arguments: the folder with playwright-core, the server, its key, a sandbox.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, url, key, sandbox] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/package.json`)("playwright-core");

const signedIn = await fetch(`${url}/ui/session`, {
  method: "POST",
  headers: { "Content-Type": "application/json", "X-Atoll-Console": "1", Origin: url },
  body: JSON.stringify({ key }),
});
if (!signedIn.ok) throw new Error(`signing in: ${signedIn.status} ${await signedIn.text()}`);
const [name, value] = (signedIn.headers.get("set-cookie") ?? "").split(";")[0].split("=");

const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });

/** A page without a cache, with the session. */
async function fresh() {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  await context.addCookies([{ name, value, url, httpOnly: true, sameSite: "Strict" }]);
  return context.newPage();
}

/** Milliseconds until a page shows what is looked for. */
async function shown(page, path, look) {
  const began = performance.now();
  await page.goto(url + path, { waitUntil: "commit" });
  await look(page);
  return performance.now() - began;
}

const FILES = ["document", "script", "stylesheet", "image", "font"];
const row = (page) => page.locator('[data-row="0"]').waitFor();

async function view() {
  const page = await fresh();
  const sizes = [];
  page.on("response", (response) => {
    if (!FILES.includes(response.request().resourceType())) return;
    const sent = response.request().sizes();
    const whole = response.body();
    sizes.push(Promise.all([sent, whole]).then(([{ responseBodySize: body, responseHeadersSize: head }, all]) => [
      body + head,
      all.length + head,
    ]));
  });
  const ms = await shown(page, "/ui/", row);
  const all = await Promise.all(sizes);
  const sum = (at) => all.reduce((before, each) => before + each[at], 0);
  await page.context().close();
  return { ms, bytes: sum(0), plain: sum(1) };
}

/** The page of a server that has nothing to do for it. */
async function blank() {
  const page = await fresh();
  const ms = await shown(page, "/health", (each) => each.locator("body").waitFor());
  await page.context().close();
  return { ms };
}

let terminal;

/** A terminal that says when a key went down and when its echo came. */
async function opened() {
  const page = await fresh();
  await page.addInitScript(() => {
    window.addEventListener("keydown", () => {
      window.pressed = performance.now();
    }, true);
    const Own = window.WebSocket;
    window.WebSocket = class extends Own {
      constructor(...given) {
        super(...given);
        this.addEventListener("message", ({ data }) => {
          if (typeof data !== "string") window.echoed = performance.now();
        });
      }
    };
  });
  await page.goto(`${url}/ui/sandboxes/${sandbox}/terminal`);
  await page.getByText("attached").waitFor();
  await page.keyboard.type("stty raw -echo; printf 'it is '; printf raw; exec cat\n");
  await page.locator(".xterm-accessibility-tree").getByText("it is raw").last().waitFor();
  return page;
}

async function letter() {
  terminal ??= await opened();
  await terminal.evaluate(() => {
    window.echoed = undefined;
  });
  await terminal.keyboard.press("x");
  await terminal.waitForFunction(() => window.echoed !== undefined, undefined, { polling: 5 });
  return { ms: await terminal.evaluate(() => window.echoed - window.pressed) };
}

/** The list, as it shows in a tab that has the console already. */
let tab;
async function list(query) {
  tab ??= await fresh();
  return { ms: await shown(tab, `/ui/sandboxes${query}`, row) };
}

const MEASURED = { view, blank, letter, many: () => list(""), one: () => list(`?q=${sandbox}`) };

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await MEASURED[line]()));
}
await browser.close();
