/** Packages as people write them, such as `uvicorn[standard]>=0.30`. Nothing here does any I/O. */

import { InvalidArgumentError } from "./errors.js";

export type Packages = string[] | Record<string, string>;

/** The name with its extras, and what is said of the version. */
const PYTHON = /^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)$/s;
const NODE = /^\s*(@?[^@\s]+)(?:@(\S*))?\s*$/;

function split(language: string, written: string): [string, string] {
  const [, name = written, extras = "", version = ""] = PYTHON.exec(written) ?? [];
  if (language === "python") return [name + extras.replace(/\s/g, ""), version.replace(/\s/g, "")];
  const [, whole = written, tag = ""] = NODE.exec(written) ?? [];
  return language === "node" ? [whole, tag] : [written.trim(), ""];
}

/** Versions by name, as the server takes them; an empty version is the latest. */
export function versions(language: string, packages: Packages): Record<string, string> {
  if (!Array.isArray(packages)) return packages;
  const found = new Map<string, string>();
  for (const written of packages) {
    const [name, version] = split(language, written);
    if (found.has(name)) {
      const info = { code: "invalid_argument", details: { field: "packages" } };
      throw new InvalidArgumentError(`packages names ${name} twice`, info);
    }
    found.set(name, version);
  }
  return Object.fromEntries(found);
}

/** The same as a list for pip. */
export function requirements(packages: Packages): string[] {
  if (Array.isArray(packages)) return packages;
  return Object.entries(packages).map(([name, version]) => (/^[0-9]/.test(version) ? `${name}==${version}` : name + version));
}
