// What a person said. It can be said otherwise: the conversation then goes on from there, and what came after it stays in
// its history.
import { Pencil } from "lucide-react";
import { useState } from "react";
import type { HumanMessage } from "@/api/agent";
import { Button } from "@/components/button";
import { RichResult } from "@/components/rich-result";
import { plain } from "@/lib/plain-text";
import { FileChip } from "./file-chip";
import { textOf, withFiles, withoutFiles } from "./text";

interface Props {
  message: HumanMessage;
  /** Nothing while it cannot be said otherwise. */
  onEdit?: (content: string) => Promise<unknown>;
}

export function Question({ message, onEdit }: Props) {
  const { text, files } = withoutFiles(textOf(message.content));
  const [draft, setDraft] = useState<string>();
  const send = async () => {
    if (draft === undefined || !onEdit) return;
    try {
      await onEdit(withFiles(draft.trim(), files));
      setDraft(undefined);
    } catch {
      // A notice says why; what was typed stays.
    }
  };
  return (
    <div className="group mt-2 ml-auto flex max-w-[85%] min-w-0 flex-col items-end gap-1">
      {draft === undefined ? (
        <div className="max-w-full rounded border bg-raised px-3 py-2 wrap-anywhere whitespace-pre-wrap">
          {plain(text)}
          <Pictures message={message} />
        </div>
      ) : (
        <form
          className="flex w-[min(36rem,100%)] flex-col gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
        >
          <textarea
            aria-label="The message, said otherwise"
            value={draft}
            // biome-ignore lint/a11y/noAutofocus: it takes the place of the button that was pressed
            autoFocus
            onChange={(event) => setDraft(event.target.value)}
            onKeyDown={(event) => event.key === "Escape" && setDraft(undefined)}
            className="field-sizing-content max-h-60 min-h-16 w-full rounded border border-line-strong bg-surface p-2 focus:border-accent focus:outline-none"
          />
          <p className="text-xs text-muted">
            The agent goes on from here. What came after stays in the history.
          </p>
          <div className="flex justify-end gap-2">
            <Button small onClick={() => setDraft(undefined)}>
              Keep it
            </Button>
            <Button kind="primary" small type="submit" disabled={!onEdit || draft.trim() === ""}>
              Send from here
            </Button>
          </div>
        </form>
      )}
      {files.length > 0 && (
        <ul aria-label="Attached files" className="flex flex-wrap justify-end gap-1">
          {files.map((name) => (
            <li key={name}>
              <FileChip name={name} />
            </li>
          ))}
        </ul>
      )}
      {onEdit && draft === undefined && (
        <Button
          kind="quiet"
          small
          icon={<Pencil size={12} />}
          onClick={() => setDraft(text)}
          className="opacity-0 group-hover:opacity-100 focus-visible:opacity-100 max-md:opacity-100"
        >
          Edit
        </Button>
      )}
    </div>
  );
}

/** Pictures that another client sent; those of other servers are not loaded. */
function Pictures({ message }: { message: HumanMessage }) {
  if (typeof message.content === "string") return null;
  const urls = message.content.flatMap((block) => block.image_url?.url ?? []);
  return urls.map((url, at) => {
    const [, type, data] = /^data:(image\/(?:png|jpeg|gif|webp));base64,([\w+/=]+)$/.exec(url) ?? [];
    const shown =
      type && data ? { type, data } : { type: "text/plain", data: `[picture: ${url.slice(0, 200)}]` };
    // biome-ignore lint/suspicious/noArrayIndexKey: what was sent does not move
    return <RichResult key={at} {...shown} />;
  });
}
