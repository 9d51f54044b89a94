import { useEffect, useEffectEvent, useRef, useState } from "react";

/** A text as it is typed, for an owner that hears of it after a pause in typing. What the owner changes itself replaces it. */
export function useTyped(value: string, onChange: (value: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const tell = useEffectEvent(onChange);
  useEffect(() => {
    if (value === told.current) return;
    told.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === told.current) return;
    const timer = setTimeout(() => {
      told.current = text;
      tell(text);
    }, 200);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
