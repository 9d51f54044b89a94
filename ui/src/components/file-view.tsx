// The content of a file, wherever one is shown: text in an editor, pictures, tables, and for what is big or no text its
// first bytes. A file is read whole only where it is small.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { type Schemas, send } from "@/api/client";
import { bytes } from "@/lib/format";
import { extensionOf, fileUrl } from "@/lib/paths";
import { Button, buttonClass } from "./button";
import { DataTable } from "./data-table";
import { ErrorNote } from "./error-note";
import { Loading } from "./page";
import { Picture } from "./picture";

const Editor = lazy(() => import("./editor"));

/** Text up to this is edited; of more the beginning is shown. */
const WHOLE = 2 * 1024 * 1024;
const PICTURE = 32 * 1024 * 1024;
const BEGINNING = 64 * 1024;

const PICTURES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  ico: "image/x-icon",
  svg: "image/svg+xml",
};
const SEPARATORS: Record<string, string> = { csv: ",", tsv: "\t" };

export type File = Schemas["FileItem"];

/** The text of bytes, or nothing where they are not text. */
export function textOf(data: Uint8Array, cut: boolean): string | undefined {
  if (data.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data, { stream: cut });
  } catch {
    return undefined;
  }
}

interface Props {
  sandbox: string;
  file: File;
  /** What edits its text; without it the text is shown. */
  edit?: (text: string) => React.ReactNode;
}

export function FileView({ sandbox, file, edit }: Props) {
  const extension = extensionOf(file.path);
  const picture = PICTURES[extension];
  const whole = file.size <= (picture ? PICTURE : WHOLE);
  const { data, error, refetch } = useQuery({
    queryKey: ["content", sandbox, file.path, file.modified_at, file.size],
    queryFn: async ({ signal }) => {
      // A range of an empty file cannot be satisfied.
      const headers: Record<string, string> = whole ? {} : { Range: `bytes=0-${BEGINNING - 1}` };
      const response = await send(fileUrl(sandbox, file.path), { headers, signal });
      return new Uint8Array(await response.arrayBuffer());
    },
    gcTime: 0,
  });
  const [asText, setAsText] = useState(false);
  if (error) {
    return <ErrorNote what="The file cannot be read" error={error} retry={() => void refetch()} />;
  }
  if (!data) return <Loading />;
  if (picture && whole && !(asText && extension === "svg")) {
    return (
      <div className="flex h-full min-h-0 flex-col">
        {extension === "svg" && <Switch to="Show its text" onClick={() => setAsText(true)} />}
        <div className="flex min-h-0 flex-1 items-center justify-center bg-raised p-4">
          <Picture data={data} type={picture} name={file.name} />
        </div>
      </div>
    );
  }
  const text = textOf(data, !whole);
  if (text === undefined || !whole) {
    return <Beginning sandbox={sandbox} file={file} data={data} text={text} />;
  }
  const separator = SEPARATORS[extension];
  if (separator && !asText) {
    return (
      <div className="flex h-full min-h-0 flex-col">
        <Switch to="Edit as text" onClick={() => setAsText(true)} />
        <div className="min-h-0 flex-1">
          <DataTable text={text} separator={separator} />
        </div>
      </div>
    );
  }
  return (
    <Suspense fallback={<Loading />}>
      {edit?.(text) ?? <Editor value={text} language={extension} label={file.name} readOnly />}
    </Suspense>
  );
}

function Switch({ to, onClick }: { to: string; onClick: () => void }) {
  return (
    <div className="border-b px-2 py-1">
      <Button kind="quiet" small onClick={onClick}>
        {to}
      </Button>
    </div>
  );
}

/** What is too big to show whole, or is no text. */
function Beginning({ sandbox, file, data, text }: Props & { data: Uint8Array; text?: string }) {
  const shown = text ?? hex(data.subarray(0, 4096));
  return (
    <div className="flex h-full min-h-0 flex-col">
      <p className="flex flex-wrap items-center gap-2 border-b px-3 py-1 text-xs text-muted">
        {text === undefined ? "This is not text: its first bytes." : "Too big to edit here: its beginning."}{" "}
        {bytes(file.size)} in all.
        <a className={buttonClass("plain", true)} href={fileUrl(sandbox, file.path)} download={file.name}>
          Download
        </a>
      </p>
      <pre
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
        className="min-h-0 flex-1 overflow-auto p-3 font-mono text-xs"
      >
        {shown}
      </pre>
    </div>
  );
}

function hex(data: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}
