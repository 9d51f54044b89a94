//! Lines of stdin, of a bounded length.

use atoll_types::lines::{self, LineBuffer};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line.
const LONGEST: usize = 16 << 20;
/// The size of one read.
const PIECE: usize = 64 << 10;

/// The next line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A whole line, without its end.
    Message(Bytes),
    /// One that is too long, which is skipped.
    TooLong,
    /// The end of input, also within a line.
    End,
}

/// Reads lines. Cancelling a read loses nothing.
pub(super) struct Lines<R> {
    from: R,
    piece: Vec<u8>,
    lines: LineBuffer,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, piece: vec![0; PIECE], lines: LineBuffer::new(LONGEST) }
    }

    pub(super) async fn next(&mut self) -> Line {
        loop {
            match self.lines.next_line() {
                Some(lines::Line::Whole(line)) => return Line::Message(Bytes::copy_from_slice(line)),
                Some(lines::Line::TooLong) => return Line::TooLong,
                None => {}
            }
            match self.from.read(&mut self.piece).await {
                Ok(length @ 1..) => self.lines.push(&self.piece[..length]),
                _ => return Line::End,
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
        lines.lines = LineBuffer::new(8);
        for wanted in [Some("one"), Some(""), None, Some("two")] {
            let wanted = wanted.map_or(Line::TooLong, |text| Line::Message(Bytes::from(text)));
            assert_eq!(lines.next().await, wanted);
        }
        assert_eq!(lines.next().await, Line::End);
    }
}
