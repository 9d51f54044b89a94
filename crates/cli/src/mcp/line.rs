//! Lines of stdin, of a bounded length.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest line.
const LONGEST: usize = 16 << 20;

/// What comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A whole line, without its end.
    Message(Bytes),
    /// One that is too long, which is left out.
    TooLong,
    /// No more; or only part of a line.
    End,
}

/// Reads lines. What was read of one is kept when a read is given up.
pub(super) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    too_long: bool,
    longest: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), too_long: false, longest: LONGEST }
    }

    pub(super) async fn next(&mut self) -> Line {
        loop {
            let there = match self.from.fill_buf().await {
                Ok(there) if !there.is_empty() => there,
                _ => return Line::End,
            };
            let end = there.iter().position(|b| *b == b'\n');
            let taken = end.unwrap_or(there.len());
            self.too_long |= self.line.len() + taken > self.longest;
            if !self.too_long {
                self.line.extend_from_slice(&there[..taken]);
            }
            self.from.consume(end.map_or(taken, |end| end + 1));
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                if std::mem::take(&mut self.too_long) {
                    return Line::TooLong;
                }
                let plain = line.strip_suffix(b"\r").unwrap_or(&line);
                return Line::Message(Bytes::copy_from_slice(plain));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let mut lines = Lines::new(&b"one\r\n\n0123456789\ntwo\nrest"[..]);
        lines.longest = 8;
        for wanted in [Some("one"), Some(""), None, Some("two")] {
            let wanted = wanted.map_or(Line::TooLong, |text| Line::Message(Bytes::from(text)));
            assert_eq!(lines.next().await, wanted);
        }
        assert_eq!(lines.next().await, Line::End);
    }
}
