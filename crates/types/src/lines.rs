//! Splits a stream into lines, of a bounded length.

/// The next item of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its end, which is LF or CR LF.
    Whole(&'a [u8]),
    /// A line is longer than allowed. It is skipped up to its end.
    TooLong,
}

/// Bytes that are not a complete line yet: never more than the longest line and one piece.
#[derive(Debug)]
pub struct LineBuffer {
    longest: usize,
    buffer: Vec<u8>,
    /// The start of the present line, and how far it was searched for an end.
    begins: usize,
    searched: usize,
    /// Whether bytes up to the next end of a line are skipped.
    skipping: bool,
}

impl LineBuffer {
    /// For lines of at most so many bytes, without their ends.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        Self { longest, buffer: Vec::new(), begins: 0, searched: 0, skipping: false }
    }

    /// Takes a piece. The caller must read all complete lines before the next piece.
    pub fn push(&mut self, mut piece: &[u8]) {
        if self.skipping {
            let Some(end) = piece.iter().position(|byte| *byte == b'\n') else { return };
            piece = &piece[end + 1..];
            self.skipping = false;
        }
        self.buffer.drain(..self.begins);
        self.searched -= self.begins;
        self.begins = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// The next line, if it is complete.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.unfinished() <= self.longest {
                return None;
            }
            self.cut();
            return Some(Line::TooLong);
        };
        let (begin, end) = (self.begins, self.searched + length);
        (self.begins, self.searched) = (end + 1, end + 1);
        let line = &self.buffer[begin..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Some(if line.len() > self.longest { Line::TooLong } else { Line::Whole(line) })
    }

    /// Skips the rest of the present line: what comes next does not belong to it.
    pub fn cut(&mut self) {
        *self = Self { skipping: true, ..Self::new(self.longest) };
    }

    /// How many bytes of an incomplete line there are.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.buffer.len() - self.begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &mut LineBuffer, piece: &[u8]) -> Vec<String> {
        lines.push(piece);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line() {
            all.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::TooLong => "(too long)".into(),
            });
        }
        all
    }

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        let mut lines = LineBuffer::new(8);
        assert_eq!(read(&mut lines, b"a\nb"), ["a"]);
        assert_eq!(lines.unfinished(), 1);
        assert_eq!(read(&mut lines, b"c\r\n\n12345678\nd\n"), ["bc", "", "12345678", "d"]);
        assert_eq!(lines.unfinished(), 0);
    }

    #[test]
    fn what_has_a_gap_in_it_is_no_line() {
        let mut lines = LineBuffer::new(8);
        assert!(read(&mut lines, b"half").is_empty());
        lines.cut();
        assert_eq!(read(&mut lines, b" the rest of it\nnext\n"), ["next"]);
    }

    #[test]
    fn a_long_line_is_told_once_and_never_held() {
        let mut lines = LineBuffer::new(8);
        assert_eq!(read(&mut lines, b"123456789\nok\n"), ["(too long)", "ok"]);
        assert_eq!(read(&mut lines, b"123456789"), ["(too long)"]);
        for _ in 0..20 {
            assert!(read(&mut lines, &[b'x'; 1 << 16]).is_empty());
            assert_eq!(lines.buffer.capacity(), 0);
        }
        assert_eq!(read(&mut lines, b"\nok\n"), ["ok"]);
    }

    proptest! {
        #[test]
        fn the_cuts_between_pieces_change_nothing(text in "[ab\n]{0,60}", at in proptest::collection::vec(0_usize..60, 0..6)) {
            let mut cuts: Vec<usize> = at.into_iter().map(|at| at.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut lines = LineBuffer::new(4);
            let pieces = cuts.windows(2).map(|two| &text.as_bytes()[two[0]..two[1]]);
            let read: Vec<String> = pieces.flat_map(|piece| read(&mut lines, piece)).collect();
            let whole = text.split('\n').take(text.matches('\n').count());
            let mut wanted: Vec<&str> = whole.map(|l| if l.len() > 4 { "(too long)" } else { l }).collect();
            if text.rsplit('\n').next().is_some_and(|rest| rest.len() > 4) {
                wanted.push("(too long)");
            }
            prop_assert_eq!(read, wanted);
        }
    }
}
