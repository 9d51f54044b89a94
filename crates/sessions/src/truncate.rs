//! What a command printed, as text that a model can take.

/// Characters of stdout that are shown.
pub(crate) const STDOUT: usize = 50_000;
/// Characters of stderr that are shown.
pub(crate) const STDERR: usize = 120_000;

/// The text, or its beginning with a notice of how many characters there were. Where `more` says that bytes
/// were lost before, nobody knows how many.
pub(crate) fn shown(bytes: &[u8], most: usize, more: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let count = text.chars().count();
    if count <= most && !more {
        return text.into_owned();
    }
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let (at_least, shown) = (if more { "at least " } else { "" }, count.min(most));
    format!("{}\n… [truncated: {at_least}{count} characters, {shown} shown]", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_says_so() {
        assert_eq!(shown("héllo".as_bytes(), 5, false), "héllo");
        assert_eq!(shown("héllo".as_bytes(), 2, false), "hé\n… [truncated: 5 characters, 2 shown]");
        assert_eq!(shown(b"abc", 5, true), "abc\n… [truncated: at least 3 characters, 3 shown]");
        assert_eq!(shown(b"a\xffb", 9, false), "a\u{fffd}b");
    }
}
