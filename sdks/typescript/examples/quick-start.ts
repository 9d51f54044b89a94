// Make a sandbox, run commands and code in it, and exchange files. ATOLL_URL and ATOLL_API_KEY name the server.

import { Sandbox } from "atoll-sandbox";

const sandbox = new Sandbox();
await sandbox.create({ memoryMb: 256, labels: { example: "quick-start" } });
try {
  const hello = await sandbox.exec("echo hello from $(id -un)", { check: true });
  process.stdout.write(hello.stdout);

  await sandbox.writeFile("numbers.txt", Array.from({ length: 10 }, (_, n) => n).join("\n"));
  await sandbox.runPython("numbers = [int(line) for line in open('numbers.txt')]", { check: true });
  console.log("sum:", (await sandbox.runPython("sum(numbers)")).text);

  // Output as it comes, and a limit of time.
  await sandbox.exec("for n in 1 2 3; do echo step $n; done", {
    timeout: 10,
    onStdout: (text) => void process.stdout.write(text),
  });
} finally {
  await sandbox.destroy();
}
