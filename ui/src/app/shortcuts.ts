import { useEffect } from "react";

/** Ctrl K or ⌘K opens the palette; `/` goes to the search of the page, or to the palette where it has none. */
export function useShortcuts(openPalette: () => void): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
        return;
      }
      const typing = (event.target as HTMLElement).closest(
        "input, textarea, select, [contenteditable], .xterm",
      );
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const search = document.querySelector<HTMLInputElement>("main input[type=search]");
      if (search) search.focus();
      else openPalette();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, [openPalette]);
}
