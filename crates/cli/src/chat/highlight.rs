//! Code in colours, a line at a time: words of the language, texts, numbers and comments. It colours what helps to read and is no
//! parser; a language that is not known has no colours.

const KEYWORD: &str = "\u{1b}[35m";
const TEXT: &str = "\u{1b}[32m";
const NUMBER: &str = "\u{1b}[33m";
const COMMENT: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// What must be known of a language.
struct Language {
    names: &'static [&'static str],
    comment: &'static str,
    /// What begins and ends a text, the longest first; those that go over lines are marked.
    quotes: &'static [(&'static str, bool)],
    /// With spaces between them.
    keywords: &'static str,
}

const PLAIN_QUOTES: &[(&str, bool)] = &[("\"", false), ("'", false)];
/// In a shell and in R a text may go over lines.
const LONG_QUOTES: &[(&str, bool)] = &[("\"", true), ("'", true)];

const LANGUAGES: &[Language] = &[
    Language {
        names: &["python", "py", "python3"],
        comment: "#",
        quotes: &[("\"\"\"", true), ("'''", true), ("\"", false), ("'", false)],
        keywords: "False None True and as assert async await break class continue def del elif else except \
            finally for from global if import in is lambda nonlocal not or pass raise return try \
            while with yield",
    },
    Language {
        names: &["javascript", "js", "jsx", "typescript", "ts", "tsx", "nodejs", "node"],
        comment: "//",
        quotes: &[("`", true), ("\"", false), ("'", false)],
        keywords: "as async await break case catch class const continue default delete do else export \
            extends false finally for from function if import in instanceof interface let new null \
            of return switch this throw true try type typeof undefined var void while yield",
    },
    Language {
        names: &["bash", "sh", "shell", "zsh", "console"],
        comment: "#",
        quotes: LONG_QUOTES,
        keywords: "case do done elif else esac exit export fi for function if in local return set then \
            until while",
    },
    Language {
        names: &["r"],
        comment: "#",
        quotes: LONG_QUOTES,
        keywords: "FALSE Inf NA NULL NaN TRUE break else for function if in library next repeat return \
            while",
    },
    Language {
        names: &["rust", "rs"],
        comment: "//",
        quotes: &[("\"", true)],
        keywords: "as async await break const continue crate dyn else enum false fn for if impl in let loop \
            match mod move mut pub ref return self Self static struct super trait true type unsafe \
            use where while",
    },
    Language {
        names: &["sql"],
        comment: "--",
        quotes: PLAIN_QUOTES,
        keywords: "AND AS BY CREATE DELETE FROM GROUP INSERT INTO JOIN LEFT LIMIT NOT NULL ON OR ORDER \
            SELECT SET TABLE UPDATE VALUES WHERE",
    },
    Language { names: &["json"], comment: "", quotes: &[("\"", false)], keywords: "false null true" },
    Language {
        names: &["yaml", "yml", "toml", "ini"],
        comment: "#",
        quotes: PLAIN_QUOTES,
        keywords: "false null true",
    },
];

/// Code that is coloured line by line.
pub(crate) struct Highlighter {
    language: Option<&'static Language>,
    /// What ends the text that goes over lines, where one was begun.
    within: Option<&'static str>,
}

impl Highlighter {
    /// Of a language by any of its names.
    pub(crate) fn new(name: &str) -> Self {
        let name = name.trim().to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Self { language, within: None }
    }

    /// A line without its end, in colours.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let Some(language) = self.language else { return line.to_owned() };
        let mut out = String::with_capacity(line.len() * 2);
        let mut rest = line;
        while !rest.is_empty() {
            let (length, style) = self.token(language, rest, line_breaks(line, rest));
            let (token, more) = rest.split_at(length);
            match style {
                Some(style) => out.extend([style, token, PLAIN]),
                None => out.push_str(token),
            }
            rest = more;
        }
        out
    }

    /// The length of what comes next, and its style.
    fn token(&mut self, language: &Language, rest: &str, fresh: bool) -> (usize, Option<&'static str>) {
        if let Some(quote) = self.within.take() {
            return self.text(rest, 0, quote, true);
        }
        if !language.comment.is_empty() && fresh && rest.starts_with(language.comment) {
            return (rest.len(), Some(COMMENT));
        }
        if let Some((quote, long)) = language.quotes.iter().find(|(quote, _)| rest.starts_with(quote)) {
            return self.text(rest, quote.len(), quote, *long);
        }
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        match word {
            0 => (rest.chars().next().map_or(1, char::len_utf8), None),
            length if rest.starts_with(|c: char| c.is_ascii_digit()) => (length, Some(NUMBER)),
            length => {
                (length, language.keywords.split(' ').any(|word| word == &rest[..length]).then_some(KEYWORD))
            }
        }
    }

    /// A text from where its inside begins, to its end or that of the line.
    fn text(
        &mut self,
        rest: &str,
        from: usize,
        quote: &'static str,
        long: bool,
    ) -> (usize, Option<&'static str>) {
        let mut at = from;
        while let Some(next) = rest[at..].chars().next() {
            if rest[at..].starts_with(quote) {
                return (at + quote.len(), Some(TEXT));
            }
            at += next.len_utf8();
            if next == '\\' {
                at += rest[at..].chars().next().map_or(0, char::len_utf8);
            }
        }
        self.within = long.then_some(quote);
        (rest.len(), Some(TEXT))
    }
}

/// Whether a comment may begin here: `#` within a word of a shell begins none.
fn line_breaks(line: &str, rest: &str) -> bool {
    let before = &line[..line.len() - rest.len()];
    before.chars().next_back().is_none_or(|c| c.is_whitespace() || ";(){}[],".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The colours as letters.
    fn seen(language: &str, code: &str) -> String {
        let mut highlighter = Highlighter::new(language);
        let lines: Vec<_> = code.split('\n').map(|line| highlighter.line(line)).collect();
        let marks = [(KEYWORD, "<k:"), (TEXT, "<t:"), (NUMBER, "<n:"), (COMMENT, "<c:"), (PLAIN, ">")];
        marks.iter().fold(lines.join("\n"), |text, (code, mark)| text.replace(code, mark))
    }

    #[test]
    fn code_is_coloured_by_its_language() {
        for (language, code, wanted) in [
            ("python", "import os # why", "<k:import> os <c:# why>"),
            ("py", "x = 'it\\'s' + \"2\"", "x = <t:'it\\'s'> + <t:\"2\">"),
            ("js", "const a1 = 42; // two", "<k:const> a1 = <n:42>; <c:// two>"),
            ("bash", "for f in a#b; do echo $#; done", "<k:for> f <k:in> a#b; <k:do> echo $#; <k:done>"),
            ("r", "x <- TRUE", "x <- <k:TRUE>"),
            ("json", "{\"a\": null}", "{<t:\"a\">: <k:null>}"),
            ("brainfuck", "if 1", "if 1"),
            ("python", "größe = 1", "größe = <n:1>"),
        ] {
            assert_eq!(seen(language, code), wanted, "{language}");
        }
    }

    #[test]
    fn a_text_may_go_over_lines_where_the_language_lets_it() {
        assert_eq!(seen("python", "a = '''x\nif y\n''' if b"), "a = <t:'''x>\n<t:if y>\n<t:'''> <k:if> b");
        assert_eq!(seen("python", "a = 'x\nif b"), "a = <t:'x>\n<k:if> b");
    }
}
