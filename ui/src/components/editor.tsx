// CodeMirror with the console's colours. The document is the editor's own; `value` is what it begins with, and another
// `key` begins anew.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import { nonce } from "@/lib/nonce";
import { languageOf } from "./languages";

interface Props {
  value: string;
  /** The extension of the file's name, or the language's own name. */
  language: string;
  label: string;
  readOnly?: boolean;
  /** Without line numbers, as high as its text. */
  bare?: boolean;
  onChange?: (text: string) => void;
  /** By key: `Mod-s`, `Shift-Enter`. What returns true is done. */
  keys?: Record<string, (text: string) => void>;
}

const style = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--accent-text)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--warn)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.heading, tags.strong, tags.definition(tags.variableName)], fontWeight: "600" },
  { tag: tags.invalid, color: "var(--danger)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "12px", backgroundColor: "var(--surface)", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "18px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--muted)", border: "none" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent)",
  },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
});

export default function Editor(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the document is the editor's own after it was made
  useEffect(() => {
    if (!box.current) return;
    const { value, label, readOnly = false, bare = false, keys = {} } = latest.current;
    const own = Object.keys(keys).map((key) => ({
      key,
      run: (view: EditorView) => {
        latest.current.keys?.[key]?.(view.state.doc.toString());
        return true;
      },
    }));
    const view = new EditorView({
      parent: box.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          keymap.of(own),
          EditorView.cspNonce.of(nonce),
          bare ? [] : lineNumbers(),
          highlightSpecialChars(),
          history(),
          drawSelection(),
          indentOnInput(),
          indentUnit.of("    "),
          bracketMatching(),
          highlightSelectionMatches(),
          syntaxHighlighting(style),
          keymap.of([...defaultKeymap, ...searchKeymap, ...historyKeymap, indentWithTab]),
          EditorState.readOnly.of(readOnly),
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.onChange?.(update.state.doc.toString());
          }),
          theme,
          languageOf(props.language) ?? [],
        ],
      }),
    });
    return () => view.destroy();
  }, [props.language, props.readOnly]);
  return <div ref={box} className={props.bare ? "" : "h-full min-h-0 overflow-hidden"} />;
}
