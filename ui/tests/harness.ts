// The harness of the browser tests: a real server with real sandboxes, and Debian's chromium. Each test file starts a
// server of its own on a data folder of its own and ends it with all that it made, also when a test fails.
//
// ATOLL_BIN names the program. A page that violates the Content-Security-Policy, or runs a script that came from inside a
// sandbox (it would call `pwned`), fails the test that opened it.
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { promisify } from "node:util";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

const run = promisify(execFile);
export const PROGRAM = process.env.ATOLL_BIN ?? join(import.meta.dirname, "../../target/debug/atoll");

/** The first key of every test's server. */
export const KEY = "bootstrap-key-of-a-test";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((done) => probe.listen(0, "127.0.0.1", done));
  const address = probe.address();
  await new Promise((done) => probe.close(done));
  assert(address && typeof address === "object");
  return address.port;
}

export class Server {
  private child: ChildProcess | undefined;
  readonly url: string;
  readonly data: string;
  private readonly listen: string;
  private readonly options: string[];

  private constructor(listen: string, data: string, options: string[]) {
    this.url = `http://${listen}`;
    this.data = data;
    this.listen = listen;
    this.options = options;
  }

  static async start(...options: string[]): Promise<Server> {
    const listen = `127.0.0.1:${await freePort()}`;
    const data = await mkdtemp(join(tmpdir(), "atoll-ui-"));
    // The server becomes an ordinary user.
    await chmod(data, 0o755);
    const server = new Server(listen, data, options);
    await server.up();
    return server;
  }

  /** Starts the program and waits until it listens. */
  async up(): Promise<void> {
    const args = ["serve", "--listen", this.listen, "--data-dir", this.data, ...this.options];
    const env = {
      ...process.env,
      ATOLL_BOOTSTRAP_KEY: KEY,
      ATOLL_SETTINGS_WARM_POOL_ENABLED: "false",
      ATOLL_EGRESS_ASK_INDEXES: "false",
      ATOLL_GRPC_LISTEN: "",
      ATOLL_LOG: "warn",
    };
    const child = spawn(PROGRAM, args, { env, stdio: ["ignore", "pipe", "inherit"] });
    this.child = child;
    await new Promise<void>((done, failed) => {
      child.stdout?.once("data", () => done());
      child.once("exit", (code) => failed(new Error(`the server ended with ${code}`)));
    });
  }

  /** Kills it as a power cut would. */
  async kill(): Promise<void> {
    const ended = new Promise((done) => this.child?.once("exit", done));
    this.child?.kill("SIGKILL");
    await ended;
  }

  /** Ends it with its sandboxes and its data. */
  async end(): Promise<void> {
    await run(PROGRAM, ["down", "--purge", "--data-dir", this.data]).catch((error) => console.error(error));
    await rm(this.data, { recursive: true, force: true });
  }

  /** A request of a program. */
  async ask<T>(method: string, path: string, body?: unknown, key = KEY): Promise<T> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { Authorization: `Bearer ${key}` },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    assert(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as T;
  }

  create(body: Record<string, unknown> = {}, key = KEY): Promise<{ id: string }> {
    return this.ask("POST", "/api/v1/sandboxes", body, key);
  }

  /** A key of another owner. */
  async key(owner: string, scope = "user"): Promise<string> {
    const made = await this.ask<{ key: string }>("POST", "/api/v1/keys", { name: owner, owner, scope });
    return made.key;
  }
}

/** A page and what went wrong on it. */
export interface Tab {
  page: Page;
  context: BrowserContext;
  /** Violations of the policy, and scripts that ran and must not. */
  faults: string[];
}

export interface Fixture {
  server: Server;
  browser: Browser;
  /** A browser of its own that is signed in with a key; of a server without keys, with none. */
  tab: (key?: string, options?: { dark?: boolean; width?: number; height?: number }) => Promise<Tab>;
}

/** One server and one browser for the tests of a file. */
export function fixture(...options: string[]): Fixture {
  const all: Partial<Fixture> = {};
  const tabs: Tab[] = [];
  before(async () => {
    all.server = await Server.start(...options);
    all.browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  });
  after(async () => {
    await all.browser?.close();
    await all.server?.end();
    assert.deepEqual(
      tabs.flatMap((tab) => tab.faults),
      [],
    );
  });
  all.tab = async (key, { dark = false, width = 1440, height = 900 } = {}) => {
    const { server, browser } = all as Fixture;
    const context = await browser.newContext({
      baseURL: server.url,
      colorScheme: dark ? "dark" : "light",
      viewport: { width, height },
      permissions: ["clipboard-read", "clipboard-write"],
    });
    context.setDefaultTimeout(30_000);
    const page = await context.newPage();
    const tab: Tab = { page, context, faults: [] };
    tabs.push(tab);
    await page.exposeFunction("pwned", (what: unknown) => tab.faults.push(`a script ran: ${what}`));
    page.on("dialog", (dialog) => {
      tab.faults.push(`a dialog opened: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      if (/Content.Security.Policy/i.test(message.text())) tab.faults.push(message.text());
    });
    page.on("pageerror", (error) => tab.faults.push(`an error on the page: ${error.stack ?? error}`));
    if (key) await signIn(page, key);
    return tab;
  };
  return all as Fixture;
}

export async function signIn(page: Page, key: string): Promise<void> {
  await page.goto("/ui/");
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("#main").waitFor();
}

/** Fails where axe-core finds something serious or critical on the page as it is. */
export async function accessible(page: Page): Promise<void> {
  const source = await readFile(join(import.meta.dirname, "../node_modules/axe-core/axe.min.js"), "utf8");
  // The policy keeps a script element out; an evaluation comes from the debugger.
  await page.evaluate(source);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations;
  });
  const serious = found.filter((one) => one.impact === "serious" || one.impact === "critical");
  const said = serious.map(
    (one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`,
  );
  assert.deepEqual(said, [], page.url());
}

/** Fails where something is wider than the page as it is: what must be scrolled sideways to be read, and controls beyond the edge.
 * Code, terminals, tables of values and rows of tabs scroll by themselves. */
export async function fits(page: Page): Promise<void> {
  const wide = await page.evaluate(async () => {
    // What follows the size of the window is there after the second frame.
    for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
    const own =
      "pre, textarea, .cm-scroller, .xterm, [role=region][tabindex='0'], nav[aria-label^='Parts of']";
    const scrolls = (element: Element) =>
      element === document.documentElement || /auto|scroll/.test(getComputedStyle(element).overflowX);
    const cut = (element: Element) => {
      const { right, width } = element.getBoundingClientRect();
      return element.matches("button, input, select") && width > 1 && right > innerWidth + 1;
    };
    return [...document.querySelectorAll("*")]
      .filter((element) => !element.closest(own) && element.checkVisibility())
      .filter(
        (element) => (scrolls(element) && element.scrollWidth > element.clientWidth + 1) || cut(element),
      )
      .map((element) => element.outerHTML.slice(0, 160));
  });
  assert.deepEqual(wide, [], `${page.url()} at ${page.viewportSize()?.width} px`);
}

/** Looks at the page as it is: accessible in both themes, and nothing too wide on a telephone. */
export async function seen(page: Page): Promise<void> {
  const size = page.viewportSize();
  assert(size);
  for (const colorScheme of ["dark", "light"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await accessible(page);
  }
  await page.setViewportSize({ width: 375, height: size.height });
  await fits(page);
  await page.setViewportSize(size);
}

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string }[];
}
