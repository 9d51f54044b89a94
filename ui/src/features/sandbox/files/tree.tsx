// The folders and files below /workspace. A folder is read when it is opened.
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, File, FileSymlink, Folder } from "lucide-react";
import { useState } from "react";
import { cx } from "@/lib/cx";
import { visibleLine } from "@/lib/plain-text";
import { folder, type Item } from "./queries";

interface Props {
  sandbox: string;
  path: string;
  shown: string;
  onShow: (path: string) => void;
  depth?: number;
}

export function Tree({ sandbox, path, shown, onShow, depth = 0 }: Props) {
  const { data } = useQuery(folder(sandbox, path));
  return (
    <ul>
      {data?.items.map((item) => (
        <Branch key={item.path} {...{ sandbox, item, shown, onShow, depth }} />
      ))}
      {data?.truncated && (
        <li className="px-2 py-1 text-xs text-muted" style={{ paddingLeft: depth * 12 + 24 }}>
          and more
        </li>
      )}
    </ul>
  );
}

export const kindIcon = (item: Pick<Item, "type">) => {
  if (item.type === "directory") return <Folder size={14} className="shrink-0 text-muted" />;
  if (item.type === "symlink") return <FileSymlink size={14} className="shrink-0 text-muted" />;
  return <File size={14} className="shrink-0 text-muted" />;
};

function Branch({
  sandbox,
  item,
  shown,
  onShow,
  depth,
}: Omit<Props, "path" | "depth"> & { item: Item; depth: number }) {
  const within = shown === item.path || shown.startsWith(`${item.path}/`);
  const [open, setOpen] = useState(within);
  const here = shown === item.path;
  const Chevron = open ? ChevronDown : ChevronRight;
  return (
    <li>
      <button
        type="button"
        aria-expanded={item.is_directory ? open : undefined}
        aria-current={here || undefined}
        title={visibleLine(item.path)}
        onClick={() => {
          if (item.is_directory) setOpen(here ? !open : true);
          onShow(item.path);
        }}
        style={{ paddingLeft: depth * 12 + 8 }}
        className={cx(
          "flex h-7 w-full items-center gap-1.5 pr-2 text-left text-xs hover:bg-raised",
          here && "bg-raised font-medium",
        )}
      >
        {item.is_directory ? <Chevron size={12} className="shrink-0" /> : <span className="w-3 shrink-0" />}
        {kindIcon(item)}
        <span className="truncate">{visibleLine(item.name)}</span>
      </button>
      {item.is_directory && open && (
        <Tree sandbox={sandbox} path={item.path} shown={shown} onShow={onShow} depth={depth + 1} />
      )}
    </li>
  );
}
