// The command palette: pages, sandboxes by any part of their id, image, label or owner, conversations by their titles, and
// a few actions.
import { Autocomplete } from "@base-ui/react/autocomplete";
import { Dialog } from "@base-ui/react/dialog";
import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { useNavigate } from "react-router";
import { sandboxPage } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { shortId } from "@/components/id";
import { newestThreads } from "@/features/chat/queries";
import { titleOf } from "@/features/chat/text";
import { setTheme } from "@/lib/theme";
import { PAGES } from "./pages";

const MOST_THREADS = 6;

interface Action {
  value: string;
  label: string;
  note: string;
  run: () => void;
}

export function Palette({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="fixed inset-0 z-40 bg-bg/70" />
        <Dialog.Popup
          aria-label="Command palette"
          className="fixed top-24 left-1/2 z-50 w-[min(36rem,calc(100vw-2rem))] -translate-x-1/2 rounded border border-line-strong bg-surface"
        >
          <Search onClose={onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function useActions(text: string): Action[] {
  const navigate = useNavigate();
  const { scope } = useSignedIn();
  const search = useDeferredValue(text.trim());
  const isWanted = search.length > 1;
  const found = useQuery({ ...sandboxPage({ search, page_size: 8 }, scope === "admin"), enabled: isWanted });
  const talks = useQuery({ ...newestThreads(), enabled: isWanted });
  const pages = PAGES.filter((page) => page.title && (!page.admin || scope === "admin"));
  const fixed: Action[] = [
    ...pages.map((page) => ({
      value: page.path,
      label: page.title ?? page.path,
      note: "page",
      run: () => void navigate(`/${page.path}`),
    })),
    {
      value: "create",
      label: "Create a sandbox",
      note: "action",
      run: () => void navigate("/sandboxes?create=1"),
    },
    ...(["light", "dark", "system"] as const).map((theme) => ({
      value: `theme ${theme}`,
      label: `Theme: ${theme}`,
      note: "action",
      run: () => setTheme(theme),
    })),
  ];
  const wanted = search.toLowerCase();
  const sandboxes = (found.data?.items ?? []).map((sandbox) => ({
    value: sandbox.id,
    label: `${shortId(sandbox.id)}  ${sandbox.image}  ${Object.values(sandbox.labels).join(" ")}`,
    note: sandbox.status,
    run: () => void navigate(`/sandboxes/${sandbox.id}`),
  }));
  const threads = (talks.data ?? []).map((thread) => ({
    value: `thread ${thread.thread_id}`,
    label: titleOf(thread),
    note: "conversation",
    run: () => void navigate(`/chat/${thread.thread_id}`),
  }));
  const named = ({ label }: Action) => label.toLowerCase().includes(wanted);
  return [
    ...fixed.filter(named),
    ...(wanted ? sandboxes : []),
    ...(wanted ? threads.filter(named).slice(0, MOST_THREADS) : []),
  ];
}

function Search({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const actions = useActions(text);
  return (
    <Autocomplete.Root
      open
      inline
      items={actions}
      mode="none"
      autoHighlight="always"
      keepHighlight
      value={text}
      onValueChange={setText}
      itemToStringValue={(action: Action) => action.label}
    >
      <Autocomplete.Input
        aria-label="Go to"
        placeholder="A page, a conversation, or part of a sandbox's id, image, label or owner"
        className="h-11 w-full border-b bg-surface px-3 outline-none"
      />
      <Autocomplete.Empty>
        <div className="p-3 text-muted empty:hidden">Nothing has that name.</div>
      </Autocomplete.Empty>
      <Autocomplete.List className="max-h-80 overflow-y-auto py-1">
        {(action: Action) => (
          <Autocomplete.Item
            key={action.value}
            value={action}
            onClick={() => {
              onClose();
              action.run();
            }}
            className="flex h-9 cursor-default items-center justify-between gap-3 px-3 data-[highlighted]:bg-raised"
          >
            <span className="truncate">{action.label}</span>
            <span className="text-xs text-muted">{action.note}</span>
          </Autocomplete.Item>
        )}
      </Autocomplete.List>
    </Autocomplete.Root>
  );
}
