//! Markdown as it streams, for a terminal: emphasis, code, headings, lists and quotes as styles, code blocks in colours. It holds
//! back no more than the characters that may be a mark, and the line of a code block that is being written. What comes in has no
//! control characters but line ends.

use super::highlight::Highlighter;

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const ITALIC: &str = "\u{1b}[3m";
const UNDERLINED: &str = "\u{1b}[4m";
const CODE: &str = "\u{1b}[36m";
const PLAIN: &str = "\u{1b}[0m";

/// Text that is styled as it comes.
#[derive(Default)]
pub(crate) struct Markdown {
    /// What begins a line and may be a mark; none within a line.
    begin: Option<String>,
    /// Stars whose meaning the next character tells.
    stars: String,
    /// Whether a backslash came.
    escaped: bool,
    heading: bool,
    bold: bool,
    italic: bool,
    code: bool,
    fence: Option<Fence>,
}

/// A block of code.
struct Fence {
    highlighter: Highlighter,
    line: String,
}

/// What the beginning of a line is.
enum Beginning {
    /// It cannot be told yet.
    Open,
    Text,
    Heading,
    /// A list's mark, with what is shown for it.
    Item(String),
    Quote,
    /// The whole line that begins a block of code decides of what language it is.
    Fence,
}

fn beginning(text: &str) -> Beginning {
    let indent = text.len() - text.trim_start_matches(' ').len();
    let rest = &text[indent..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    match rest {
        "" | "-" | "*" | "+" | ">" | "`" | "``" => Beginning::Open,
        "- " | "* " | "+ " => Beginning::Item(format!("{}• ", &text[..indent])),
        "> " => Beginning::Quote,
        _ if rest.starts_with("```") => Beginning::Fence,
        _ if (1..=6).contains(&hashes) && rest.len() == hashes => Beginning::Open,
        _ if (1..=6).contains(&hashes) && &rest[hashes..] == " " => Beginning::Heading,
        _ => Beginning::Text,
    }
}

impl Markdown {
    pub(crate) fn new() -> Self {
        Self { begin: Some(String::new()), ..Self::default() }
    }

    /// The next piece, styled as far as it can be told.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        text.chars().for_each(|c| self.next(c, &mut out));
        out
    }

    /// What was held back, and the end of every style.
    pub(crate) fn end(&mut self) -> String {
        let mut out = String::new();
        if let Some(mut fence) = self.fence.take() {
            out.push_str(&fence.highlighter.line(&fence.line));
        }
        // A mark that nothing followed is text.
        self.begin.take().unwrap_or_default().chars().for_each(|c| self.inline(c, &mut out));
        self.settle(' ', &mut out);
        if self.escaped {
            out.push('\\');
        }
        if self.heading || self.bold || self.italic || self.code {
            out.push_str(PLAIN);
        }
        *self = Self::new();
        out
    }

    fn next(&mut self, c: char, out: &mut String) {
        if self.fence.is_some() {
            return self.of_code(c, out);
        }
        let Some(begin) = &mut self.begin else { return self.inline(c, out) };
        if c == '\n' {
            let begun = std::mem::take(begin);
            if let Some(info) = begun.trim_start().strip_prefix("```").filter(|info| !info.contains('`')) {
                out.push_str(&format!("{DIM}{begun}{PLAIN}\n"));
                self.fence = Some(Fence { highlighter: Highlighter::new(info), line: String::new() });
                return;
            }
            self.begin = None;
            begun.chars().for_each(|c| self.inline(c, out));
            return self.inline('\n', out);
        }
        begin.push(c);
        match beginning(begin) {
            Beginning::Open | Beginning::Fence => {}
            Beginning::Heading => {
                (self.begin, self.heading) = (None, true);
                out.push_str(&self.style());
            }
            Beginning::Item(mark) => {
                self.begin = None;
                out.push_str(&mark);
            }
            Beginning::Quote => {
                self.begin = None;
                out.push_str(&format!("{DIM}│{PLAIN} "));
            }
            Beginning::Text => {
                let begun = self.begin.take().unwrap_or_default();
                begun.chars().for_each(|c| self.inline(c, out));
            }
        }
    }

    fn of_code(&mut self, c: char, out: &mut String) {
        let Some(fence) = &mut self.fence else { return };
        if c != '\n' {
            return fence.line.push(c);
        }
        let line = std::mem::take(&mut fence.line);
        let ends = line.trim().len() >= 3 && line.trim().chars().all(|c| c == '`');
        if ends {
            out.push_str(&format!("{DIM}{line}{PLAIN}\n"));
            (self.fence, self.begin) = (None, Some(String::new()));
        } else {
            out.push_str(&fence.highlighter.line(&line));
            out.push('\n');
        }
    }

    fn inline(&mut self, c: char, out: &mut String) {
        if std::mem::take(&mut self.escaped) {
            if !c.is_ascii_punctuation() {
                out.push('\\');
            }
            if c != '\n' {
                return out.push(c);
            }
        }
        if c == '*' && !self.code {
            return self.stars.push('*');
        }
        self.settle(c, out);
        match c {
            '\n' => {
                if self.heading || self.bold || self.italic || self.code {
                    out.push_str(PLAIN);
                }
                *self = Self::new();
                out.push('\n');
            }
            '`' => {
                self.code = !self.code;
                out.push_str(&self.style());
            }
            '\\' if !self.code => self.escaped = true,
            c => out.push(c),
        }
    }

    /// Says what the stars before a character are: the beginning of emphasis stands before a word, and its end may stand anywhere.
    fn settle(&mut self, next: char, out: &mut String) {
        let begins = !next.is_whitespace();
        let stars = std::mem::take(&mut self.stars);
        let (bold, italic) = match stars.len() {
            0 => return,
            1 => (false, true),
            2 => (true, false),
            3 => (true, true),
            _ => return out.push_str(&stars),
        };
        if !(begins || bold && self.bold || italic && self.italic) {
            return out.push_str(&stars);
        }
        (self.bold, self.italic) = (self.bold ^ bold, self.italic ^ italic);
        out.push_str(&self.style());
    }

    /// All styles from here on.
    fn style(&self) -> String {
        let on = [
            (self.heading, BOLD),
            (self.heading, UNDERLINED),
            (self.bold && !self.heading, BOLD),
            (self.italic, ITALIC),
            (self.code, CODE),
        ];
        let on: String = on.iter().filter(|(on, _)| *on).map(|(_, style)| *style).collect();
        format!("{PLAIN}{on}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each style as its mark; the same however the text is cut into pieces.
    fn seen(text: &str) -> String {
        let whole = |size: usize| {
            let mut markdown = Markdown::new();
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut out: String = pieces.map(|piece| markdown.push(&piece)).collect();
            out += &markdown.end();
            out
        };
        let all = whole(text.len().max(1));
        assert_eq!(whole(1), all, "by characters");
        assert_eq!(whole(3), all, "by threes");
        let marks =
            [(BOLD, "[b]"), (DIM, "[d]"), (ITALIC, "[i]"), (UNDERLINED, "[u]"), (CODE, "[c]"), (PLAIN, "[]")];
        let all = marks.iter().fold(all, |text, (style, mark)| text.replace(style, mark));
        all.replace("\u{1b}[35m", "[k]")
    }

    #[test]
    fn marks_become_styles() {
        for (text, wanted) in [
            ("a **b** c", "a [][b]b[] c"),
            ("a *b* c", "a [][i]b[] c"),
            ("***a***", "[][b][i]a[]"),
            ("run `ls *.rs` now", "run [][c]ls *.rs[] now"),
            ("# Title\ntext", "[][b][u]Title[]\ntext"),
            ("- one\n  * two", "• one\n  • two"),
            ("> said\n", "[d]│[] said\n"),
            ("2 * 3 ** 4", "2 * 3 ** 4"),
            ("\\*a\\* \\d", "*a* \\d"),
            ("#hashtag -x >y", "#hashtag -x >y"),
            ("open **bold\nnext", "open [][b]bold[]\nnext"),
            ("1. one", "1. one"),
            ("ends *", "ends *"),
        ] {
            assert_eq!(seen(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_block_of_code_has_its_languages_colours_and_no_marks() {
        let text = "So:\n```python\nif a **b** c\n```\nend";
        assert_eq!(seen(text), "So:\n[d]```python[]\n[k]if[] a **b** c\n[d]```[]\nend");
        assert_eq!(seen("```\n# a"), "[d]```[]\n# a", "one that is not closed");
        assert_eq!(seen("```x``` y"), seen("```x``` y"), "no block within a line");
    }
}
