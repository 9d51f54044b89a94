// The examples, as a reader would start them.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./support.ts";

const EXAMPLES = join(import.meta.dirname, "../examples");

const SAID: Record<string, string> = {
  "parallel-forks.ts": "factor 1: 6\nfactor 10: 60\nfactor 100: 600\n",
  "quick-start.ts": "hello from user\nsum: 45\nstep 1\nstep 2\nstep 3\n",
};

test("every example does what it says", async () => {
  assert.deepEqual(readdirSync(EXAMPLES).sort(), Object.keys(SAID));
  const server = await Server.start();
  try {
    const env = { ...process.env, ATOLL_URL: server.url, ATOLL_API_KEY: server.key };
    for (const [name, said] of Object.entries(SAID)) {
      const ran = await promisify(execFile)(process.execPath, ["--no-warnings", join(EXAMPLES, name)], { env });
      assert.equal(ran.stdout, said);
    }
  } finally {
    await server.end();
  }
});
