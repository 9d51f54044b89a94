//! How large a document may be.

/// What is wrong where `text` is larger than `kilobytes` of 1000 bytes.
#[must_use]
pub fn too_large(name: &str, text: &str, kilobytes: usize) -> Option<String> {
    let most = kilobytes * 1000;
    (text.len() > most)
        .then(|| format!("{name} has {} bytes, more than its {most}: move a topic to docs/", text.len()))
}

#[cfg(test)]
mod tests {
    use super::too_large;

    #[test]
    fn a_text_that_is_one_byte_too_large_is_found() {
        assert_eq!(too_large("README.md", &"x".repeat(6 * 1000), 6), None);
        let wrong = too_large("README.md", &"x".repeat(6 * 1000 + 1), 6).unwrap();
        assert!(wrong.contains("README.md") && wrong.contains("6001"), "{wrong}");
    }
}
