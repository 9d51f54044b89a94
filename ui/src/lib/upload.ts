// Uploads that tell how far they are: `fetch` does not say what was sent.
import { PROOF } from "@/api/client";
import { errorOf, unreachable } from "@/api/errors";

interface Options {
  method: "POST" | "PUT";
  body: Blob | FormData;
  onSent?: (sent: number) => void;
  signal?: AbortSignal;
}

/** Sends a body and returns the answer's JSON; a refusal is thrown as an error of the API. */
export function upload<T>(url: string, { method, body, onSent, signal }: Options): Promise<T> {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(PROOF)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onSent?.(event.loaded);
    request.onerror = () => fail(unreachable());
    request.onabort = () => fail(new Error("it was cancelled"));
    request.onload = () => {
      const answer = parse(request.responseText);
      if (request.status < 300) done(answer as T);
      else fail(errorOf(request.status, answer));
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
