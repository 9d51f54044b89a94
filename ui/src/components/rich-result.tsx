// What a cell showed, by its type.
import { useMemo } from "react";
import { plain } from "@/lib/plain-text";
import { Picture } from "./picture";
import { SafeHtml } from "./safe-html";

/** What code shows need not be what it says: no bytes then, which are no picture either. */
function rawOf(data: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

export function RichResult({ type, data }: { type: string; data: string }) {
  const bytes = useMemo(() => {
    if (type === "image/svg+xml") return data;
    return type.startsWith("image/") ? rawOf(data) : undefined;
  }, [type, data]);
  if (bytes !== undefined) {
    return (
      <div className="max-h-[32rem] max-w-full overflow-auto">
        <Picture data={bytes} type={type} name="A picture of a result" />
      </div>
    );
  }
  if (type === "text/html") return <SafeHtml html={data} />;
  if (type.startsWith("text/") || type.includes("json")) {
    return <pre className="overflow-x-auto font-mono text-xs whitespace-pre-wrap">{plain(data)}</pre>;
  }
  return (
    <a
      className="text-xs text-accent-text underline"
      href={`data:application/octet-stream;base64,${data}`}
      download={`result.${type.split("/")[1]?.replace(/\W.*/, "") ?? "bin"}`}
    >
      Download the result ({type})
    </a>
  );
}
