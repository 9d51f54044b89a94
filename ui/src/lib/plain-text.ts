// Text from inside a sandbox, for a page: without the escape sequences of terminals, with other control characters and
// those that change the direction of text shown as what they are.

// biome-ignore-start lint/suspicious/noControlCharactersInRegex: they are what is looked for
const SEQUENCES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
// biome-ignore-end lint/suspicious/noControlCharactersInRegex: they are what is looked for

export function plain(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(SEQUENCES, "")
    .replace(CONTROLS, (letter) => {
      const code = letter.charCodeAt(0);
      if (letter === "\r") return "\n";
      return code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd";
    });
}

/** What a page does not draw, or draws as what it is not: controls, blanks other than a space, zero-width characters, and
 * those that change the direction of text. */
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]/gu;

function symbolOf(letter: string): string {
  const code = letter.codePointAt(0) ?? 0;
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  if (code === 127) return "\u2421";
  return `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
}

/**
 * A program, a command or arguments, for a page: nothing is left out, and each character that would not show is a symbol.
 * What a person approves is what is carried out, so the escape sequences that [`plain`] removes are shown here.
 */
export const visible = (text: string) =>
  text.replace(UNSEEN, (letter) => (letter === "\n" || letter === "\t" ? letter : symbolOf(letter)));

/** The same of what is one line, such as a path: its line breaks are symbols, too. */
export const visibleLine = (text: string) => text.replace(UNSEEN, symbolOf);
