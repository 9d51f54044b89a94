// What is being typed, kept for this tab: it is there again after a reload and gone with the tab or the session.
import { useState } from "react";

const PREFIX = "atoll.draft.";
const WHOSE = "atoll.drafts-of";

export function keepDraft(name: string, text: string): void {
  if (text) sessionStorage.setItem(PREFIX + name, text);
  else sessionStorage.removeItem(PREFIX + name);
}

export const readDraft = (name: string) => sessionStorage.getItem(PREFIX + name) ?? "";

export function forgetDrafts(): void {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
}

/** Drafts are of the one who typed them: a tab in which another signs in has none. */
export function draftsOf(who: string): void {
  if (sessionStorage.getItem(WHOSE) === who) return;
  forgetDrafts();
  sessionStorage.setItem(WHOSE, who);
}

/** A component that shows another draft is another component: give it a key. */
export function useDraft(name: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => readDraft(name));
  const set = (next: string) => {
    setText(next);
    keepDraft(name, next);
  };
  return [text, set];
}
