//! Text as PostgreSQL can keep it. It refuses the letter U+0000, which Rust, SQLite and the callers of the API allow; so
//! the first four letters of Unicode are written as three of them. Everything else stays as it is, and can be read with
//! any client of the database.
//!
//! The invariant: two texts compare, and one is found in the other, exactly as their escaped forms do. U+0001 begins an
//! escape and nothing else, so a match begins and ends between letters; and the escapes are in the order of what they mean.

use std::borrow::Cow;

const BEGIN: char = '\u{1}';
const LOW: char = '\u{2}';
const HIGH: char = '\u{3}';

/// How a text is stored.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte > 3) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => escaped.extend([BEGIN, LOW, LOW]),
            BEGIN => escaped.extend([BEGIN, LOW, HIGH]),
            LOW => escaped.extend([BEGIN, HIGH, LOW]),
            HIGH => escaped.extend([BEGIN, HIGH, HIGH]),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// What was stored. What no release has written, because it was tampered with, stays as it is.
pub(crate) fn unescape(text: String) -> String {
    if !text.contains(BEGIN) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(BEGIN) {
        plain.push_str(&rest[..at]);
        let (letter, length) = match rest.as_bytes().get(at + 1..at + 3) {
            Some([2, 2]) => ('\0', 3),
            Some([2, 3]) => (BEGIN, 3),
            Some([3, 2]) => (LOW, 3),
            Some([3, 3]) => (HIGH, 3),
            _ => (BEGIN, 1),
        };
        plain.push(letter);
        rest = &rest[at + length..];
    }
    plain.push_str(rest);
    plain
}
