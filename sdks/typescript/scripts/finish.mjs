// Each of the two builds says of what kind its modules are.
import { writeFileSync } from "node:fs";

writeFileSync("dist/esm/package.json", '{ "type": "module" }\n');
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
