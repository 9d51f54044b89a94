//! Output as text. Bytes that are not UTF-8 become the replacement character; a character that the end of a piece cuts
//! waits for its rest.

/// One output of a command, piece by piece.
#[derive(Debug, Default)]
pub struct TextDecoder {
    /// The start of a character.
    cut: Vec<u8>,
}

impl TextDecoder {
    /// The text of one more piece.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> String {
        let joined;
        let bytes = if self.cut.is_empty() {
            piece
        } else {
            joined = [&self.cut, piece].concat();
            &joined
        };
        let rest = cut_at_end(bytes);
        let text = String::from_utf8_lossy(&bytes[..bytes.len() - rest]).into_owned();
        self.cut = bytes[bytes.len() - rest..].to_vec();
        text
    }

    /// What waited for a rest that does not come.
    #[must_use]
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.cut)).into_owned()
    }
}

/// How many bytes at the end are the start of a character.
fn cut_at_end(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|back| bytes[bytes.len() - back] >= 0xc0)
        .filter(|back| {
            let tail = std::str::from_utf8(&bytes[bytes.len() - back..]);
            tail.is_err_and(|error| error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_wherever_they_are_cut() {
        let whole = "aé漢🎉z".as_bytes();
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let mut decoder = TextDecoder::default();
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                let text: String = pieces.map(|piece| decoder.push(piece)).concat() + &decoder.finish();
                assert_eq!(text.as_bytes(), whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.push(b"a\xff"), "a\u{fffd}");
        assert_eq!(decoder.push(b"b\xe6\xbc"), "b");
        assert_eq!(decoder.push(b"c"), "\u{fffd}c");
        assert_eq!(decoder.push(b"\xf0"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }
}
