import { Menu } from "@base-ui/react/menu";
import { Check, Copy, Terminal } from "lucide-react";
import { Fragment } from "react";
import { useCopy } from "@/lib/use-copy";
import { buttonClass } from "./button";
import { MenuItem, MenuPopup } from "./menu";

/** A command in one line, with a button that copies it. */
export function CopyLine({ text }: { text: string }) {
  const [copied, copy] = useCopy();
  return (
    <div className="flex max-w-full items-center gap-2 rounded border bg-raised py-1 pr-1 pl-3 font-mono text-xs">
      <code className="min-w-0 flex-1 wrap-anywhere whitespace-pre-wrap">{text}</code>
      <button
        type="button"
        aria-label={copied ? "Copied" : "Copy"}
        onClick={() => copy(text)}
        className="rounded p-1 text-muted hover:text-text"
      >
        {copied ? <Check size={14} /> : <Copy size={14} />}
      </button>
    </div>
  );
}

export interface Command {
  cli?: string;
  curl?: string;
}

interface Props extends Command {
  /** Further commands, by what they do. */
  more?: Record<string, Command | false>;
  /** Without words, where there is little room. */
  small?: boolean;
}

/** What this page shows or does, as a command of the CLI and as curl, where there is one. */
export function CopyAs({ cli, curl, more = {}, small = false }: Props) {
  const [copied, copy] = useCopy();
  return (
    <Menu.Root>
      <Menu.Trigger className={buttonClass("quiet", true)} aria-label={small ? "Copy as" : undefined}>
        {copied ? <Check size={14} /> : <Terminal size={14} />}
        {!small && (copied ? "Copied" : "Copy as")}
      </Menu.Trigger>
      <MenuPopup>
        {cli && <MenuItem onClick={() => copy(cli)}>CLI</MenuItem>}
        {curl && <MenuItem onClick={() => copy(curl)}>curl</MenuItem>}
        {Object.entries(more).map(
          ([title, command]) =>
            command && (
              <Fragment key={title}>
                {command.cli && <MenuItem onClick={() => copy(command.cli ?? "")}>{title}: CLI</MenuItem>}
                {command.curl && <MenuItem onClick={() => copy(command.curl ?? "")}>{title}: curl</MenuItem>}
              </Fragment>
            ),
        )}
      </MenuPopup>
    </Menu.Root>
  );
}
