// Where a person writes. What was typed is kept until it was sent.
import { ArrowUp, Paperclip, Square } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { Button } from "@/components/button";
import { bytes } from "@/lib/format";
import { FileChip } from "./file-chip";

interface Props {
  text: string;
  files: File[];
  onText: (text: string) => void;
  onFiles: (files: File[]) => void;
  onSend: () => void;
  /** Something is being sent: how many bytes of the files went. */
  sending?: { sent: number; stop: () => void };
  /** The agent is at work: what cancels it. */
  onCancel?: () => void;
  cancelling?: boolean;
  /** Below the box. */
  hint?: ReactNode;
}

export function Composer(props: Props) {
  const { text, files, onText, onFiles, onSend, sending, onCancel, cancelling, hint } = props;
  const box = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  // Where there is a keyboard; on a telephone it would open one over half of the page.
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) box.current?.focus({ preventScroll: true });
  }, []);
  const ready = !sending && !onCancel && (text.trim() !== "" || files.length > 0);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (ready) onSend();
  };
  const total = files.reduce((sum, file) => sum + file.size, 0);
  return (
    <div className="border-t bg-bg px-4 py-3">
      <form
        aria-label="Write to the agent"
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) onSend();
        }}
        className="mx-auto flex max-w-3xl flex-col gap-2 rounded border border-line-strong bg-surface p-2 focus-within:border-accent"
      >
        {files.length > 0 && (
          <ul aria-label="Files to send" className="flex flex-wrap gap-1">
            {files.map((file) => (
              <li key={file.name}>
                <FileChip
                  name={file.name}
                  note={bytes(file.size)}
                  onRemove={sending ? undefined : () => onFiles(files.filter((each) => each !== file))}
                />
              </li>
            ))}
          </ul>
        )}
        <textarea
          ref={box}
          aria-label="Message"
          rows={2}
          value={text}
          placeholder="Ask for something. Enter sends, Shift+Enter begins a line."
          onChange={(event) => onText(event.target.value)}
          onKeyDown={onKeyDown}
          className="field-sizing-content max-h-60 min-h-10 w-full resize-none bg-surface px-1 text-sm outline-none"
        />
        <div className="flex items-center gap-2">
          <input
            ref={picker}
            type="file"
            multiple
            aria-label="Files"
            className="hidden"
            onChange={(event) => {
              onFiles(added(files, [...(event.target.files ?? [])]));
              event.target.value = "";
            }}
          />
          <Button
            kind="quiet"
            small
            icon={<Paperclip size={14} />}
            disabled={sending !== undefined}
            onClick={() => picker.current?.click()}
          >
            Attach
          </Button>
          <span className="min-w-0 flex-1 text-xs text-muted" role="status">
            {sending && files.length > 0
              ? `${bytes(Math.min(sending.sent, total))} of ${bytes(total)} sent`
              : hint}
          </span>
          {sending && files.length > 0 && (
            <Button small onClick={sending.stop}>
              Stop the upload
            </Button>
          )}
          {onCancel ? (
            <Button small icon={<Square size={12} />} disabled={cancelling} onClick={onCancel}>
              Cancel
            </Button>
          ) : (
            <Button kind="primary" small type="submit" icon={<ArrowUp size={14} />} disabled={!ready}>
              Send
            </Button>
          )}
        </div>
      </form>
    </div>
  );
}

/** One of the same name takes the other's place, as on the server. */
export function added(before: File[], more: File[]): File[] {
  const names = new Set(more.map((file) => file.name));
  return [...before.filter((file) => !names.has(file.name)), ...more];
}
