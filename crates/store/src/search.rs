//! Searching for text. Every store keeps [`search_text`] beside the record and looks for
//! [`Needle::text`] in it, as plain text: no character has a special meaning, and all databases find the
//! same. Case is folded here, letter by letter, so that a part of a text folds to a part of its fold.

use crate::SandboxRecord;

/// Separates the fields, so that a match never spans two of them.
const SEPARATOR: char = '\u{1f}';

/// The text that a search runs over.
#[must_use]
pub fn search_text(record: &SandboxRecord) -> String {
    let SandboxRecord { id, image, session_key, owner_name, labels, .. } = record;
    let mut text = fold(&id.to_string());
    let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
    let fields = [image.clone(), owner_name.clone()].into_iter().chain(session_key.clone()).chain(labels);
    for field in fields {
        text.push(SEPARATOR);
        text.push_str(&fold(&field));
    }
    text
}

/// A text to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needle {
    /// To be found in [`search_text`].
    pub text: String,
    /// The same as a part of an id written with hyphens, where it can be one; finding either is enough.
    pub id: Option<String>,
}

impl Needle {
    /// The needle; `None` when everything matches.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let text = fold(text);
        let digits = text.replace('-', "");
        let hyphenated =
            digits.len() < text.len() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        Some(Self { id: hyphenated.then_some(digits), text })
    }
}

fn fold(text: &str) -> String {
    // The separator inside a field would let a needle be found across two.
    text.chars().map(|c| if c == SEPARATOR { '\u{1e}' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_is_found_in_either_spelling() {
        let needle = Needle::new("3F2A-11").unwrap();
        assert_eq!((needle.text.as_str(), needle.id.as_deref()), ("3f2a-11", Some("3f2a11")));
        assert_eq!(Needle::new("3f2a").unwrap().id, None);
        assert_eq!(Needle::new("-").unwrap().id, None);
        assert_eq!(Needle::new("my-tool").unwrap().id, None);
        assert_eq!(Needle::new(""), None);
    }

    proptest! {
        #[test]
        fn a_part_is_found_in_the_whole(before in ".{0,8}", part in ".{1,8}", after in ".{0,8}") {
            let whole = fold(&format!("{before}{part}{after}"));
            prop_assert!(whole.contains(&Needle::new(&part).unwrap().text));
        }
    }
}
