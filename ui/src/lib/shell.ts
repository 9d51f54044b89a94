// Words for a POSIX shell.

/** One word that a shell reads as exactly this text. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A curl command for a request to this server. The key stays in the user's environment. */
export function curl(method: string, path: string, body?: unknown): string {
  const words = ["curl", "-s"];
  if (method !== "GET") words.push("-X", method);
  words.push(quote(location.origin + path), "-H", '"Authorization: Bearer $ATOLL_API_KEY"');
  if (body !== undefined) words.push("-d", quote(JSON.stringify(body)));
  return words.join(" ");
}
