//! A cell's output as text: whole characters, the first and the last so many of them, and a count of all. The
//! head is sent as it comes; the tail at the end, with the notice between the two.
//!
//! Nothing here grows beyond its limit, whatever the cell prints.

use std::collections::VecDeque;

/// How much of a limit is the tail's: errors and results mostly come last.
const TAIL: u64 = 5;

/// The head and the tail of a stream of bytes.
pub(super) struct Text {
    /// Characters of the head, and of the tail.
    head: u64,
    tail: u64,
    /// The beginning of a character whose rest has not come yet.
    carry: Vec<u8>,
    total: u64,
    /// The last characters beyond the head.
    last: VecDeque<char>,
}

impl Text {
    pub(super) fn new(limit: u32) -> Self {
        let tail = u64::from(limit) / TAIL;
        Self { head: u64::from(limit) - tail, tail, carry: Vec::new(), total: 0, last: VecDeque::new() }
    }

    /// The part of these bytes that belongs to the head, to be shown at once.
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

    /// What is left at the end: half a character, and the tail, after the notice where something was left out.
    pub(super) fn finish(&mut self) -> String {
        let mut text = String::new();
        if !std::mem::take(&mut self.carry).is_empty() {
            text = self.keep("\u{fffd}");
        }
        if self.is_cut() {
            text.push_str(&notice(self.total, self.head, self.last.len() as u64));
        }
        text.extend(std::mem::take(&mut self.last));
        text
    }

    /// Whether something was left out.
    pub(super) fn is_cut(&self) -> bool {
        self.total > self.head + self.tail
    }

    /// Returns what of a text belongs to the head, and keeps the rest as far as it may be the tail.
    fn keep(&mut self, text: &str) -> String {
        let room = usize::try_from(self.head.saturating_sub(self.total)).unwrap_or(usize::MAX);
        let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
        let (head, rest) = text.split_at(end);
        self.total += text.chars().count() as u64;
        let most = usize::try_from(self.tail).unwrap_or(usize::MAX);
        let begin = match most.checked_sub(1) {
            None => rest.len(),
            Some(before) => rest.char_indices().rev().nth(before).map_or(0, |(at, _)| at),
        };
        self.last.extend(rest[begin..].chars());
        let over = self.last.len().saturating_sub(most);
        self.last.drain(..over);
        head.to_owned()
    }
}

/// The notice between the head and the tail of a text whose middle is left out.
fn notice(total: u64, head: u64, tail: u64) -> String {
    format!("\n… [truncated: {total} characters, the first {head} and the last {tail} shown] …\n")
}

/// The head and the tail of a text, with the notice between them where something is left out; and whether that is
/// so. `known` is how many characters there were, where a driver has cut it before: then its end is lost.
pub(super) fn cut(text: String, limit: u32, known: u64) -> (String, bool) {
    let here = text.chars().count() as u64;
    if known <= here && here <= limit.into() {
        return (text, false);
    }
    let limit = u64::from(limit);
    let tail = if known > here { 0 } else { limit / TAIL };
    let head = here.min(limit - tail);
    let at = |characters: u64| {
        let place = text.char_indices().nth(usize::try_from(characters).unwrap_or(usize::MAX));
        place.map_or(text.len(), |(at, _)| at)
    };
    let (end, begin) = (at(head), at(here - tail));
    (format!("{}{}{}", &text[..end], notice(known.max(here), head, tail), &text[begin..]), true)
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
    fn head_and_tail_are_kept_and_all_is_counted() {
        let mut text = Text::new(5);
        assert_eq!(text.add("äö".as_bytes()), "äö");
        assert_eq!(text.add("üßx".as_bytes()), "üß");
        assert!(!text.is_cut());
        assert_eq!(text.add("more".as_bytes()), "");
        assert_eq!(text.finish(), "\n… [truncated: 9 characters, the first 4 and the last 1 shown] …\ne");
        assert!(text.is_cut());
        let mut text = Text::new(5);
        assert_eq!(text.add(b"abcde") + &text.finish(), "abcde", "what just fits is whole");
        assert_eq!(cut("äöü".into(), 3, 0), ("äöü".into(), false));
        let shown = "äöüß\n… [truncated: 7 characters, the first 4 and the last 1 shown] …\nz";
        assert_eq!(cut("äöüßxyz".into(), 5, 0), (shown.into(), true));
        let shown = "äö\n… [truncated: 9 characters, the first 2 and the last 0 shown] …\n";
        assert_eq!(cut("äö".into(), 5, 9), (shown.into(), true));
        let mut none = Text::new(0);
        assert_eq!(none.add(b"x"), "");
        assert_eq!(none.finish(), "\n… [truncated: 1 characters, the first 0 and the last 0 shown] …\n");
    }
}
