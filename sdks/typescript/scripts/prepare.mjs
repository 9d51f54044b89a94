// What npm runs before it packs this folder, or links it into a project. For a link it installs no tools to build with.
import { execSync } from "node:child_process";
import { existsSync } from "node:fs";

const run = (command) => execSync(command, { stdio: "inherit" });
if (!existsSync("node_modules/typescript")) run("npm install --ignore-scripts --no-audit --no-fund");
run("npm run build");
