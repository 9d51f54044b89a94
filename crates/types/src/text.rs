//! Bounding text.

/// At most so many bytes of a text, cut between letters.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
