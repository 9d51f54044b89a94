// Code in the colours of the editor, as parts of text. It is loaded when code is first shown.
import { StreamLanguage } from "@codemirror/language";
import { highlightCode, tagHighlighter, tags } from "@lezer/highlight";
import { languageOf } from "./languages";

export interface Part {
  text: string;
  style: string;
}

const colours = tagHighlighter([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], class: "text-accent-text" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], class: "text-ok" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], class: "text-warn" },
  { tag: [tags.comment, tags.meta], class: "text-muted italic" },
  { tag: [tags.heading, tags.strong, tags.definition(tags.variableName)], class: "font-semibold" },
  { tag: tags.invalid, class: "text-danger" },
]);

/** The parts of a text; nothing where its language is not known. */
export function highlight(text: string, name: string): Part[] | undefined {
  const found = languageOf(name);
  if (!found) return undefined;
  const language = found instanceof StreamLanguage ? found : found.language;
  const parts: Part[] = [];
  const put = (part: string, style: string) => parts.push({ text: part, style });
  highlightCode(text, language.parser.parse(text), colours, put, () => put("\n", ""));
  return parts;
}
