// The languages that the editor and the highlighter know, by the extension of a file's name or by their own.
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { type LanguageSupport, StreamLanguage } from "@codemirror/language";
import { css } from "@codemirror/legacy-modes/mode/css";
import { r } from "@codemirror/legacy-modes/mode/r";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html } from "@codemirror/legacy-modes/mode/xml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";

type Language = LanguageSupport | StreamLanguage<unknown>;

const LANGUAGES: Record<string, () => Language> = {
  py: python,
  js: () => javascript({ jsx: true }),
  ts: () => javascript({ typescript: true, jsx: true }),
  json,
  md: markdown,
  sh: () => StreamLanguage.define(shell),
  r: () => StreamLanguage.define(r),
  rs: () => StreamLanguage.define(rust),
  toml: () => StreamLanguage.define(toml),
  yaml: () => StreamLanguage.define(yaml),
  html: () => StreamLanguage.define(html),
  css: () => StreamLanguage.define(css),
};

const SAME: Record<string, string> = {
  python: "py",
  python3: "py",
  javascript: "js",
  node: "js",
  mjs: "js",
  cjs: "js",
  jsx: "js",
  typescript: "ts",
  tsx: "ts",
  bash: "sh",
  shell: "sh",
  zsh: "sh",
  console: "sh",
  rust: "rs",
  markdown: "md",
  yml: "yaml",
  htm: "html",
  xml: "html",
  svg: "html",
  ipynb: "json",
};

/** Nothing where it is not known. */
export function languageOf(name: string): Language | undefined {
  const key = name.toLowerCase();
  const known = SAME[key] ?? key;
  return Object.hasOwn(LANGUAGES, known) ? LANGUAGES[known]?.() : undefined;
}
