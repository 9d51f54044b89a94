//! Output of commands, truncated for models.

use atoll_core::OutputTail;

/// The tail's share of a limit, as in cells.
const TAIL: usize = 5;

/// The text, or its head and its tail with a notice of how many characters were left out. Where the output
/// was too long for `bytes`, `end` has its end and how many characters it had.
pub(crate) fn shown(bytes: &[u8], end: &OutputTail, most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let count = text.chars().count();
    if count <= most && end.bytes.is_empty() {
        return text.into_owned();
    }
    let last = if end.bytes.is_empty() { text.clone() } else { String::from_utf8_lossy(&end.bytes) };
    let tail = (most / TAIL).min(last.chars().count());
    let head = (most - tail).min(count);
    let total = if end.bytes.is_empty() { count as u64 } else { end.characters };
    let cut = text.char_indices().nth(head).map_or(text.len(), |(at, _)| at);
    let begin = match tail.checked_sub(1) {
        Some(before) => last.char_indices().rev().nth(before).map_or(0, |(at, _)| at),
        None => last.len(),
    };
    let notice = format!("[truncated: {total} characters, the first {head} and the last {tail} shown]");
    format!("{}\n… {notice} …\n{}", &text[..cut], &last[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_shows_its_head_and_its_tail() {
        let whole = OutputTail::default();
        assert_eq!(shown("héllo".as_bytes(), &whole, 5), "héllo");
        let wanted = "hé\n… [truncated: 6 characters, the first 2 and the last 0 shown] …\n";
        assert_eq!(shown("héllo!".as_bytes(), &whole, 2), wanted);
        let wanted = "0123\n… [truncated: 10 characters, the first 4 and the last 1 shown] …\n9";
        assert_eq!(shown(b"0123456789", &whole, 5), wanted);
        let longer = OutputTail { bytes: b"...xyz".to_vec(), characters: 4000 };
        let wanted = "01234567\n… [truncated: 4000 characters, the first 8 and the last 2 shown] …\nyz";
        assert_eq!(shown(b"0123456789", &longer, 10), wanted);
        assert_eq!(shown(b"a\xffb", &whole, 9), "a\u{fffd}b");
    }
}
