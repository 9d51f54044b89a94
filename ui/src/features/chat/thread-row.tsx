import { Menu } from "@base-ui/react/menu";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Ellipsis, Pencil, Trash2 } from "lucide-react";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { ask, type ThreadItem } from "@/api/agent";
import { api, unwrap } from "@/api/client";
import { sandboxPage } from "@/api/queries";
import { Confirm } from "@/components/confirm";
import { Input } from "@/components/field";
import { Mark } from "@/components/mark";
import { MenuItem, MenuPopup } from "@/components/menu";
import { Time } from "@/components/time";
import { notify } from "@/components/toast";
import { cx } from "@/lib/cx";
import { useAddress } from "@/lib/use-address";
import { keepDraft } from "@/lib/use-draft";
import { titleOf } from "./text";

interface Props {
  thread: ThreadItem;
  isCurrent: boolean;
  readOnly: boolean;
}

export function ThreadRow({ thread, isCurrent, readOnly }: Props) {
  const [naming, setNaming] = useState(false);
  const [removing, setRemoving] = useState(false);
  const title = titleOf(thread);
  const [at] = useAddress();
  // The search stays as it is.
  const to = {
    pathname: `/chat/${thread.thread_id}`,
    search: at("q") && `?${new URLSearchParams({ q: at("q") })}`,
  };
  return (
    <li className={cx("group flex items-center rounded hover:bg-raised", isCurrent && "bg-raised")}>
      {naming ? (
        <Rename thread={thread} onClose={() => setNaming(false)} />
      ) : (
        <>
          <Link
            to={to}
            aria-current={isCurrent ? "page" : undefined}
            title={title}
            className="flex min-h-9 min-w-0 flex-1 flex-col justify-center rounded px-2 py-1"
          >
            <span className={cx("truncate", isCurrent && "font-medium")}>{title}</span>
            <span className="flex items-center gap-2 text-xs text-muted">
              <Time at={thread.updated_at} />
              {thread.status === "busy" && <Mark tone="works">at work</Mark>}
              {thread.status === "interrupted" && <Mark tone="waits">waits for you</Mark>}
              {thread.status === "error" && <Mark tone="lost">failed</Mark>}
            </span>
          </Link>
          {!readOnly && (
            <Menu.Root>
              <Menu.Trigger
                aria-label={`More about ${title}`}
                className="rounded p-1.5 text-muted opacity-0 group-hover:opacity-100 hover:text-text focus-visible:opacity-100 data-[popup-open]:opacity-100 max-md:opacity-100"
              >
                <Ellipsis size={14} />
              </Menu.Trigger>
              <MenuPopup>
                <MenuItem onClick={() => setNaming(true)}>
                  <Pencil size={14} />
                  Rename
                </MenuItem>
                <MenuItem danger onClick={() => setRemoving(true)}>
                  <Trash2 size={14} />
                  Delete
                </MenuItem>
              </MenuPopup>
            </Menu.Root>
          )}
        </>
      )}
      {removing && (
        <Remove thread={thread} title={title} isCurrent={isCurrent} onClose={() => setRemoving(false)} />
      )}
    </li>
  );
}

function Rename({ thread, onClose }: { thread: ThreadItem; onClose: () => void }) {
  const client = useQueryClient();
  const [title, setTitle] = useState(titleOf(thread));
  const rename = useMutation({
    mutationFn: () => ask("PATCH", `/threads/${thread.thread_id}`, { metadata: { title: title.trim() } }),
    onSuccess: async () => {
      void client.invalidateQueries({ queryKey: ["thread", thread.thread_id] });
      await client.invalidateQueries({ queryKey: ["threads"] });
      onClose();
    },
    meta: { failed: "The conversation was not renamed" },
  });
  return (
    <form
      className="flex-1 p-1"
      onSubmit={(event) => {
        event.preventDefault();
        if (title.trim()) rename.mutate();
      }}
    >
      <Input
        aria-label="New title"
        autoFocus
        maxLength={200}
        value={title}
        disabled={rename.isPending}
        onFocus={(event) => event.target.select()}
        onChange={(event) => setTitle(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          onClose();
        }}
        onBlur={() => !rename.isPending && onClose()}
      />
    </form>
  );
}

interface RemoveProps {
  thread: ThreadItem;
  title: string;
  isCurrent: boolean;
  onClose: () => void;
}

function Remove({ thread, title, isCurrent, onClose }: RemoveProps) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const id = thread.thread_id;
  const { data } = useQuery(sandboxPage({ labels: `atoll.thread=${id}`, page_size: 1 }));
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/threads/{thread_id}", { params: { path: { thread_id: id } } })),
    onSuccess: async () => {
      keepDraft(id, "");
      if (isCurrent) await navigate("/chat");
      client.removeQueries({ queryKey: ["thread", id] });
      client.removeQueries({ queryKey: ["live", id] });
      await client.invalidateQueries({ queryKey: ["threads"] });
      notify("The conversation is deleted");
      onClose();
    },
    meta: { failed: "The conversation was not deleted" },
  });
  const total = data?.total ?? 0;
  const sandboxes = total === 1 ? "its sandbox" : total > 1 ? `its ${total} sandboxes` : "any sandbox of it";
  return (
    <Confirm
      open
      title={`Delete "${title}"?`}
      verb="Delete"
      busy={remove.isPending}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>
        Lost are everything that was said in it, {sandboxes} with files and variables, what was exported and
        what was uploaded. A run that is under way is ended.
      </p>
    </Confirm>
  );
}
