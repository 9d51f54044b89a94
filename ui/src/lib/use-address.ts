// What a view shows lives in its address, so that the view can be shared.
import { useSearchParams } from "react-router";

type Changes = Record<string, string>;

/**
 * The parameters of the address, and what changes several of them at once; an empty one is left out of it. With `push`
 * the browser's way back leads to the address before.
 */
export function useAddress(): [(name: string) => string, (changes: Changes, push?: boolean) => void] {
  const [params, setParams] = useSearchParams();
  const set = (changes: Changes, push = false) =>
    setParams(
      (before) => {
        for (const [name, value] of Object.entries(changes)) {
          if (value) before.set(name, value);
          else before.delete(name);
        }
        return before;
      },
      { replace: !push },
    );
  return [(name) => params.get(name) ?? "", set];
}
