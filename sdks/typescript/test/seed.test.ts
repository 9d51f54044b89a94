// The example that the gRPC API's users know, line by line, by the URL of gRPC and by that of HTTP; and what gRPC has besides.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  AuthenticationError,
  CodeFailedError,
  CommandTimeoutError,
  ConnectionFailedError,
  ExecFailedError,
  GrpcEndpointError,
  InstallFailedError,
  NotFoundError,
  PathError,
  Sandbox,
  UnsupportedError,
} from "atoll-sandbox";
import { Server } from "./support.ts";

describe("the printed example", { concurrency: false }, () => {
  let server: Server;
  let hosts: string[];

  before(async () => {
    server = await Server.start();
    // The index of Python packages and the host of its files, as this machine has them.
    const answer = await fetch(`${server.url}/api/v1/egress/presets`, { headers: { authorization: `Bearer ${server.key}` } });
    const presets = (await answer.json()) as { name: string; entries: { entry: string }[] }[];
    const python = presets.find((preset) => preset.name === "python");
    hosts = python?.entries.map(({ entry }) => entry.replace(/:\d+$/, "")) ?? [];
  });
  after(() => server.end());

  for (const door of ["grpcUrl", "url"] as const) {
    test(`works by ${door}`, async () => {
      process.env["ATOLL_API_KEY"] = server.key;
      const sandbox = new Sandbox(server[door]);
      assert.throws(() => sandbox.id, /create\(\) first/);
      // Create with default allowed hosts
      await sandbox.create();
      const first = await Sandbox.connect(sandbox.id, { baseUrl: server[door] });
      const defaults = await sandbox.pipInstall(["iniconfig==2.0.0"]);
      assert.equal(defaults.success, true, defaults.stderr);
      // Or specify custom hosts
      await sandbox.create({ allowedHosts: hosts });
      await assert.rejects(first.exec("true"), "the former sandbox is destroyed");
      // Execute commands
      const result = await sandbox.exec("python3 --version");
      assert.match(result.stdout, /^Python 3/);
      // File operations
      await sandbox.writeFile("script.py", 'print("hello")');
      assert.equal(await sandbox.readFile("script.py"), 'print("hello")');
      // Run Python directly
      const output = await sandbox.runPython("print(1 + 1)");
      assert.equal(output.stdout, "2\n");
      // Install packages
      const installed = await sandbox.pipInstall(["requests"]);
      assert.equal(installed.success, true, installed.stderr);
      assert.match((await sandbox.runPython("import requests; print(requests.__version__)", { check: true })).stdout, /^\d/);
      await assert.rejects(sandbox.pipInstall(["no-such-package-of-atoll>=1"], { check: true }), (error) => {
        assert.ok(error instanceof InstallFailedError);
        return error.message.includes("no-such-package-of-atoll") && !error.result.success;
      });
      // Cleanup
      await sandbox.destroy();
      await sandbox.destroy();
      await assert.rejects(sandbox.exec("true"));
    });
  }

  test("has packages with extras", async () => {
    const sandbox = await Sandbox.create(server.options);
    await sandbox.pipInstall(["requests[socks] >= 2.31, < 3"], { check: true });
    assert.equal((await sandbox.runPython("import socks; print(socks.__name__)", { check: true })).stdout, "socks\n");
    await sandbox.destroy();
  });

  test("has packages with versions", async () => {
    const sandbox = await Sandbox.create(server.options);
    await sandbox.pipInstall(["toposort >= 1.9, < 1.10", "iniconfig==2.0.0"], { check: true });
    const versions = "import importlib.metadata as m; print(m.version('iniconfig'), m.version('toposort')[:3])";
    assert.equal((await sandbox.runPython(versions, { check: true })).stdout, "2.0.0 1.9\n");
    await sandbox.install(["ms@2.1.2"], { language: "node", check: true });
    assert.equal((await sandbox.runCode("require('ms/package.json').version", { language: "node" })).text, "'2.1.2'");
    await sandbox.destroy();
  });

  test("reaches nothing where it is told so, or where the key's tier has no network", async () => {
    const none = { egress: { mode: "none" } };
    const closed = await Sandbox.create({ ...server.options, networkEnabled: false });
    assert.partialDeepStrictEqual(closed.record, none);
    await closed.destroy();
    const small = await Sandbox.create({ baseUrl: server.url, apiKey: await server.newKey("small", "sandbox") });
    assert.partialDeepStrictEqual(small.record, none);
    await small.destroy();
  });

  test("reaches the default hosts of the package managers that a machine has", async () => {
    const own = await Server.start("[egress.presets]\nrust = []\n");
    try {
      const sandbox = await Sandbox.create(own.options);
      assert.deepEqual(sandbox.record.egress?.presets, ["python", "node", "github"]);
    } finally {
      await own.end();
    }
  });

  test("streams, ends and cancels commands over gRPC", async () => {
    const sandbox = await Sandbox.create({ baseUrl: server.grpcUrl, apiKey: server.key, networkEnabled: false });
    const none = async () => assert.equal((await sandbox.exec("pgrep -c sleep")).stdout, "0\n");
    const pieces: string[] = [];
    const ran = await sandbox.exec("echo one; sleep 0.3; echo two; echo bad >&2; exit 3", { onStdout: (text) => void pieces.push(text) });
    assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode, pieces], ["one\ntwo\n", "bad\n", 3, ["one\n", "two\n"]]);
    assert.equal((await sandbox.exec(["printf", "%s|", "it's", "$HOME"])).stdout, "it's|$HOME|");
    assert.equal((await sandbox.exec("head -c 6000000 /dev/zero | tr '\\0' x")).stdout.length, 6_000_000);
    const late = await sandbox.exec("echo begun; sleep 1000", { timeout: 0.5 });
    assert.deepEqual([late.timedOut, late.exitCode, late.stdout], [true, 124, "begun\n"]);
    await none();
    const abort = new AbortController();
    const cancelled = sandbox.exec("echo begun; sleep 1000", { signal: abort.signal, onStdout: () => abort.abort(new Error("mine")) });
    await assert.rejects(cancelled, /mine/);
    await none();
    await assert.rejects(sandbox.exec("echo x; sleep 1000", { onStdout: () => Promise.reject(new RangeError("listener")) }), RangeError);
    await none();
    await assert.rejects(sandbox.runPython("1 / 0", { check: true }), (error) => {
      return error instanceof CodeFailedError && error.result.error?.type === "ZeroDivisionError";
    });
    await sandbox.destroy();
  });

  test("tells a timeout of the key's tier as it tells its own", async () => {
    const own = await Server.start("[tiers.sandbox]\ntimeout_seconds = 2\n");
    try {
      const apiKey = await own.newKey("low", "sandbox");
      const sandbox = await Sandbox.create({ baseUrl: own.grpcUrl, apiKey, networkEnabled: false });
      const late = await sandbox.exec("echo begun; sleep 1000", { timeout: 600 });
      assert.deepEqual([late.timedOut, late.exitCode, late.stdout], [true, 124, "begun\n"]);
      await assert.rejects(sandbox.exec("sleep 1000", { timeout: 600, check: true }), CommandTimeoutError);
      await sandbox.destroy();
    } finally {
      await own.end();
    }
  });

  test("says clearly what gRPC has not", async () => {
    const url = { baseUrl: server.grpcUrl, apiKey: server.key };
    const sandbox = await Sandbox.create({ ...url, sessionKey: "agent-of-a-test" });
    assert.equal((await Sandbox.create({ ...url, sessionKey: "agent-of-a-test" })).id, sandbox.id);
    assert.throws(() => sandbox.files, GrpcEndpointError);
    await assert.rejects(sandbox.client.volumes.get("data"), /is a gRPC endpoint.*HTTP API/);
    await assert.rejects(sandbox.exec("true", { env: { A: "1" } }), UnsupportedError);
    await assert.rejects(Sandbox.create({ ...url, memoryMb: 64 }), /memoryMb/);
    await assert.rejects(sandbox.exec("true", { cwd: "/no/such" }), ExecFailedError);
    await assert.rejects(sandbox.readFile("missing"), NotFoundError);
    await assert.rejects(sandbox.readFile("../secret"), PathError);
    await assert.rejects(sandbox.writeFile("bytes", new Uint8Array([0xff])), UnsupportedError);
    await assert.rejects(Sandbox.connect("no-such-session", url), NotFoundError);
    await assert.rejects(Sandbox.create({ ...url, apiKey: "no-such-key" }), AuthenticationError);
    await sandbox.destroy();
  });

  test("runs nothing twice when the server is killed", async () => {
    const own = await Server.start();
    try {
      const sandbox = await Sandbox.create({ baseUrl: own.grpcUrl, apiKey: own.key, networkEnabled: false });
      const running = sandbox.exec("echo ran >> /workspace/log; echo begun; sleep 1000", { onStdout: () => own.kill() });
      await assert.rejects(running, ConnectionFailedError);
      const [again] = await Promise.all([sandbox.exec("cat /workspace/log"), own.start()]);
      assert.equal(again.stdout, "ran\n");
      // `python3 -m pip` finds this one first: it notes that it ran.
      await sandbox.writeFile("pip.py", "open('installs', 'a').write('x'); import time; time.sleep(1000)");
      const installing = assert.rejects(sandbox.pipInstall(["six"]), ConnectionFailedError);
      await sandbox.exec("until [ -s installs ]; do sleep 0.1; done", { timeout: 120 });
      await Promise.all([own.kill().then(() => own.start()), installing]);
      assert.equal(await sandbox.readFile("installs"), "x");
    } finally {
      await own.end();
    }
  });
});
