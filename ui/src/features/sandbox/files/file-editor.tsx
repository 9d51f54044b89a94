// The editor of a file. Before it writes, it asks whether the file is still the one that was opened; where it is not, the
// user decides which of the two is kept.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Save } from "lucide-react";
import { useEffect, useState } from "react";
import { useBlocker } from "react-router";
import { send } from "@/api/client";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import Editor from "@/components/editor";
import { Time } from "@/components/time";
import { notify } from "@/components/toast";
import { extensionOf, fileUrl } from "@/lib/paths";
import { type Item, readStat } from "./queries";

interface Props {
  sandbox: string;
  /** The file as it was when its text was read. */
  opened: Item;
  /** As it is now. */
  now: Item;
  text: string;
  /** It was saved, or the other version is wanted. */
  onOpened: (file: Item) => void;
}

const same = (a: Item, b: Item) => a.modified_at === b.modified_at && a.size === b.size;

/** The page and the file of an address. */
const placeOf = ({ pathname, search }: { pathname: string; search: string }) =>
  `${pathname} ${new URLSearchParams(search).get("path")}`;

/** Another program changed the file; nothing was written. */
class Conflict extends Error {}

export function FileEditor({ sandbox, opened, now, text, onOpened }: Props) {
  const client = useQueryClient();
  const [typed, setTyped] = useState(text);
  const [base, setBase] = useState(text);
  const [at, setAt] = useState(opened);
  const dirty = typed !== base;
  const save = useMutation({
    mutationFn: async ({ content, force }: { content: string; force: boolean }) => {
      if (!force && !same(at, await readStat(sandbox, at.path))) throw new Conflict("it changed");
      await send(fileUrl(sandbox, at.path), { method: "PUT", body: content });
      return readStat(sandbox, at.path);
    },
    onSuccess: (after, { content }) => {
      setBase(content);
      setAt(after);
      client.setQueryData(["inside", sandbox, "stat", at.path], after);
      notify("Saved");
    },
    onError: (error) => {
      if (error instanceof Conflict)
        void client.invalidateQueries({ queryKey: ["inside", sandbox, "stat", at.path] });
    },
    meta: {},
  });
  // Another view of the same file keeps what was typed.
  const blocker = useBlocker(
    ({ currentLocation: here, nextLocation: next }) => dirty && placeOf(here) !== placeOf(next),
  );
  useEffect(() => {
    if (!dirty) return;
    const hold = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", hold);
    return () => removeEventListener("beforeunload", hold);
  }, [dirty]);
  const changed = !same(at, now) && !save.isPending;
  // Where nothing was typed, the newer content simply takes its place.
  useEffect(() => {
    if (changed && !dirty) onOpened(now);
  }, [changed, dirty, now, onOpened]);
  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="flex min-h-9 flex-wrap items-center gap-2 border-b px-3 py-1 text-xs text-muted">
        <span className="flex-1">{dirty ? "Changed here, not saved" : "As in the sandbox"}</span>
        <Button
          small
          kind={dirty ? "primary" : "plain"}
          icon={<Save size={14} />}
          disabled={!dirty || save.isPending}
          onClick={() => save.mutate({ content: typed, force: false })}
        >
          Save
        </Button>
      </div>
      {changed && dirty && (
        <div role="alert" className="flex flex-wrap items-center gap-2 border-b bg-raised px-3 py-2 text-xs">
          <span className="flex-1">
            Something else changed this file <Time at={now.modified_at} suffix=" ago" />. Which one is kept?
          </span>
          <Button small onClick={() => save.mutate({ content: typed, force: true })}>
            Mine: write over it
          </Button>
          <Button small onClick={() => onOpened(now)}>
            The other: load it
          </Button>
        </div>
      )}
      {save.error && !(save.error instanceof Conflict) && (
        <p role="alert" className="border-b px-3 py-2 text-xs text-danger">
          It was not saved: {save.error.message}
        </p>
      )}
      <div className="min-h-0 flex-1">
        <Editor
          value={text}
          language={extensionOf(at.path)}
          label={`Content of ${at.name}`}
          onChange={setTyped}
          keys={{ "Mod-s": (content) => dirty && save.mutate({ content, force: false }) }}
        />
      </div>
      <Confirm
        open={blocker.state === "blocked"}
        title="Leave without saving?"
        verb="Leave"
        onClose={() => blocker.reset?.()}
        onConfirm={() => blocker.proceed?.()}
      >
        What you changed in {at.name} is lost.
      </Confirm>
    </div>
  );
}
