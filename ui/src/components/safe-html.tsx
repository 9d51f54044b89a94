// HTML from inside a sandbox. It is shown in a frame without scripts and without an origin, and only elements and
// attributes of a short list are put into it, so that nothing in it asks for anything.
import { useMemo } from "react";
import { nonce } from "@/lib/nonce";
import { useShownTheme } from "@/lib/theme";

const ELEMENTS = new Set(
  (
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins li ol p " +
    "pre s small span strong sub summary sup table tbody td tfoot th thead tr u ul"
  ).split(" "),
);
const ATTRIBUTES = new Set(["colspan", "rowspan", "alt", "title", "open"]);
/** Left out with all that is in them; of others only the tags are. */
const DROPPED = new Set([
  "script",
  "style",
  "template",
  "noscript",
  "iframe",
  "object",
  "svg",
  "math",
  "title",
]);

function copy(from: Node, to: Node, into: Document): void {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) to.appendChild(into.createTextNode(node.textContent ?? ""));
    if (!(node instanceof Element)) continue;
    const name = node.localName;
    if (DROPPED.has(name)) continue;
    if (!ELEMENTS.has(name)) {
      copy(node, to, into);
      continue;
    }
    const made = into.createElement(name);
    for (const attribute of node.attributes) {
      if (ATTRIBUTES.has(attribute.name)) made.setAttribute(attribute.name, attribute.value);
    }
    const source = node.getAttribute("src") ?? "";
    if (name === "img" && source.startsWith("data:image/")) made.setAttribute("src", source);
    to.appendChild(made);
    copy(node, made, into);
  }
}

/** The parser already reports handlers, styles and base addresses to the page's policy, though none of them is used;
 *  under other names it does not. What this misses is still left out by `copy`. */
function renamed(html: string): string {
  return html
    .replace(/<(\/?)(script|style|base|meta|link|iframe|embed)\b/gi, "<$1x-dropped")
    .replace(/<[a-z][^>]*>/gi, (tag) => tag.replace(/([\s/"'])(on\w+|style)(?=\s*=)/gi, "$1data-$2"));
}

/** A document without scripts, styles, links and requests. */
export function cleaned(html: string): string {
  const from = new DOMParser().parseFromString(renamed(html), "text/html");
  const into = document.implementation.createHTMLDocument("");
  copy(from.body, into.body, into);
  return into.body.innerHTML;
}

const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function SafeHtml({ html }: { html: string }) {
  const theme = useShownTheme();
  const page = useMemo(() => {
    const style = `:root{color-scheme:${theme}} body{margin:8px;font:13px/1.4 system-ui,sans-serif;color:${token("--text")};background:${token("--surface")}} table{border-collapse:collapse} td,th{border:1px solid ${token("--line")};padding:2px 8px;text-align:left} img{max-width:100%}`;
    return `<!doctype html><style nonce="${nonce}">${style}</style>${cleaned(html)}`;
  }, [html, theme]);
  return (
    <iframe
      title="HTML of a result"
      sandbox=""
      srcDoc={page}
      className="h-56 w-full resize-y overflow-auto rounded border"
    />
  );
}
