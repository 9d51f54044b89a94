// Every command that the console shows or copies is one that the CLI knows, with flags that it has.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { PROGRAM } from "./harness.ts";

const run = promisify(execFile);
const SOURCES = join(import.meta.dirname, "../src");

interface Shown {
  where: string;
  /** The words up to the first that is an argument or comes at run time. */
  words: string[];
  flags: string[];
}

/** The commands in a source: the words after `atoll`, and the flags from there to the next command or function. */
function commandsIn(name: string): Shown[] {
  const text = readFileSync(join(SOURCES, name), "utf8").replaceAll('["atoll", "', '["atoll ');
  // What follows a quote, a backtick or a variable of the environment is a command and no prose.
  const starts = [...text.matchAll(/(?<=["`']|… )atoll ((?:[a-z][a-z-]*\b ?)+)/g)];
  return starts.map((match, at) => {
    const from = match.index + match[0].length;
    const end = text.slice(from).search(/^}|["'`]\)?\s*\+?\s*;?\s*atoll /m);
    const next = starts[at + 1]?.index ?? text.length;
    const rest =
      text.slice(from, Math.min(next, end < 0 ? text.length : from + end)).split(/ -- |\bcurl\b/)[0] ?? "";
    return {
      where: `${name}: ${match[0].trim()}`,
      words: (match[1] ?? "").trim().split(" "),
      flags: [...rest.matchAll(/(?<=[\s"'`])--[a-z][a-z-]+/g)].map(([flag]) => flag),
    };
  });
}

test("every command of the console is one of the CLI", async () => {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" });
  const shown = files
    .filter((name) => /\.tsx?$/.test(name) && !name.endsWith(".d.ts"))
    .flatMap((name) => commandsIn(name));
  assert(shown.length > 40, `only ${shown.length} commands were found`);
  const known = new Map<string, Promise<string>>();
  const wrong: string[] = [];
  for (const { where, words, flags } of shown) {
    const key = words.join(" ");
    if (!known.has(key))
      known.set(
        key,
        run(PROGRAM, [...words, "--help"]).then(({ stdout }) => stdout),
      );
    const help = await known
      .get(key)
      ?.catch((error: { stderr: string }) => void wrong.push(`${where}: ${error.stderr}`));
    for (const flag of flags) {
      if (help && !new RegExp(`${flag}\\b(?!-)`).test(help)) wrong.push(`${where}: it has no ${flag}`);
    }
  }
  assert.deepEqual(wrong, []);
});
