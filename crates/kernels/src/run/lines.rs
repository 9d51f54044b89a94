//! Lines from a stream of bytes that nobody promises to end any line: one that is too long is passed over
//! up to its end, and never held whole.

/// What has come of a line that is not whole yet.
pub(super) struct Lines {
    longest: usize,
    held: Vec<u8>,
    /// In a line that was too long.
    skipping: bool,
}

impl Lines {
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, held: Vec::new(), skipping: false }
    }

    /// Takes bytes and gives the lines that are whole now; how many were too long is added to `skipped`.
    pub(super) fn add(&mut self, mut bytes: &[u8], skipped: &mut u64) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.hold(&bytes[..end], skipped);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.held);
            if !std::mem::take(&mut self.skipping) && !line.is_empty() {
                whole.push(line);
            }
        }
        self.hold(bytes, skipped);
        whole
    }

    fn hold(&mut self, bytes: &[u8], skipped: &mut u64) {
        if self.skipping {
            return;
        }
        if self.held.len() + bytes.len() > self.longest {
            self.held = Vec::new();
            self.skipping = true;
            *skipped += 1;
        } else {
            self.held.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_long_ones_not_at_all() {
        let (mut lines, mut skipped) = (Lines::new(5), 0);
        assert_eq!(lines.add(b"ab\ncd", &mut skipped), [b"ab".to_vec()]);
        assert_eq!(lines.add(b"e\n\n12345\n", &mut skipped), [b"cde".to_vec(), b"12345".to_vec()]);
        assert_eq!(lines.add(b"123", &mut skipped).len(), 0);
        assert_eq!(lines.add(&[b'4'; 1 << 16], &mut skipped).len(), 0);
        assert_eq!((lines.held.capacity(), skipped), (0, 1));
        assert_eq!(lines.add(b"5\nok\n", &mut skipped), [b"ok".to_vec()]);
        assert_eq!(skipped, 1);
    }
}
