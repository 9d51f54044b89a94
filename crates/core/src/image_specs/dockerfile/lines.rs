//! The lines of a Dockerfile: comments go, and what ends with a backslash goes on in the next line.

use super::wrong;
use atoll_types::Result;

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Where it begins, from 1.
    pub(super) number: u32,
    /// In capital letters.
    pub(super) keyword: String,
    /// What follows the keyword, joined to one line.
    pub(super) rest: String,
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// Refuses a directive that would change how the text is read.
fn check_directive(line: &str, number: u32) -> Result<()> {
    let directive = line.trim_start().trim_start_matches('#').trim();
    match directive.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("escape") && value.trim() != "\\" => {
            Err(wrong(number, "another escape character than \\ is not supported"))
        }
        _ => Ok(()),
    }
}

/// The instructions of a text.
pub(super) fn lines(text: &str) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    // An instruction that goes on, and where it began.
    let mut open: Option<(u32, String)> = None;
    let mut directives = true;
    for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        if is_comment(line) {
            if directives {
                check_directive(line, number)?;
            }
            continue;
        }
        directives = false;
        if line.trim().is_empty() {
            continue;
        }
        let (began, mut whole) = open.take().unwrap_or((number, String::new()));
        let trimmed = line.trim_end();
        match trimmed.strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                open = Some((began, whole));
            }
            None => {
                whole.push_str(trimmed);
                found.extend(instruction(began, &whole)?);
            }
        }
    }
    if let Some((began, whole)) = open {
        found.extend(instruction(began, &whole)?);
    }
    Ok(found)
}

fn instruction(number: u32, text: &str) -> Result<Option<Line>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if text.contains('\0') {
        return Err(wrong(number, "there is a NUL"));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (keyword, rest) = (text[..end].to_ascii_uppercase(), text[end..].trim().to_owned());
    Ok(Some(Line { number, keyword, rest }))
}

/// Whether a line begins a heredoc: a word `<<NAME`, perhaps behind the number of a descriptor, and not `<<<`.
pub(super) fn has_heredoc(rest: &str) -> bool {
    let mut quote = None;
    let mut letters = rest.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => drop(letters.next()),
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            ('<', None) if rest[at..].starts_with("<<<") => {
                letters.next();
                letters.next();
            }
            ('<', None) => {
                if let Some(word) = rest[at..].strip_prefix("<<") {
                    let word = word.strip_prefix('-').unwrap_or(word);
                    let before = rest[..at].trim_end_matches(|c: char| c.is_ascii_digit());
                    let begins = before.is_empty() || before.ends_with(char::is_whitespace);
                    let named = |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\'');
                    if begins && word.starts_with(named) {
                        return true;
                    }
                }
            }
            _ => {}
        }
    }
    false
}
