// The typed client of the REST API. The browser sends the session cookie by itself; the header proves to the server
// that a page of its own sends the request, since no page of another origin can set it.
import createClient from "openapi-fetch";
import { connection } from "./connection";
import { ApiError, errorOf, unreachable } from "./errors";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** The header of every request of the console. */
export const PROOF = { "X-Atoll-Console": "1" };

/** `fetch` with the proof; an error is always an [`ApiError`]. */
export async function request(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  let response: Response;
  const asked = new Request(input, init);
  for (const [name, value] of Object.entries(PROOF)) asked.headers.set(name, value);
  try {
    response = await fetch(asked);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    connection.lost();
    throw unreachable();
  }
  if (response.status === 401) connection.signedOut();
  return response;
}

/** The same, and a refusal is thrown. */
export async function send(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const response = await request(input, init);
  if (!response.ok) throw errorOf(response.status, await response.json().catch(() => undefined));
  return response;
}

/** Every operation of the API by its path: `api.GET("/api/v1/sandboxes", …)`. */
export const api = createClient<paths>({ fetch: (asked) => request(asked) });

type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** The data of an answer, or its error thrown, as TanStack Query wants it. */
export async function unwrap<T>(answer: Answer<T>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw error instanceof ApiError ? error : errorOf(response.status, error);
  return data as T;
}
