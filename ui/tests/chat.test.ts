// The chat: a scripted model, real sandboxes. Conversations that stream, approvals, cancelling, forks, files,
// settings, a reload and a killed server in the middle of a run, and text that attacks.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import type { Locator, Page } from "playwright-core";
import { accessible, fits, fixture, KEY, Server } from "./harness.ts";
import { code, LOCKED, type Script, startModel, terminal, works } from "./model.ts";

/** Begins at once and ends when the file `go` is there. */
const WAITS = "echo begun; until test -e go; do sleep 0.1; done; echo made > made.txt; echo ended";
const PROVIDER_KEY = "sk-of-a-test-0123456789";

const HOSTILE_TEXT = `Hello <b onclick="pwned(1)">bold</b> <script>pwned(2)</script>
<img src=x onerror="pwned(3)"><svg onload="pwned(4)"><iframe srcdoc="<script>parent.pwned(5)</script>"></iframe>

[run](javascript:pwned(6)) [data](data:text/html,<script>pwned(7)</script>) [mixed](JaVaScRiPt:pwned(8))
[relative](/api/v1/keys) [good](https://example.org/a?b=1) <javascript:pwned(9)> ![seen](http://127.0.0.1:9/pixel.png "x")

| <script>pwned(10)</script> | [x](vbscript:pwned(11)) |
|---|---|
| <style>*{display:none}</style> | \u202egnp.exe |

\`\`\`html"><script>pwned(12)</script>
<script>pwned(13)</script>
\`\`\`
${"> ".repeat(3000)}deep

the end of the text`;

const HOSTILE_CODE = `import sys
class Html:
    def _repr_html_(self):
        return "<b onclick=pwned(20)>shown</b><script>pwned(21)</script><img src=x onerror=pwned(22)><a href='javascript:pwned(23)'>a</a><meta http-equiv=refresh content='0;url=/'>"
class Svg:
    def _repr_svg_(self):
        return "<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10' onload='pwned(24)'><script>pwned(25)</script></svg>"
class Png:
    def _repr_mimebundle_(self, **_):
        return {"image/png": "%%% no base64 <script>pwned(26)</script>"}
display(Html(), Svg(), Png())
print("<script>pwned(27)</script>\\x1b]0;title\\x07\\x1b[2J", file=sys.stderr)
raise ValueError("<img src=x onerror=pwned(28)>")`;

/** A terminal would show `echo hi` alone. */
const HIDDEN = "echo hi \u001b]0; ; echo hidden > hidden.txt \u0007\u200b\r# \u202etxt.exe";
const HIDDEN_SHOWN =
  "echo hi \u241b]0; ; echo hidden > hidden.txt \u2407\u2039U+200B\u203a\u240d# \u2039U+202E\u203atxt.exe";
let failures = 0;

const NAME = "<img src=x onerror=pwned(30)>.txt";

const PICTURE = `import base64
class Picture:
    def _repr_png_(self):
        return base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
Picture()`;

const refusable: Script = (turn) => {
  if (turn.results.at(-1)?.includes("refused")) return { content: "As you wish." };
  return works([terminal("echo as asked")], { content: "It is done." })(turn);
};

const model = await startModel(
  {
    "wait for it": works([terminal(WAITS)], { content: "It **ended**.", reasoning: "I looked on." }),
    "reach out": works([terminal("curl -s --max-time 5 http://wanted.invalid:8080/path; true")], {
      content: "It may not.",
    }),
    "with care": refusable,
    "two at once": ({ results }) =>
      results.length === 0
        ? { calls: [1, 2].map(() => ({ name: "create_session", args: { language: "python" } })) }
        : { content: "Two were asked for." },
    hostile: works(
      [
        code(HOSTILE_CODE),
        (session) => ({
          content: HOSTILE_TEXT,
          calls: [
            { name: "<script>pwned(40)</script>", args: { "<b>": "<script>pwned(41)</script>" } },
            { name: "constructor", args: { code: "x" } },
            { name: "execute_terminal", args: { session_id: session, command: `echo x > '${NAME}'` } },
          ],
        }),
      ],
      { content: "[end](javascript:pwned(50))", reasoning: "<script>pwned(51)</script>" },
    ),
    picture: works([code(PICTURE)], { content: "That is the picture." }),
    "import it": works(
      [
        (session) => ({
          calls: [{ name: "import_files", args: { session_id: session, files: [{ source: "up.bin" }] } }],
        }),
        (session) => ({
          calls: [{ name: "export_files", args: { session_id: session, files: [{ source: "up.bin" }] } }],
        }),
      ],
      { content: "There it is." },
    ),
    "something hidden": works([terminal(HIDDEN)], { content: "It is done." }),
    "fails once": () => {
      failures += 1;
      if (failures <= 3) return { error: { status: 400, message: "the provider has no such model" } };
      return { content: "Now it works." };
    },
    "first words": () => ({ content: "An answer to the first words." }),
    "other words": () => ({ content: "An answer to other words." }),
  },
  { slowly: () => ({ content: "word ".repeat(200) }) },
);
process.env.CHAT_MODEL = "gpt-4o";
process.env.CHAT_MODEL_PROVIDER = "openai";
process.env.CHAT_MODEL_BASE_URL = `${model.url}/v1`;
process.env.CHAT_MODEL_API_KEY = PROVIDER_KEY;
// The script counts results since the person's last words; pictures for the model would stand between them.
process.env.CHAT_MODEL_SUPPORTS_VISION = "false";

const f = fixture();
after(() => model.stop());

/** Says something; without a conversation it begins one. */
async function say(page: Page, text: string): Promise<void> {
  if (!page.url().includes("/ui/chat")) await page.goto("/ui/chat");
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/ui/chat/*");
}

const log = (page: Page) => page.getByRole("log", { name: "Conversation" });
const block = (page: Page, title: string): Locator => page.getByRole("region", { name: title, exact: true });
const row = (page: Page, title: string | RegExp) =>
  page.getByRole("complementary", { name: "Conversations" }).getByRole("listitem").filter({ hasText: title });

/** The sandbox of the conversation that is open. */
async function sandboxOf(page: Page, key = KEY): Promise<string> {
  const thread = new URL(page.url()).pathname.split("/").at(-1);
  const path = `/api/v1/sandboxes?labels=${encodeURIComponent(`atoll.thread=${thread}`)}`;
  const { items } = await f.server.ask<{ items: { id: string }[] }>("GET", path, undefined, key);
  assert(items[0], "the conversation has a sandbox");
  return items[0].id;
}

const go = async (page: Page, key = KEY) =>
  f.server.ask("POST", `/api/v1/sandboxes/${await sandboxOf(page, key)}/fs/mkdir`, { path: "go" }, key);

async function ask(page: Page, before: string): Promise<void> {
  await page.goto("/ui/chat?settings=1");
  await page.getByLabel("Ask me before").selectOption(before);
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("The settings are saved").waitFor();
}

test("an answer streams, a tool prints while it runs, and leads to what it did", async () => {
  const { page } = await f.tab(KEY);
  await page.getByRole("link", { name: "Chat" }).click();
  await page.getByText("Ask the agent for something").waitFor();
  await say(page, "Please wait for it");
  const run = block(page, "Run a command");
  const output = run.getByRole("log", { name: "Output of the tool" });
  await output.getByText("begun").waitFor();
  // It runs still: what was printed before its end is shown.
  await run.getByText("runs", { exact: true }).waitFor();
  assert.equal(await output.textContent(), "begun\n");
  await row(page, /wait for it/)
    .getByText("at work")
    .waitFor();
  await go(page);
  await log(page).locator("strong").getByText("ended").waitFor();
  await run.getByText("exit 0").waitFor();
  assert.equal(await output.textContent(), "begun\nended\n");
  assert.equal(await log(page).getByText("I looked on.").count(), 0, "thoughts are folded");
  await log(page).getByRole("button", { name: "Thought" }).click();
  await log(page).getByText("I looked on.").waitFor();
  await row(page, /wait for it/)
    .getByText("at work")
    .waitFor({ state: "detached" });

  await run.getByRole("button", { name: "Files, network, audit" }).click();
  await run.getByRole("link", { name: "made.txt" }).waitFor();
  await run.getByText("It asked nothing of the network").waitFor();
  await run.getByRole("link", { name: "audit row" }).click();
  await page
    .getByRole("complementary", { name: "The operation exec" })
    .getByText("until test -e go")
    .waitFor();
  await page.goBack();
  await run.getByRole("link", { name: "command" }).click();
  await page.getByRole("log", { name: "Output of the command" }).getByText("ended").waitFor();
});

test("what a tool asked of the network shows with it, and a picture inline", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "Please reach out");
  await log(page).getByText("It may not.").waitFor();
  const run = block(page, "Run a command");
  await run.getByRole("button", { name: "Files, network, audit" }).click();
  await run.getByText("refused", { exact: true }).waitFor();
  await run.getByRole("button", { name: "Allow wanted.invalid:8080" }).waitFor();
  await run.getByRole("link", { name: "network of the sandbox" }).click();
  await page.getByText("GET wanted.invalid:8080/path").waitFor();

  await page.goto("/ui/chat");
  await say(page, "Show a picture");
  const picture = block(page, "Run code").getByRole("img", { name: "A picture of a result" });
  await picture.waitFor();
  assert.equal(await picture.evaluate((image: HTMLImageElement) => image.naturalWidth), 1);
  // It is kept with the conversation.
  await page.reload();
  await picture.waitFor();
  assert.equal(await picture.evaluate((image: HTMLImageElement) => image.naturalWidth), 1);
  // The language of the code is that of its session.
  await block(page, "Run code").locator("code .text-accent-text").getByText("import").waitFor();
});

test("a call waits for approval: it is refused, changed, or carried out", async () => {
  const key = await f.server.key("cleo");
  const { page } = await f.tab(key);
  await ask(page, "all");
  await say(page, "With care, with care: go on");
  await say(page, "with care");
  const made = block(page, "Make a session");
  await made.getByText("Waits for your word").waitFor();
  await row(page, /care/).getByText("waits for you").waitFor();
  // It still waits after a reload.
  await page.reload();
  await made.getByLabel("Why it is refused").fill("not today");
  await made.getByRole("button", { name: "Refuse" }).click();
  await log(page).getByText("As you wish.").waitFor();
  await made.getByText("the person refused this call: not today").waitFor();
  assert.equal(
    (await f.server.ask<{ total: number }>("GET", "/api/v1/sandboxes", undefined, key)).total,
    0,
    "a call that was refused is not carried out",
  );

  await page.goto("/ui/chat");
  await say(page, "with care, again");
  await made.getByRole("button", { name: "Approve" }).click();
  const run = block(page, "Run a command");
  await run.getByRole("button", { name: "Edit" }).click();
  await run.getByLabel("What is carried out instead").click();
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText("echo changed by a person");
  await run.getByRole("button", { name: "Approve the change" }).click();
  await log(page).getByText("It is done.").waitFor();
  const output = run.getByRole("log", { name: "Output of the tool" });
  assert.equal(await output.textContent(), "changed by a person\n");
  // What ran is what shows, also after a reload; what the model asked for is there to see.
  await page.reload();
  await output.waitFor();
  assert.equal(
    await run.getByRole("region", { name: "What is run" }).textContent(),
    "echo changed by a person",
  );
  await run.getByText("A person changed this call.").click();
  const asked = run.getByRole("region", { name: "What the model asked for" });
  assert.notEqual(await asked.textContent(), "echo changed by a person");

  await page.goto("/ui/chat");
  await say(page, "two at once");
  await page.getByText("2 calls wait for your word.").waitFor();
  await made.first().getByRole("button", { name: "Approve" }).click();
  await made.first().getByText("Approved; other calls still wait.").waitFor();
  await made.nth(1).getByRole("button", { name: "Refuse" }).click();
  await log(page).getByText("Two were asked for.").waitFor();
  assert.equal((await f.server.ask<{ total: number }>("GET", "/api/v1/sandboxes", undefined, key)).total, 2);
  await ask(page, "none");
});

test("a person approves what is shown: nothing of a command is hidden", async () => {
  const key = await f.server.key("iris");
  const { page } = await f.tab(key);
  await ask(page, "all");
  await say(page, "Do something hidden");
  await block(page, "Make a session").getByRole("button", { name: "Approve" }).click();
  const run = block(page, "Run a command");
  await run.getByText("Waits for your word").waitFor();
  assert.equal(await run.getByRole("region", { name: "What is run" }).textContent(), HIDDEN_SHOWN);
  await run.getByRole("button", { name: "Refuse" }).click();
  await log(page).getByText("It is done.").waitFor();
  await ask(page, "none");
});

test("all calls of a step are approved at once", async () => {
  const key = await f.server.key("jana");
  const { page } = await f.tab(key);
  await ask(page, "all");
  await say(page, "two at once");
  await page.getByRole("button", { name: "Approve all" }).click();
  await log(page).getByText("Two were asked for.").waitFor();
  assert.equal((await f.server.ask<{ total: number }>("GET", "/api/v1/sandboxes", undefined, key)).total, 2);
  await ask(page, "none");
});

test("what the provider says of a failure is shown, and the run is tried again", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "This fails once");
  const failed = log(page).getByRole("alert").filter({ hasText: "The agent stopped" });
  await failed.getByText("the provider has no such model").waitFor();
  failures = 3;
  await failed.getByRole("button", { name: "Try again" }).click();
  await log(page).getByText("Now it works.").waitFor();
  assert.equal(await log(page).getByText("This fails once").count(), 1);
});

test("a run is cancelled while the model writes and while a tool runs", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "Say it slowly");
  await log(page).getByText("word word").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("The run was cancelled.").waitFor();
  // What was said until then stays in the conversation.
  await page.reload();
  await log(page).getByText("word word").waitFor();

  await page.goto("/ui/chat");
  await say(page, "Please wait for it");
  const run = block(page, "Run a command");
  await run.getByRole("log").getByText("begun").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await run.getByText("the call was cancelled and the command killed").waitFor();
  const id = await sandboxOf(page);
  const execs = await f.server.ask<{ killed: boolean }[]>("GET", `/api/v1/sandboxes/${id}/execs`);
  assert(execs[0]?.killed, "the command was killed");
  // The conversation goes on, and its next run can be cancelled, too.
  await say(page, "And now slowly");
  await log(page).getByText("word word").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Cancel" }).waitFor({ state: "hidden" });
  await say(page, "first words");
  await log(page).getByText("An answer to the first words.").waitFor();
});

test("a reload joins the run again, and a server that is killed goes on with it", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "Please wait for it");
  const run = block(page, "Run a command");
  const output = run.getByRole("log", { name: "Output of the tool" });
  await output.getByText("begun").waitFor();
  await page.getByLabel("Message", { exact: true }).fill("typed before");
  await page.reload();
  await output.getByText("begun").waitFor();
  await run.getByText("runs", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Cancel" }).waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "typed before");

  await f.server.kill();
  await page.getByText("The server does not answer").waitFor();
  await f.server.up();
  await page.getByText("The server does not answer").waitFor({ state: "detached" });
  await go(page);
  await log(page).locator("strong").getByText("ended").waitFor();
  await run.getByText("exit 0").waitFor();
  assert.match((await output.textContent()) ?? "", /ended\n$/);
  assert.equal(await log(page).getByText("I make a session.").count(), 1, "nothing is told twice");
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "typed before");
});

test("conversations are renamed, found, gone on with and deleted", async () => {
  const key = await f.server.key("dora");
  const { page } = await f.tab(key);
  await say(page, "first words of one");
  await log(page).getByText("An answer to the first words.").waitFor();
  const address = page.url();
  await page.getByRole("link", { name: "New", exact: true }).click();
  await say(page, "other words of two");
  await log(page).getByText("An answer to other words.").waitFor();
  await row(page, "first words").hover();
  await page.getByRole("button", { name: "More about first words of one" }).click();
  await page.getByRole("menuitem", { name: "Rename" }).click();
  await page.getByLabel("New title").fill("<b>Kept</b> under another name");
  await page.keyboard.press("Enter");
  await row(page, "<b>Kept</b> under another name").waitFor();
  await page.getByLabel("Search conversations").fill("KEPT");
  await row(page, "other words").waitFor({ state: "detached" });
  await page.waitForURL(/q=KEPT/);
  await page.reload();
  await row(page, "Kept").getByRole("link").click();
  await page.waitForURL(`${address}?q=KEPT`);
  assert.equal(await page.getByLabel("Search conversations").inputValue(), "KEPT");
  await page.getByRole("heading", { name: "<b>Kept</b> under another name" }).waitFor();
  await say(page, "Please wait for it");
  await block(page, "Run a command").getByRole("log").getByText("begun").waitFor();

  await page.getByRole("button", { name: /More about <b>Kept/ }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  const sure = page.getByRole("alertdialog");
  await sure.getByText("its sandbox with files and variables").waitFor();
  await sure.getByRole("button", { name: "Keep" }).click();
  assert.equal(await row(page, "Kept").count(), 1);
  await page.getByRole("button", { name: /More about <b>Kept/ }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await sure.getByRole("button", { name: "Delete" }).click();
  await page.waitForURL("**/ui/chat");
  await page.getByLabel("Search conversations").fill("");
  await row(page, "other words").waitFor();
  assert.equal(await row(page, "Kept").count(), 0);
  const { items } = await f.server.ask<{ items: { status: string }[] }>(
    "GET",
    "/api/v1/sandboxes",
    undefined,
    key,
  );
  assert.deepEqual(
    items.filter((sandbox) => sandbox.status !== "destroyed"),
    [],
  );
  await page.goto(address);
  await page.getByText("The conversation cannot be shown").waitFor();
  // What is no id leads to no other address of the API.
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto("/ui/chat/..%2Fapi%2Fv1%2Fvolumes");
  await page.getByText("The conversation cannot be shown").waitFor();
  assert(!asked.includes("/api/v1/volumes"));
});

test("a message is said otherwise, and what came after it stays in the history", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "first words to change");
  await log(page).getByText("An answer to the first words.").waitFor();
  await say(page, "and then something else");
  await log(page).getByText("You said: and then something else").waitFor();
  await log(page).getByText("first words to change").hover();
  await log(page).getByRole("button", { name: "Edit" }).first().click();
  await page.getByLabel("The message, said otherwise").fill("other words in their place");
  await page.getByRole("button", { name: "Send from here" }).click();
  await log(page).getByText("An answer to other words.").waitFor();
  assert.equal(await log(page).getByText("something else").count(), 0);
  await page.getByRole("button", { name: "History" }).click();
  const history = page.getByRole("complementary", { name: "History" });
  await history.getByRole("button", { name: /and then something else/ }).click();
  await log(page).getByText("You said: and then something else").waitFor();
  await say(page, "from the past");
  await log(page).getByText("You said: from the past").waitFor();
  await log(page).getByText("An answer to the first words.").waitFor();
  assert.equal(await log(page).getByText("An answer to other words.").count(), 0);
});

test("a message of long ago is said otherwise without reading every state since", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/chat");
  await say(page, "first words of long ago");
  await log(page).getByText("An answer to the first words.").waitFor();
  for (const name of ["one", "two", "three", "four"]) {
    await say(page, `and then ${name}`);
    await log(page).getByText(`You said: and then ${name}`).waitFor();
  }
  const states: string[] = [];
  page.on("request", (request) => {
    if (/\/threads\/[^/]+\/state\//.test(request.url())) states.push(request.url());
  });
  await log(page).getByText("first words of long ago").hover();
  await log(page).getByRole("button", { name: "Edit" }).first().click();
  await page.getByLabel("The message, said otherwise").fill("other words in their place");
  await page.getByRole("button", { name: "Send from here" }).click();
  await log(page).getByText("An answer to other words.").waitFor();
  assert.equal(await log(page).getByText("and then one").count(), 0);
  assert.equal(states.length, 1, states.join("\n"));
});

test("a change of a message stays where the conversation cannot go on from it", async () => {
  const { page } = await f.tab(KEY);
  await say(page, "first words that stay");
  await log(page).getByText("An answer to the first words.").waitFor();
  await log(page).getByRole("button", { name: "Edit" }).first().click();
  await page.getByLabel("The message, said otherwise").fill("typed with care");
  await page.route("**/threads/*/commands", (route) => route.fulfill({ status: 503, json: {} }));
  await page.getByRole("button", { name: "Send from here" }).click();
  await page.getByRole("region", { name: "Notifications" }).getByText("not forked").waitFor();
  assert.equal(await page.getByLabel("The message, said otherwise").inputValue(), "typed with care");
});

test("what was sent is no draft any more, also where the reader went on meanwhile", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/chat");
  let pass = () => {};
  const held = new Promise<void>((done) => {
    pass = done;
  });
  await page.route("**/threads/*/runs", async (route) => {
    await held;
    await route.continue();
  });
  await page.getByLabel("Message", { exact: true }).fill("first words, then away");
  const asked = page.waitForRequest("**/threads/*/runs");
  await page.keyboard.press("Enter");
  await asked;
  await page.getByRole("link", { name: "Images" }).click();
  await page.waitForURL("**/ui/images");
  const answered = page.waitForResponse("**/threads/*/runs");
  pass();
  await answered;
  await page.waitForFunction(() => sessionStorage.getItem("atoll.draft.new") === null);
  // It is found by its title from everywhere.
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog").getByRole("combobox").fill("then away");
  await page.getByRole("option", { name: /first words, then away/ }).click();
  await log(page).getByText("An answer to the first words.").waitFor();
});

test("files go up and come down with the same bytes", async () => {
  const { page } = await f.tab(KEY);
  await page.goto("/ui/chat");
  await page.getByLabel("Message", { exact: true }).waitFor();
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, at) => (at * 7) % 256));
  await page.getByLabel("Files", { exact: true }).setInputFiles({
    name: "left-out.txt",
    mimeType: "text/plain",
    buffer: Buffer.from("x"),
  });
  await page.getByRole("button", { name: "Leave left-out.txt out" }).click();
  // Dropped, as a hand would.
  const dropped = await page.evaluateHandle((data) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(data)], "up.bin"));
    return transfer;
  }, Array.from(bytes));
  await page.getByText("Ask the agent for something").dispatchEvent("drop", { dataTransfer: dropped });
  await page.getByRole("list", { name: "Files to send" }).getByText("up.bin").waitFor();
  await say(page, "Please import it");
  await log(page).getByRole("list", { name: "Attached files" }).getByText("up.bin").waitFor();
  await log(page).getByText("There it is.").waitFor();
  const download = page.waitForEvent("download");
  await block(page, "Export files").getByRole("link", { name: "/workspace/up.bin" }).click();
  assert.deepEqual(await readFile(await (await download).path()), bytes);
  await page.getByRole("button", { name: "Files and sandboxes" }).click();
  const panel = page.getByRole("complementary", { name: "Files and sandboxes" });
  const again = page.waitForEvent("download");
  await panel.getByRole("link", { name: "/workspace/up.bin" }).click();
  assert.deepEqual(await readFile(await (await again).path()), bytes);
  await panel.getByText("running").waitFor();
});

test("a model is set and tested; its key only goes there", async () => {
  const key = await f.server.key("emil");
  const { page } = await f.tab(key);
  await page.goto("/ui/chat");
  await page.getByRole("button", { name: "Settings of the chat" }).click();
  const dialog = page.getByRole("dialog", { name: "Settings of the chat" });
  await dialog.getByText("The server has one").waitFor();
  await dialog.getByLabel("Model").fill(LOCKED);
  await dialog.getByLabel("Key").fill("sk-own-secret-0123wxyz");
  await dialog.getByLabel("Steps of a run").fill("1");
  await dialog.getByRole("button", { name: "Save and test" }).click();
  await dialog.getByText("openai does not accept the API key").waitFor();
  await dialog.getByText("…wxyz is kept").waitFor();
  assert.equal(await dialog.getByLabel("Key").inputValue(), "");
  await accessible(page);
  await dialog.getByLabel("Model").fill("gpt-4o-mini");
  await dialog.getByRole("button", { name: "Save and test" }).click();
  await dialog.getByText("The model answers").waitFor();
  await dialog.getByText("You said: Answer with the single word: ready").waitFor();
  await page.keyboard.press("Escape");
  const settings = () =>
    f.server.ask<{ model: string; api_key: string; own: object }>("GET", "/settings", undefined, key);
  const kept = await settings();
  assert.deepEqual([kept.model, kept.api_key], ["gpt-4o-mini", ""]);
  // What is the server's stays so, and follows it.
  const own = {
    model: "gpt-4o-mini",
    provider: null,
    base_url: null,
    supports_vision: null,
    context_tokens: null,
  };
  assert.deepEqual(kept.own, { ...own, has_api_key: true });
  const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  assert(!stored.includes("own-secret") && !(await page.content()).includes("own-secret"));
  // A test leaves no conversation behind, and a budget holds.
  assert.deepEqual(await f.server.ask("POST", "/threads/search", {}, key), []);
  await say(page, "Please wait for it");
  await page.getByText("It has asked the model as often as a run may.").waitFor();
  await page.goto("/ui/chat?settings=1");
  await dialog.getByRole("button", { name: "Remove the key" }).click();
  await dialog.getByText("The server has one").waitFor();
  assert.deepEqual((await settings()).own, { ...own, has_api_key: false });
  // An address of this machine is the operator's alone.
  await dialog.getByLabel("Base URL").fill("http://127.0.0.1:1/v1");
  await dialog.getByText("give the one of this place").waitFor();
  await dialog.getByRole("button", { name: "Save", exact: true }).click();
  await dialog.getByText("The settings were not saved").waitFor();
});

test("text, output and names that attack are shown and do nothing", async () => {
  const { page, faults } = await f.tab(KEY);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await say(page, "Be hostile <script>pwned(60)</script>");
  const end = log(page).locator("p").getByText("end", { exact: true });
  await end.waitFor();
  await log(page).getByText("the end of the text").waitFor();
  await log(page).getByText('<b onclick="pwned(1)">bold</b>', { exact: false }).first().waitFor();
  const closed = log(page).getByRole("button", { expanded: false });
  while ((await closed.count()) > 0) await closed.first().click();
  const frame = log(page).frameLocator("iframe").first();
  await frame.getByText("shown").click();
  assert.equal(await frame.locator("script, [onclick], [href], [src]").count(), 0);
  await log(page).getByText("This is not a picture that a browser can show.").waitFor();
  // Of all links that were written, only the good one is one.
  const links = await log(page)
    .locator("a[target=_blank]")
    .evaluateAll((all) => all.map((a) => [a.getAttribute("href"), a.getAttribute("rel")]));
  const rel = "noopener noreferrer nofollow";
  assert.deepEqual(links, [
    ["https://example.org/a?b=1", rel],
    ["http://127.0.0.1:9/pixel.png", rel],
  ]);
  const foreign = await log(page)
    .locator("script, style, svg[onload], img:not([src^='blob:']), [onerror], [onclick], meta, object, embed")
    .count();
  assert.equal(foreign, 0);
  assert(!(await log(page).textContent())?.includes("\u202e"), "no text changes its direction");
  assert.equal(await page.title(), "Be hostile <script>pwned(60)</script> · Atoll");
  const elsewhere = asked.filter((url) => !url.startsWith(f.server.url) && !url.startsWith("blob:"));
  assert.deepEqual(elsewhere, []);
  await row(page, "Be hostile").waitFor();
  await accessible(page);
  assert.deepEqual(faults, []);
});

test("without a model the first step is to set one", async () => {
  const kept = process.env.CHAT_MODEL;
  delete process.env.CHAT_MODEL;
  const bare = await Server.start("--no-auth");
  try {
    process.env.CHAT_MODEL = kept;
    const { page } = await f.tab();
    await page.goto(`${bare.url}/ui/chat`);
    await page.getByText("No model is set yet").waitFor();
    await page.getByText("CHAT_MODEL=gpt-4o").waitFor();
    assert.equal(await page.getByLabel("Message", { exact: true }).count(), 0);
    await accessible(page);
    await page.getByRole("button", { name: "Choose a model" }).click();
    await page.getByLabel("Model", { exact: true }).fill("gpt-4o");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("It works with gpt-4o").waitFor();
  } finally {
    await bare.end();
  }
});

test("a conversation is its owner's alone, and a key that only reads changes nothing", async () => {
  const ann = await f.server.key("ann");
  const { page } = await f.tab(ann);
  await say(page, "first words of ann");
  await log(page).getByText("An answer to the first words.").waitFor();
  const address = page.url();
  const ben = await f.tab(await f.server.key("ben"));
  await ben.page.goto(address);
  await ben.page.getByText("The conversation cannot be shown").waitFor();
  assert.equal(await row(ben.page, /./).count(), 0);
  const reader = await f.tab(await f.server.key("ann", "read_only"));
  await reader.page.goto(address);
  await log(reader.page).getByText("An answer to the first words.").waitFor();
  for (const name of ["Send", "Edit", "Attach"]) {
    assert.equal(await reader.page.getByRole("button", { name }).count(), 0, name);
  }
});

for (const dark of [false, true]) {
  test(`no view has a serious finding and none is too wide, ${dark ? "dark" : "light"}`, async () => {
    const { page } = await f.tab(KEY, { dark });
    await say(page, "Show a picture");
    await log(page).getByText("That is the picture.").waitFor();
    await block(page, "Run code").locator("code .text-accent-text").first().waitFor();
    const address = new URL(page.url()).pathname;
    for (const width of [1440, 375]) {
      await page.setViewportSize({ width, height: 800 });
      const more = ["", "?panel=files", "?panel=history", "?settings=1", "?list=1"];
      for (const view of ["/ui/chat", ...more.map((each) => address + each)]) {
        await page.goto(view);
        await page
          .locator("h1")
          .getByText(view === "/ui/chat" ? "New" : "Show a picture")
          .waitFor();
        await page.waitForFunction(() => !document.body.textContent?.includes("Loading…"));
        await accessible(page);
        await fits(page);
      }
    }
  });
}
