// Paths inside a sandbox: absolute, with slashes.

export const WORKSPACE = "/workspace";

export const join = (folder: string, name: string) => (folder === "/" ? `/${name}` : `${folder}/${name}`);

export const nameOf = (path: string) => path.slice(path.lastIndexOf("/") + 1) || "/";

export const folderOf = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

/** In small letters, without the dot. */
export function extensionOf(path: string): string {
  const name = nameOf(path);
  const dot = name.lastIndexOf(".");
  return dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
}

/** Where the API reads and writes a file. */
export const fileUrl = (sandbox: string, path: string) =>
  `/api/v1/sandboxes/${sandbox}/files/${encodeURIComponent(path)}`;

/** Where the API gives a folder as an archive. */
export const archiveUrl = (sandbox: string, path: string) =>
  `/api/v1/sandboxes/${sandbox}/fs/tar?path=${encodeURIComponent(path)}`;
