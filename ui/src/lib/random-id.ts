/** A random id. Pages that come over plain HTTP from another machine have no `crypto.randomUUID`. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
