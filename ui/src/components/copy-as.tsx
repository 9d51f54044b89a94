import { Menu } from "@base-ui/react/menu";
import { Check, Copy, Terminal } from "lucide-react";
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

/** What this page shows or does, as a command of the CLI and as curl. `small`: without words, where there is little room. */
export function CopyAs({ cli, curl, small = false }: { cli?: string; curl: string; small?: boolean }) {
  const [copied, copy] = useCopy();
  return (
    <Menu.Root>
      <Menu.Trigger className={buttonClass("quiet", true)} aria-label={small ? "Copy as" : undefined}>
        {copied ? <Check size={14} /> : <Terminal size={14} />}
        {!small && (copied ? "Copied" : "Copy as")}
      </Menu.Trigger>
      <MenuPopup>
        {cli && <MenuItem onClick={() => copy(cli)}>CLI</MenuItem>}
        <MenuItem onClick={() => copy(curl)}>curl</MenuItem>
      </MenuPopup>
    </Menu.Root>
  );
}
