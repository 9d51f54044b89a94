//! What a cell prints, as text: whole characters, the first so many of them, and a count of all.
//!
//! Nothing here grows beyond its limit, whatever comes.

/// The head of a stream of bytes.
pub(super) struct Text {
    limit: u64,
    /// The beginning of a character whose rest has not come yet.
    carry: Vec<u8>,
    kept: u64,
    total: u64,
}

impl Text {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit: limit.into(), carry: Vec::new(), kept: 0, total: 0 }
    }

    /// What of these bytes is to be kept, and shown at once.
    pub(super) fn add(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.carry.is_empty() {
            bytes
        } else {
            joined = [self.carry.as_slice(), bytes].concat();
            self.carry.clear();
            joined.as_slice()
        };
        let (text, rest) = decode(bytes);
        self.carry.extend_from_slice(rest);
        self.keep(&text)
    }

    /// What is left at the end: half a character, and the notice where something was left out.
    pub(super) fn finish(&mut self) -> String {
        let mut text = String::new();
        if !std::mem::take(&mut self.carry).is_empty() {
            text = self.keep("\u{fffd}");
        }
        if self.is_cut() {
            text.push_str(&notice(self.total, self.kept));
        }
        text
    }

    /// Whether something was left out.
    pub(super) fn is_cut(&self) -> bool {
        self.total > self.kept
    }

    fn keep(&mut self, text: &str) -> String {
        let room = usize::try_from(self.limit - self.kept).unwrap_or(usize::MAX);
        let characters = text.chars().count() as u64;
        self.total += characters;
        match text.char_indices().nth(room) {
            None => {
                self.kept += characters;
                text.to_owned()
            }
            Some((end, _)) => {
                self.kept = self.limit;
                text[..end].to_owned()
            }
        }
    }
}

/// What stands at the end of a text of which only the head is shown.
fn notice(total: u64, shown: u64) -> String {
    format!("\n… [truncated: {total} characters, {shown} shown]")
}

/// The head of a text, with the notice where something is left out; and whether that is so. `known` is how many
/// characters there were, where somebody has cut it before.
pub(super) fn cut(text: String, limit: u32, known: u64) -> (String, bool) {
    let here = text.chars().count() as u64;
    let (total, shown) = (known.max(here), here.min(limit.into()));
    if total == shown {
        return (text, false);
    }
    let end = text.char_indices().nth(limit as usize).map_or(text.len(), |(end, _)| end);
    (format!("{}{}", &text[..end], notice(total, shown)), true)
}

/// Text for what is valid, a mark for each piece that is not, and the beginning of a character at the end.
fn decode(mut bytes: &[u8]) -> (std::borrow::Cow<'_, str>, &[u8]) {
    let mut text = std::borrow::Cow::Borrowed("");
    loop {
        let (valid, error) = match std::str::from_utf8(bytes) {
            Ok(all) => (all, None),
            Err(e) => (std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""), Some(e)),
        };
        text += valid;
        let Some(error) = error else { return (text, &[]) };
        let after = &bytes[valid.len()..];
        let Some(length) = error.error_len() else { return (text, after) };
        text += "\u{fffd}";
        bytes = after.get(length..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_come_in_pieces_stay_whole() {
        let whole = "aé漢🙂z";
        for at in 0..=whole.len() {
            let mut text = Text::new(100);
            let (head, tail) = whole.as_bytes().split_at(at);
            let said = text.add(head) + &text.add(tail) + &text.finish();
            assert_eq!(said, whole, "cut at {at}");
        }
        let mut text = Text::new(100);
        let said: String = whole.bytes().map(|b| text.add(&[b])).collect();
        assert_eq!(said, whole);
    }

    #[test]
    fn what_is_no_text_is_marked() {
        let mut text = Text::new(100);
        assert_eq!(text.add(b"a\xffb\x00\xc3"), "a\u{fffd}b\0");
        assert_eq!(text.add(b"("), "\u{fffd}(");
        assert_eq!(text.add(b"\xf0\x9f"), "");
        assert_eq!(text.finish(), "\u{fffd}");
        assert!(!text.is_cut());
    }

    #[test]
    fn the_head_is_kept_and_all_is_counted() {
        let mut text = Text::new(3);
        assert_eq!(text.add("äö".as_bytes()), "äö");
        assert_eq!(text.add("üß".as_bytes()), "ü");
        assert_eq!(text.add("more".as_bytes()), "");
        assert_eq!(text.finish(), "\n… [truncated: 8 characters, 3 shown]");
        assert!(text.is_cut());
        assert_eq!(cut("äöü".into(), 3, 0), ("äöü".into(), false));
        assert_eq!(cut("äöüß".into(), 3, 0), ("äöü\n… [truncated: 4 characters, 3 shown]".into(), true));
        assert_eq!(cut("äö".into(), 3, 9), ("äö\n… [truncated: 9 characters, 2 shown]".into(), true));
        assert_eq!(Text::new(0).add(b"x"), "");
    }
}
