// Light, dark, or as the system has it. The choice is the only thing that the console keeps in the browser for longer
// than a tab is open.
import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark" | "system";

const KEY = "atoll.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function read(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

let theme: Theme = read();

/** The theme that shows, whatever was chosen. */
export function shown(): "light" | "dark" {
  if (theme !== "system") return theme;
  return system.matches ? "dark" : "light";
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = shown();
  for (const each of listeners) each();
}

export function setTheme(next: Theme): void {
  theme = next;
  if (next === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  applyTheme();
}

system.addEventListener("change", applyTheme);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, () => theme);
}

/** For what draws by itself, such as charts and terminals: it changes with the theme that shows. */
export function useShownTheme(): "light" | "dark" {
  return useSyncExternalStore(subscribe, shown);
}
