// Uploads with their progress. They go one after another; one that was left ends with the page.
import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useCallback, useRef, useState } from "react";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { bytes } from "@/lib/format";
import { fileUrl, join } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";
import { upload } from "@/lib/upload";

/** A file to upload, and its path below the folder that it was dropped on. */
export interface Chosen {
  file: File;
  path: string;
}

interface Upload {
  key: number;
  path: string;
  size: number;
  sent: number;
  state: "waits" | "runs" | "done" | "failed";
  error?: string;
}

/** What was dropped: files, and the files of folders with their paths. */
export async function dropped(transfer: DataTransfer): Promise<Chosen[]> {
  const entries = [...transfer.items]
    .map((item) => item.webkitGetAsEntry())
    .filter((entry): entry is FileSystemEntry => entry !== null);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ file, path: file.name }));
  return (await Promise.all(entries.map((entry) => filesOf(entry, "")))).flat();
}

async function filesOf(entry: FileSystemEntry, above: string): Promise<Chosen[]> {
  const path = above + entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((done, fail) => (entry as FileSystemFileEntry).file(done, fail));
    return [{ file, path }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: Chosen[] = [];
  for (;;) {
    // A reader gives a folder in parts, and an empty part at its end.
    const part = await new Promise<FileSystemEntry[]>((done, fail) => reader.readEntries(done, fail));
    if (part.length === 0) return found;
    for (const each of part) found.push(...(await filesOf(each, `${path}/`)));
  }
}

let last = 0;

export function useUploads(sandbox: string) {
  const client = useQueryClient();
  const [list, setList] = useState<Upload[]>([]);
  const ends = useRef(new Map<number, AbortController>());
  const change = useCallback((key: number, to: Partial<Upload>) => {
    setList((before) => before.map((each) => (each.key === key ? { ...each, ...to } : each)));
  }, []);
  const start = async (folder: string, chosen: Chosen[]) => {
    const fresh = chosen.map(({ file, path }) => {
      last += 1;
      ends.current.set(last, new AbortController());
      return { key: last, path: join(folder, path), size: file.size, sent: 0, state: "waits" as const, file };
    });
    setList((before) => [...before.filter((each) => each.state !== "done"), ...fresh]);
    for (const { key, path, file } of fresh) {
      const signal = ends.current.get(key)?.signal ?? AbortSignal.abort();
      if (signal.aborted) continue;
      change(key, { state: "runs" });
      try {
        await upload(fileUrl(sandbox, path), {
          method: "PUT",
          body: file,
          onSent: (sent) => change(key, { sent }),
          signal,
        });
        change(key, { state: "done", sent: file.size });
      } catch (error) {
        change(key, { state: "failed", error: error instanceof Error ? error.message : String(error) });
      }
    }
    await refreshSandbox(client, sandbox);
  };
  const drop = (key: number) => {
    ends.current.get(key)?.abort();
    setList((before) => before.filter((each) => each.key !== key));
  };
  return { list, start, drop };
}

export function Uploads({ list, onDrop }: { list: Upload[]; onDrop: (key: number) => void }) {
  if (list.length === 0) return null;
  return (
    <ul aria-label="Uploads" className="max-h-40 shrink-0 overflow-y-auto border-t">
      {list.map(({ key, path, size, sent, state, error }) => (
        <li key={key} className="flex h-8 items-center gap-2 px-3 text-xs">
          <span className="min-w-0 flex-1 truncate font-mono">{visibleLine(path)}</span>
          {error ? (
            <span className="truncate text-danger">{error}</span>
          ) : (
            <progress
              aria-label={`Upload of ${visibleLine(path)}`}
              value={size ? sent / size : Number(state === "done")}
              className="h-1.5 w-24 accent-accent"
            />
          )}
          <span className="w-24 shrink-0 text-right text-muted">
            {state === "done" ? "uploaded" : state === "waits" ? "waits" : bytes(sent)}{" "}
            {state === "done" && bytes(size)}
          </span>
          <Button
            kind="quiet"
            small
            aria-label={state === "runs" || state === "waits" ? "Cancel the upload" : "Close"}
            onClick={() => onDrop(key)}
          >
            <X size={12} />
          </Button>
        </li>
      ))}
    </ul>
  );
}
