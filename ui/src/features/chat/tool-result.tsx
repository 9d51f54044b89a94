import { Download } from "lucide-react";
import { OutputBox, type Piece } from "@/components/output-box";
import { RichResult } from "@/components/rich-result";
import { Bytes } from "@/components/time";
import { nameOf } from "@/lib/paths";
import { plain, visibleLine } from "@/lib/plain-text";
import { downloadUrl, type Result } from "./tools";

interface Props {
  thread: string;
  /** Files can be downloaded. */
  exports: boolean;
  result?: Result;
  /** What it printed while this page looked on. */
  live?: Piece[];
  /** It is at work. */
  works: boolean;
}

/** What came of a call, while it is at work and after it. */
export function ToolResult({ thread, exports, result, live = [], works }: Props) {
  const pieces = live.length > 0 ? live : (result?.output ?? []);
  return (
    <>
      {(pieces.length > 0 || works) && (
        <OutputBox label="Output of the tool" pieces={pieces} ended={!works} />
      )}
      {result?.shown.map((shown, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: what was shown does not move
        <RichResult key={at} type={shown.type} data={shown.data} />
      ))}
      {result && result.files.length > 0 && (
        <ul aria-label="Files" className="flex flex-col gap-1 text-xs">
          {result.files.map((file) => (
            <li key={`${file.session} ${file.path}`} className="flex flex-wrap items-center gap-2">
              {exports && !file.error ? (
                <a
                  href={downloadUrl(thread, file)}
                  download={nameOf(file.path)}
                  className="inline-flex min-w-0 items-center gap-1 text-accent-text hover:underline"
                >
                  <Download size={12} aria-hidden="true" />
                  <span className="font-mono wrap-anywhere">{visibleLine(file.path)}</span>
                </a>
              ) : (
                <span className="font-mono wrap-anywhere">{visibleLine(file.path)}</span>
              )}
              {file.size !== undefined && (
                <span className="text-muted">
                  <Bytes count={file.size} />
                </span>
              )}
              {file.error && <span className="text-danger">{plain(file.error)}</span>}
            </li>
          ))}
        </ul>
      )}
      {result?.error && (
        <pre
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
          tabIndex={0}
          role="region"
          aria-label="Error"
          className="max-h-64 overflow-auto font-mono text-xs wrap-anywhere whitespace-pre-wrap text-danger"
        >
          {plain(result.error)}
        </pre>
      )}
      {result?.rest && <RichResult type="text/plain" data={result.rest} />}
    </>
  );
}
