import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import {
  ApiError,
  AuthenticationError,
  Client,
  CodeFailedError,
  CommandFailedError,
  CommandTimeoutError,
  ConflictError,
  ConnectionFailedError,
  type Display,
  ExecFailedError,
  InvalidArgumentError,
  LimitExceededError,
  NotFoundError,
  PathError,
  Sandbox,
} from "atoll-sandbox";
import { Server } from "./support.ts";

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("a sandbox", { concurrency: false }, () => {
  let server: Server;
  let sandbox: Sandbox;

  before(async () => {
    server = await Server.start();
    sandbox = await Sandbox.create({ ...server.options, memoryMb: 512 });
  });
  after(() => server.end());

  test("reads and writes no path that leads elsewhere", async () => {
    for (const path of ["../execs", "a/../../x", "/workspace/../../execs", ".."]) {
      await assert.rejects(sandbox.readFile(path), (error) => error instanceof PathError && error.field === "path");
      await assert.rejects(async () => sandbox.writeFile(path, "x"), PathError);
    }
  });

  test("tells how a command went", async () => {
    const ran = await sandbox.exec("echo out; echo err >&2; echo x > made.txt; exit 3");
    assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode, ran.ok], ["out\n", "err\n", 3, false]);
    assert.deepEqual(ran.filesChanged?.map((file) => file.path), ["made.txt"]);
    assert.throws(() => ran.check(), CommandFailedError);
    const argued = await sandbox.exec(["python3", "-c", "import os; print(os.environ['A'], os.getcwd(), '$A')"], {
      env: { A: "1" },
      cwd: "/tmp",
      check: true,
    });
    assert.equal(argued.stdout, "1 /tmp $A\n");
    assert.equal((await sandbox.exec(["no-such-program"])).exitCode, 127);
    await assert.rejects(sandbox.exec("true", { cwd: "/no/such" }), (error) => {
      assert.ok(error instanceof ExecFailedError);
      assert.deepEqual([error.code, error.field, error.status, error.name], ["exec_failed", "working_directory", 400, "ExecFailedError"]);
      return true;
    });
  });

  test("streams output as it comes, in exact bytes", async () => {
    const pieces: string[] = [];
    const line = String.raw`printf 'a\303'; sleep 0.1; printf '\251b'; sleep 0.1; printf '\377\000'`;
    const ran = await sandbox.exec(line, { onStdout: async (text) => void pieces.push(text) });
    assert.deepEqual([...ran.stdoutBytes], [0x61, 0xc3, 0xa9, 0x62, 0xff, 0]);
    assert.equal(pieces.join(""), "aéb\ufffd\0");
    assert.ok(pieces.length > 1);

    const code = "import os, sys, hashlib; d = os.urandom(8 << 20); sys.stdout.buffer.write(d); print(hashlib.sha256(d).hexdigest(), file=sys.stderr)";
    const binary = await sandbox.exec(["python3", "-c", code], { lossless: true });
    assert.equal(sha256(binary.stdoutBytes), binary.stderr.trim());
    assert.equal(binary.truncated, false);
  });

  test("gives a command text, bytes and streams to read", async () => {
    assert.equal((await sandbox.exec("tr a-z A-Z", { stdin: "hello\n" })).stdout, "HELLO\n");
    const content = new Uint8Array(randomBytes(3 << 20));
    assert.equal((await sandbox.exec("sha256sum", { stdin: content })).stdout.split(" ")[0], sha256(content));
    assert.equal((await sandbox.exec("wc -c", { stdin: new Blob([content]).stream() })).stdout, `${3 << 20}\n`);
    assert.equal((await sandbox.exec("echo done", { stdin: content })).stdout, "done\n");
  });

  test("ends a command at its time", async () => {
    const ran = await sandbox.exec("echo before; sleep 1000 & sleep 1000", { timeout: 0.5 });
    assert.deepEqual([ran.timedOut, ran.exitCode, ran.stdout], [true, 124, "before\n"]);
    assert.equal((await sandbox.exec("pgrep -c sleep")).stdout, "0\n");
    await assert.rejects(sandbox.exec("sleep 1000", { timeout: 0.1, check: true }), CommandTimeoutError);
  });

  test("follows, feeds, signals and kills what is in the background", async () => {
    const job = await sandbox.start("while read line; do echo got $line; done; echo end", { stdinOpen: true });
    assert.equal(await job.writeStdin("one\n"), 4);
    assert.equal((await job.status()).status, "running");
    await job.writeStdin("two\n", { close: true });
    assert.equal((await job.wait({ check: true })).stdout, "got one\ngot two\nend\n");
    let rest = "";
    for await (const output of sandbox.commands.get(job.execId).output({ offset: 8 })) rest += Buffer.from(output.data);
    assert.equal(rest, "got two\nend\n");
    await job.forget();
    await assert.rejects(job.status(), NotFoundError);

    const trapped = await sandbox.start("trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done");
    for await (const _ of trapped.output()) break;
    await trapped.sendSignal("TERM");
    assert.equal((await trapped.wait()).exitCode, 5);
    const killed = await sandbox.start("sleep 1000");
    await killed[Symbol.asyncDispose]();
    assert.equal((await killed.wait()).killed, true);
  });

  test("kills a command whose signal aborts and detaches from one in the background", async () => {
    const abort = new AbortController();
    const reason = new Error("enough");
    await assert.rejects(sandbox.exec("echo x; sleep 1000", { signal: abort.signal, onStdout: () => abort.abort(reason) }), reason);
    const [ended] = await sandbox.commands.list();
    assert.deepEqual([ended?.status, ended?.killed], ["ended", true]);
    await assert.rejects(sandbox.exec("true", { signal: abort.signal }), reason);

    const job = await sandbox.start("echo x; sleep 1000");
    const other = new AbortController();
    await assert.rejects(job.wait({ signal: other.signal, onStdout: () => other.abort() }), { name: "AbortError" });
    assert.equal((await job.status()).status, "running");
    await job.kill();

    await assert.rejects(sandbox.exec("echo x; sleep 1000", { onStdout: () => Promise.reject(reason) }), reason);
    assert.equal((await sandbox.commands.list())[0]?.killed, true);
  });

  test("keeps variables, shows pictures and interrupts code", async () => {
    await sandbox.runPython("x = 20", { check: true });
    assert.equal((await sandbox.runPython("x + 1")).text, "21");
    await assert.rejects(sandbox.runPython("1 / 0", { check: true }), (error) => {
      assert.ok(error instanceof CodeFailedError);
      assert.equal(error.result.error?.type, "ZeroDivisionError");
      return true;
    });
    assert.equal((await sandbox.runCode("[1, 2].length", { language: "node" })).text, "2");
    const shown: Display[] = [];
    const plot = await sandbox.runPython("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()", {
      onDisplay: (display) => void shown.push(display),
      timeout: 120,
      check: true,
    });
    assert.equal(Buffer.from(plot.images[0]?.content ?? []).subarray(1, 4).toString(), "PNG");
    assert.equal(shown.length, 1);

    const late = await sandbox.runPython("import time; time.sleep(100)", { timeout: 0.5 });
    assert.deepEqual([late.timedOut, late.stateLost], [true, false]);
    const abort = new AbortController();
    const code = "print('begun', flush=True)\nimport time; time.sleep(1000)";
    await assert.rejects(sandbox.runPython(code, { timeout: 2000, signal: abort.signal, onStdout: () => abort.abort() }));
    assert.equal((await sandbox.runPython("x")).text, "20");
  });

  test("keeps files whole, big ones too", async () => {
    const { files } = sandbox;
    for (const name of ["plain.txt", "deep/er/with space & % ? # é.txt", "/tmp/absolute"]) {
      await files.write(name, `of ${name}`);
      assert.equal(await files.read(name), `of ${name}`);
    }
    const big = new Uint8Array(randomBytes(64 << 20));
    await files.write("big", big);
    assert.equal((await sandbox.exec("sha256sum big")).stdout.split(" ")[0], sha256(big));
    assert.equal(sha256(await files.readBytes("big")), sha256(big));
    await files.write("streamed", new Blob([big.subarray(0, 1000)]).stream());
    assert.equal((await files.stat("streamed")).size, 1000);
    assert.deepEqual([await files.exists("big"), await files.exists("missing")], [true, false]);
    await assert.rejects(files.read("missing"), (error) => error instanceof NotFoundError && error.field === "path");
  });

  test("lists, finds, moves, packs and watches", async () => {
    const { files } = sandbox;
    await files.write("site/css/main.css", "h1 { color: teal }\n");
    await files.write("site/index.html", "<h1>hello</h1>\n");
    assert.deepEqual((await files.list("site")).map((entry) => entry.name), ["css", "index.html"]);
    assert.deepEqual((await files.find({ pattern: "*.css" })).entries.map((entry) => entry.path), ["site/css/main.css"]);
    assert.equal((await files.grep({ pattern: "color: \\w+", path: "site" })).matches[0]?.line, 1);
    const archive = await new Response(await files.pack("site")).bytes();
    await files.mkdir("copy");
    assert.ok((await files.unpack(archive, "copy")).bytes > 0);
    assert.equal(await files.read("copy/css/main.css"), "h1 { color: teal }\n");
    await files.move("site/index.html", "site/start.html");
    await assert.rejects(files.remove("site"), ConflictError);
    await files.remove("site", { recursive: true });
    const seen: string[] = [];
    for await (const event of files.watch("copy")) {
      seen.push(event.event);
      if (event.event === "ready") await sandbox.exec("echo x > copy/new");
      if (event.event === "created") break;
    }
    assert.equal(seen[0], "ready");
    assert.ok((await files.history("copy/new")).entries.length > 0);
  });

  test("is snapshot, rolled back and forked", async () => {
    await sandbox.writeFile("notes", "one");
    const good = await sandbox.snapshots.create("good");
    await sandbox.writeFile("notes", "two");
    const diff = await sandbox.snapshots.diff("good");
    assert.deepEqual(diff.files.map((file) => [file.path, file.action]), [["/workspace/notes", "modified"]]);
    const fork = await sandbox.fork({ snapshot: "good", labels: { is: "fork" } });
    assert.equal(await fork.readFile("notes"), "one");
    await fork[Symbol.asyncDispose]();
    assert.equal((await fork.refresh()).status, "destroyed");
    assert.equal((await sandbox.snapshots.rollback("good")).before?.kind, "before_rollback");
    assert.equal(await sandbox.readFile("notes"), "one");
    await sandbox.snapshots.setLabel(good.id, "better");
    await sandbox.snapshots.delete("better");
    await assert.rejects(sandbox.snapshots.get(good.id), NotFoundError);
  });

  test("has volumes that outlive it", async () => {
    const { volumes } = sandbox.client;
    await volumes.create("data", { diskMb: 64 });
    for (const text of ["", "shared\n"]) {
      const one = await Sandbox.create({ client: sandbox.client, volumes: [{ name: "data", path: "/mnt/data" }] });
      const ran = await one.exec("cat /mnt/data/file 2> /dev/null; echo shared > /mnt/data/file");
      assert.equal(ran.stdout, text);
      await assert.rejects(volumes.delete("data"), ConflictError);
      await one.destroy();
    }
    assert.equal((await volumes.resize("data", 128)).disk_mb, 128);
    await volumes.delete("data");
    await assert.rejects(volumes.get("data"), NotFoundError);
  });

  test("is paused, stopped and resumed", async () => {
    const own = await Sandbox.create({ client: sandbox.client, sessionKey: "agent" });
    await own[Symbol.asyncDispose]();
    const again = await Sandbox.create({ client: sandbox.client, sessionKey: "agent" });
    assert.equal(again.id, own.id);
    assert.equal((await again.pause()).status, "paused");
    assert.equal((await again.stop()).status, "stopped");
    assert.equal((await again.resume()).status, "running");
    assert.equal((await Sandbox.connect(own.id, { client: sandbox.client })).record.session_key, "agent");
    await again.destroy();
  });

  test("is not seen by other owners", async () => {
    for (const name of ["ann", "bob"]) {
      const other = new Client({ baseUrl: server.url, apiKey: await server.newKey(name) });
      await assert.rejects(Sandbox.connect(sandbox.id, { client: other }), NotFoundError);
      const own = await Sandbox.create({ client: other });
      const seen = [];
      for await (const record of other.sandboxes()) seen.push(record.id);
      assert.deepEqual(seen, [own.id]);
      await own.destroy();
    }
  });

  test("has errors with code, field and status", async () => {
    await assert.rejects(Sandbox.create({ ...server.options, memoryMb: 1 }), (error) => {
      assert.ok(error instanceof InvalidArgumentError && error instanceof ApiError);
      assert.deepEqual([error.code, error.field, error.status], ["invalid_argument", "memory_mb", 422]);
      return true;
    });
    await assert.rejects(Sandbox.create({ baseUrl: server.url, apiKey: "no-such-key" }), AuthenticationError);
    await assert.rejects(Sandbox.create({ baseUrl: "http://127.0.0.1:1", retry: { seconds: 0 } }), ConnectionFailedError);
    assert.throws(() => new Client({ baseUrl: "127.0.0.1:7300" }), /http:\/\//);
    for (const id of ["../keys", "..", "not-a-sandbox"]) await assert.rejects(Sandbox.connect(id, server.options), NotFoundError);
    await assert.rejects(sandbox.writeFile("none", undefined as unknown as string), TypeError);
    assert.partialDeepStrictEqual(JSON.parse(JSON.stringify(await sandbox.exec("printf hello"))), { stdout: "hello", exitCode: 0 });
    const carl = new Client({ baseUrl: server.url, apiKey: await server.newKey("carl") });
    const made: Sandbox[] = [];
    await assert.rejects(async () => {
      for (let number = 0; number < 4; number += 1) made.push(await Sandbox.create({ client: carl }));
    }, (error) => error instanceof LimitExceededError && error.retryAfter !== undefined);
    assert.equal(made.length, 3);
    for (const one of made) await one.destroy();
    assert.equal((await carl.health()).status, "ok");
  });

  test("is the same for require", async () => {
    const required = createRequire(import.meta.url)("atoll-sandbox") as typeof import("atoll-sandbox");
    const found = await required.Sandbox.connect(sandbox.id, server.options);
    assert.equal((await found.exec("echo required")).stdout, "required\n");
  });
});
