import { useEffect, useRef } from "react";
import { type FeedEvent, onEvent } from "./feed";

/** Calls the latest listener with every event while the component is shown. */
export function useFeed(listener: (event: FeedEvent) => void): void {
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => onEvent((event) => latest.current(event)), []);
}
