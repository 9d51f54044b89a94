//! Bounding text.

use crate::{Error, Result};
use std::{fmt::Write, ops::RangeInclusive};

/// At most so many bytes of a text, cut between letters.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Characters, by ranges.
pub type Characters = &'static [RangeInclusive<char>];

/// What C cannot have in a text.
pub const NUL: Characters = &['\0'..='\0'];
/// What the name of a variable cannot have.
pub const NUL_AND_EQUALS: Characters = &['\0'..='\0', '='..='='];
/// What a terminal would act on.
pub const CONTROL: Characters = &['\0'..='\x1f', '\x7f'..='\u{9f}'];
/// Unicode's `White_Space`.
const BLANK: Characters = &[
    '\t'..='\r',
    ' '..=' ',
    '\u{85}'..='\u{85}',
    '\u{a0}'..='\u{a0}',
    '\u{1680}'..='\u{1680}',
    '\u{2000}'..='\u{200a}',
    '\u{2028}'..='\u{2029}',
    '\u{202f}'..='\u{202f}',
    '\u{205f}'..='\u{205f}',
    '\u{3000}'..='\u{3000}',
];

/// What a text may be. The check of a request and the API's description are made of the same one.
#[derive(Debug, Clone, Copy)]
pub struct TextRule {
    /// Characters, at least.
    pub least: usize,
    /// Characters, at most.
    pub most: usize,
    /// Those that it may not have.
    pub without: Characters,
    /// Whether it needs a character that is not blank.
    pub visible: bool,
}

fn has(set: Characters, letter: char) -> bool {
    set.iter().any(|range| range.contains(&letter))
}

/// The sets as the inside of a class of a regular expression.
fn class(sets: &[Characters]) -> String {
    let mut out = String::new();
    for range in sets.iter().copied().flatten() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{:04x}-\\u{:04x}", u32::from(*range.start()), u32::from(*range.end()));
    }
    out
}

impl TextRule {
    /// A text of so many characters without some.
    #[must_use]
    pub const fn new(least: usize, most: usize, without: Characters) -> Self {
        Self { least, most, without, visible: false }
    }

    /// The same, with a character that is not blank.
    #[must_use]
    pub const fn visible(self) -> Self {
        Self { visible: true, ..self }
    }

    /// Whether a text is one.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        let Self { least, most, without, visible } = *self;
        let length = text.chars().take(most.saturating_add(1)).count();
        (least..=most).contains(&length)
            && !text.chars().any(|letter| has(without, letter))
            && (!visible || text.chars().any(|letter| !has(BLANK, letter)))
    }

    /// Refuses a text that is none; for rules whose characters are those of control.
    pub fn check(&self, field: &str, text: &str) -> Result<()> {
        if self.fits(text) {
            return Ok(());
        }
        let Self { least, most, .. } = self;
        let message = format!("{field} must be {least} to {most} characters without control characters");
        Err(Error::invalid(field, message))
    }

    /// The characters as a regular expression of ECMA 262; it does not count them.
    #[must_use]
    pub fn pattern(&self) -> String {
        let all = class(&[self.without]);
        match self.visible {
            true => format!("^[^{all}]*[^{}][^{all}]*$", class(&[self.without, BLANK])),
            false => format!("^[^{all}]*$"),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal digits; none of any other text.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_unicodes() {
        for letter in '\0'..=char::MAX {
            assert_eq!(has(CONTROL, letter), letter.is_control(), "{letter:?}");
            assert_eq!(has(BLANK, letter), letter.is_whitespace(), "{letter:?}");
        }
    }

    #[test]
    fn a_rule_counts_characters_and_names_what_is_missing() {
        let rule = TextRule::new(1, 3, CONTROL).visible();
        for (text, fits) in [
            ("é", true),
            ("ééé", true),
            ("a b", true),
            ("", false),
            ("éééé", false),
            (" \u{3000}", false),
            ("a\n", false),
        ] {
            assert_eq!(rule.fits(text), fits, "{text:?}");
            assert_eq!(rule.check("name", text).is_ok(), fits);
        }
        assert_eq!(TextRule::new(0, 9, NUL_AND_EQUALS).pattern(), r"^[^\u0000-\u0000\u003d-\u003d]*$");
        assert!(TextRule::new(0, 9, NUL_AND_EQUALS).fits("") && !TextRule::new(0, 9, NUL).fits("a\0"));
    }

    #[test]
    fn digits_are_bytes_and_nothing_else_is() {
        assert_eq!(hex(&[0, 7, 255]), "0007ff");
        assert_eq!(unhex("0007fF"), Some(vec![0, 7, 255]));
        assert_eq!(unhex(""), Some(vec![]));
        for wrong in ["0", "000", "+f", "0x", " 1", "\u{e9}"] {
            assert_eq!(unhex(wrong), None, "{wrong:?}");
        }
    }
}
