// Whether a person is at this page: it is in view, and a key, a pointer or the wheel moved a short while ago. What keeps a
// sandbox awake for the page alone ends when that is over.
import { useEffect, useState } from "react";

const PATIENCE = 5 * 60_000;
const SIGNS = ["pointermove", "pointerdown", "keydown", "wheel", "visibilitychange"] as const;

export function usePresent(): boolean {
  const [present, setPresent] = useState(() => document.visibilityState === "visible");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      clearTimeout(timer);
      const visible = document.visibilityState === "visible";
      setPresent(visible);
      if (visible) timer = setTimeout(() => setPresent(false), PATIENCE);
    };
    look();
    for (const sign of SIGNS) document.addEventListener(sign, look, { passive: true });
    return () => {
      clearTimeout(timer);
      for (const sign of SIGNS) document.removeEventListener(sign, look);
    };
  }, []);
  return present;
}
