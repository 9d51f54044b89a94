// Broken connections and restarted servers. Each command leaves a line in a file, so one that ran twice is seen.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Client, ConflictError, ConnectionFailedError, LimitExceededError, Sandbox } from "atoll-sandbox";
import { fetchAnew, Proxy, Server } from "./support.ts";

const NEVER = 2 ** 40;

describe("a connection", { concurrency: false }, () => {
  let server: Server;
  let proxy: Proxy;
  let sandbox: Sandbox;

  before(async () => {
    server = await Server.start();
    proxy = await Proxy.start(server);
    const client = new Client({ baseUrl: proxy.url, apiKey: server.key, fetch: fetchAnew, retry: { seconds: 120 } });
    sandbox = await Sandbox.create({ client });
  });
  after(async () => {
    proxy.end();
    await server.end();
  });

  test("that loses an answer runs nothing twice", async () => {
    proxy.cuts = [0, 0];
    assert.equal((await sandbox.exec("echo line >> ran; cat ran")).stdout, "line\n");
    assert.equal(proxy.cuts.length, 0);
    proxy.cuts = [0];
    const job = await sandbox.start("echo line >> started; cat started");
    assert.equal((await job.wait()).stdout, "line\n");
    proxy.cuts = [0];
    assert.equal((await sandbox.runPython("open('cell', 'a').write('x'); len(open('cell').read())")).text, "1");
    proxy.cuts = [0];
    const made = await Sandbox.create({ client: sandbox.client, labels: { of: "lost" } });
    const found = [];
    for await (const record of sandbox.client.sandboxes({ labels: "of=lost" })) found.push(record.id);
    assert.deepEqual(found, [made.id]);
    proxy.cuts = [0];
    await made.destroy();
    assert.equal(proxy.cuts.length, 0);
  });

  test("that loses the answer of an installation begins no other", async () => {
    // `python3 -m pip` finds this one first: it notes that it ran.
    await sandbox.files.write("pip.py", "open('installs', 'a').write('x')");
    proxy.cuts = [0];
    await sandbox.pipInstall(["six"], { check: true });
    assert.equal(proxy.cuts.length, 0);
    assert.equal(await sandbox.files.read("installs"), "x");
    await sandbox.files.remove("pip.py");
  });

  test("that is limited repeats what can be sent again", async () => {
    const stream = () => new Blob(["new"]).stream();
    await sandbox.files.write("limited", "old");
    proxy.limited = 1;
    await assert.rejects(sandbox.files.write("limited", stream()), LimitExceededError);
    assert.equal(await sandbox.files.read("limited"), "old");
    proxy.limited = 1;
    await sandbox.files.write("limited", new Blob(["new"]));
    assert.equal(await sandbox.files.read("limited"), "new");

    const job = await sandbox.start("cat", { stdinOpen: true });
    proxy.limited = 1;
    await assert.rejects(job.writeStdin(stream(), { close: true }), LimitExceededError);
    proxy.limited = 1;
    assert.equal(await job.writeStdin("again", { close: true }), 5);
    assert.equal((await job.wait()).stdout, "again");
    assert.equal(proxy.limited, 0);
  });

  test("that is cut goes on at its byte", async () => {
    const pieces: string[] = [];
    proxy.cuts = [3000, 5000, 9000];
    const line = "echo line >> cut; for n in $(seq 2000); do echo out é $n; echo err ü $n >&2; done; cat cut";
    const ran = await sandbox.exec(line, { onStdout: (text) => void pieces.push(text) });
    assert.equal(proxy.cuts.length, 0);
    const numbers = Array.from({ length: 2000 }, (_, at) => at + 1);
    assert.equal(ran.stdout, `${numbers.map((n) => `out é ${n}\n`).join("")}line\n`);
    assert.equal(ran.stderr, numbers.map((n) => `err ü ${n}\n`).join(""));
    assert.equal(pieces.join(""), ran.stdout);
    assert.equal(ran.truncated, false);

    pieces.length = 0;
    proxy.cuts = [2000, 4000];
    const code = "for n in range(2000): print('cell', n, flush=True)";
    const cell = await sandbox.runPython(code, { onStdout: (text) => void pieces.push(text) });
    assert.equal(proxy.cuts.length, 0);
    assert.equal(cell.stdout, Array.from({ length: 2000 }, (_, at) => `cell ${at}\n`).join(""));
    assert.equal(pieces.join(""), cell.stdout);
  });

  test("that breaks in a file is resumed unless the file changed", async () => {
    const content = new Uint8Array(randomBytes(4 << 20));
    proxy.cuts = [0];
    await sandbox.files.write("resumed", content);
    // Every second connection asks whether the file is still the same.
    proxy.cuts = [NEVER, 1_000_000, NEVER, 1_500_000];
    assert.deepEqual(Buffer.compare(await sandbox.files.readBytes("resumed"), content), 0);
    assert.equal(proxy.cuts.length, 0);

    let changed = false;
    proxy.cuts = [NEVER, 1_000_000];
    const read = async () => {
      for await (const _ of sandbox.files.stream("resumed")) {
        if (!changed) await sandbox.files.write("resumed", "other");
        changed = true;
      }
    };
    await assert.rejects(read, ConflictError);
    proxy.cuts = [0];
    await assert.rejects(sandbox.files.write("once", new Blob(["x"]).stream()), ConnectionFailedError);
  });

  test("that is aborted before the id of a command came kills it too", async () => {
    const abort = new AbortController();
    const reason = new Error("enough");
    let lost = false;
    const client = new Client({
      baseUrl: server.url,
      apiKey: server.key,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (!lost && String(url).endsWith("/exec")) {
          // The command runs, and its answer does not come.
          lost = true;
          abort.abort(reason);
          throw reason;
        }
        return response;
      },
    });
    const same = await Sandbox.connect(sandbox.id, { client });
    await assert.rejects(same.exec("sleep 1000", { signal: abort.signal }), reason);
    const [ended] = await same.commands.list();
    assert.deepEqual([ended?.command, ended?.status, ended?.killed], ["sleep 1000", "ended", true]);
  });

  test("to a server that is killed meanwhile costs nothing", async () => {
    let restarted: Promise<void> | undefined;
    const restart = () => {
      restarted ??= server.kill().then(() => server.start());
    };
    const line = "echo line >> killed; echo begun; sleep 2; cat killed; echo done >&2";
    const ran = await sandbox.exec(line, { onStdout: restart });
    await restarted;
    assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ["begun\nline\n", "done\n", 0]);

    restarted = undefined;
    const code = "open('kept', 'a').write('x'); print('begun', flush=True)\nimport time; time.sleep(2)\nopen('kept').read()";
    const cell = await sandbox.runPython(code, { onStdout: restart, timeout: 60 });
    await restarted;
    assert.deepEqual([cell.text, cell.stdout], ["'x'", "begun\n"]);

    restarted = undefined;
    const job = await sandbox.start("echo begun; sleep 2; echo end");
    assert.equal((await job.wait({ onStdout: restart })).stdout, "begun\nend\n");
    await restarted;
  });
});
