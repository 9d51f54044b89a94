// Prepare one sandbox, fork it three times, and try something else in each fork at the same time.

import { Sandbox } from "atoll-sandbox";

async function attempt(base: Sandbox, factor: number): Promise<string> {
  const fork = await base.fork({ labels: { factor: String(factor) } });
  try {
    // Each fork has the files of the first sandbox, and changes only its own.
    const code = `import json; print(sum(json.load(open('data.json'))) * ${factor})`;
    const ran = await fork.exec(["python3", "-c", code], { check: true });
    return `factor ${factor}: ${ran.stdout.trim()}`;
  } finally {
    await fork.destroy();
  }
}

const base = await Sandbox.create({ memoryMb: 128 });
try {
  await base.writeFile("data.json", "[1, 2, 3]");
  for (const line of await Promise.all([1, 10, 100].map((factor) => attempt(base, factor)))) console.log(line);
} finally {
  await base.destroy();
}
