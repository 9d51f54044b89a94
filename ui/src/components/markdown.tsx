// Markdown of a model. Its tokens become elements of this page one by one, so no HTML of the text is ever parsed: tags are
// shown as the text that they are, pictures are not loaded, and a link leads only to http, https or mail.
import { marked, type Token, type Tokens } from "marked";
import { createElement, Fragment, memo, type ReactNode } from "react";
import { plain, visible } from "@/lib/plain-text";
import { Code } from "./code";

/** Longer text, and what is nested deeper, is shown as it was written. */
const LONGEST = 200_000;
const DEEPEST = 24;

const ENTITIES: Record<string, string> = {
  "&amp;": "&",
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&#39;": "'",
  "&nbsp;": "\u00a0",
};

const textOf = (text: string) =>
  plain(text.replace(/&(?:amp|lt|gt|quot|#39|nbsp);/g, (each) => ENTITIES[each] ?? each));

/** The address of a link, where it is one that may be followed. */
export function safeAddress(href: string): string | undefined {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

function Anchor({ href, children }: { href: string; children: ReactNode }) {
  const address = safeAddress(href);
  if (!address) return children;
  return (
    <a
      href={address}
      title={address}
      target="_blank"
      rel="noopener noreferrer nofollow"
      className="text-accent-text underline wrap-anywhere"
    >
      {children}
    </a>
  );
}

function each(tokens: Token[] | undefined, depth: number): ReactNode {
  return tokens?.map((token, at) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: text grows at its end
    <Fragment key={at}>{element(token as Tokens.Generic, depth + 1)}</Fragment>
  ));
}

function list({ ordered, start, items }: Tokens.List, depth: number): ReactNode {
  const rows = items.map((item, at) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: text grows at its end
    <li key={at} className="[&>p]:my-0">
      {each(item.tokens, depth)}
    </li>
  ));
  if (!ordered) return <ul className="my-2 list-disc pl-6">{rows}</ul>;
  return (
    <ol start={Number(start) || 1} className="my-2 list-decimal pl-6">
      {rows}
    </ol>
  );
}

function table({ header, rows }: Tokens.Table, depth: number): ReactNode {
  const cells = (row: Tokens.TableCell[], name: "th" | "td") =>
    row.map((cell, at) =>
      createElement(name, { key: at, className: "border px-2 py-1 text-left" }, each(cell.tokens, depth)),
    );
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
    <div className="my-2 overflow-x-auto" tabIndex={0} role="region" aria-label="Table">
      <table className="border-collapse">
        <thead>
          <tr className="bg-raised">{cells(header, "th")}</tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows do not move
            <tr key={at}>{cells(row, "td")}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The element of a token. What is not listed here is shown as it was written. */
function element(token: Tokens.Generic, depth: number): ReactNode {
  if (depth > DEEPEST) return plain(token.raw);
  const inside = () => each(token.tokens, depth);
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p className="my-2 wrap-anywhere">{inside()}</p>;
    case "text":
    case "escape":
      return token.tokens ? inside() : textOf(token.text);
    case "heading":
      return createElement(
        `h${Math.min(6, token.depth + 2)}`,
        { className: token.depth < 3 ? "mt-3 mb-1 text-base font-medium" : "mt-3 mb-1 font-medium" },
        inside(),
      );
    case "strong":
      return <strong className="font-semibold">{inside()}</strong>;
    case "em":
      return <em>{inside()}</em>;
    case "del":
      return <del>{inside()}</del>;
    case "codespan":
      return (
        <code className="rounded border bg-raised px-1 font-mono text-xs wrap-anywhere">
          {visible(token.text)}
        </code>
      );
    case "code":
      return (
        <div className="my-2">
          <Code text={token.text} language={String(token.lang ?? "").split(/\s/)[0] ?? ""} label="Code" />
        </div>
      );
    case "blockquote":
      return <blockquote className="my-2 border-l-2 pl-3 text-muted">{inside()}</blockquote>;
    case "list":
      return list(token as Tokens.List, depth);
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "table":
      return table(token as Tokens.Table, depth);
    case "hr":
      return <hr className="my-3" />;
    case "br":
      return <br />;
    case "link":
      return <Anchor href={token.href}>{inside()}</Anchor>;
    case "image":
      return <Anchor href={token.href}>[picture: {textOf(token.text || token.href)}]</Anchor>;
    case "as written":
      return <p className="my-2 wrap-anywhere whitespace-pre-wrap">{plain(token.raw)}</p>;
    default:
      return plain(token.raw);
  }
}

/** One paragraph, list or the like; while the text grows, only its last one changes. */
const Part = memo(
  ({ token }: { token: Token }) => element(token as Tokens.Generic, 0),
  (before, now) => before.token.raw === now.token.raw && before.token.type === now.token.type,
);

/** Nothing where it is nested too deeply to be read. */
function tokensOf(text: string): Token[] | undefined {
  try {
    return marked.lexer(text, { gfm: true, breaks: false });
  } catch {
    return undefined;
  }
}

/** Where the whole cannot be read, each paragraph is, by itself; one that cannot stands as it was written. */
const paragraphs = (text: string): Token[] =>
  text.split(/\n{2,}/).flatMap((raw) => tokensOf(raw) ?? [{ type: "as written", raw } as Token]);

export const Markdown = memo(({ text }: { text: string }) => {
  const tokens = text.length <= LONGEST ? (tokensOf(text) ?? paragraphs(text)) : undefined;
  if (!tokens) return <pre className="overflow-x-auto whitespace-pre-wrap">{plain(text)}</pre>;
  return (
    <div className="[&>*:first-child]:mt-0 [&>*:last-child]:mb-0">
      {tokens.map((token, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: text grows at its end
        <Part key={at} token={token} />
      ))}
    </div>
  );
});
