//! The output of a command, on its way into the trail: secrets are redacted, the rest is counted and hashed,
//! and its beginning and its end are kept.

use crate::{Redactor, Stream};
use atoll_store::{Output, Sha256};
use flate2::{
    Compression,
    read::{DeflateDecoder, DeflateEncoder},
};
use sha2::Digest;
use std::{collections::VecDeque, io::Read};

/// How much of the beginning is kept.
pub const HEAD_KEPT: usize = 48 * 1024;
/// How much of the end is kept.
pub const TAIL_KEPT: usize = 16 * 1024;

/// One output of a command.
#[derive(Debug)]
pub struct Capture {
    stream: Stream,
    hash: sha2::Sha256,
    length: u64,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    whole: bool,
}

impl Capture {
    /// An output without any bytes yet.
    #[must_use]
    pub fn new(redactor: &Redactor) -> Self {
        Self {
            stream: redactor.stream(),
            hash: sha2::Sha256::new(),
            length: 0,
            head: Vec::new(),
            tail: VecDeque::new(),
            whole: true,
        }
    }

    /// Takes the next bytes.
    pub fn take(&mut self, chunk: &[u8]) {
        let safe = self.stream.feed(chunk);
        self.keep(&safe);
    }

    /// A part was not seen: the hash of the whole is not known, and `skipped` bytes are missing.
    pub fn skip(&mut self, skipped: u64) {
        let rest = self.stream.finish();
        self.keep(&rest);
        self.length += skipped;
        self.whole = false;
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.hash.update(bytes);
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD_KEPT - self.head.len()));
        self.head.extend(first);
        self.tail.extend(&rest[rest.len().saturating_sub(TAIL_KEPT)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_KEPT);
        self.tail.drain(..surplus);
    }

    /// The output as it is written to the trail.
    #[must_use]
    pub fn finish(mut self) -> Output {
        let rest = self.stream.finish();
        self.keep(&rest);
        let (head, tail) = (self.head.len() as u32, self.tail.len() as u32);
        let mut kept = self.head;
        kept.extend(self.tail);
        let mut bytes = Vec::new();
        if !kept.is_empty() {
            // Reading from memory does not fail.
            let _ = DeflateEncoder::new(&kept[..], Compression::fast()).read_to_end(&mut bytes);
        }
        let sha256 = self.whole.then(|| Sha256(self.hash.finalize().into()));
        Output { length: self.length, sha256, head, tail, packed: bytes.len() as u32, bytes }
    }
}

/// The beginning and the end that were kept of an output; `None` when its bytes are not what was packed.
#[must_use]
pub fn unpack(output: &Output) -> Option<(Vec<u8>, Vec<u8>)> {
    let (head, tail) = (output.head as usize, output.tail as usize);
    if head > HEAD_KEPT || tail > TAIL_KEPT {
        return None;
    }
    let mut kept = Vec::new();
    if head + tail > 0 {
        // One more than there should be: longer data is detected without unpacking it.
        let most = (head + tail + 1) as u64;
        DeflateDecoder::new(&output.bytes[..]).take(most).read_to_end(&mut kept).ok()?;
    }
    if kept.len() != head + tail {
        return None;
    }
    let end = kept.split_off(head);
    Some((kept, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(chunks: &[&[u8]], redactor: &Redactor) -> Output {
        let mut capture = Capture::new(redactor);
        chunks.iter().for_each(|chunk| capture.take(chunk));
        capture.finish()
    }

    fn hash(bytes: &[u8]) -> Option<Sha256> {
        Some(Sha256(sha2::Sha256::digest(bytes).into()))
    }

    #[test]
    fn short_outputs_are_kept_whole() {
        let output = captured(&[b"one ", b"two"], &Redactor::default());
        assert_eq!((output.length, output.sha256), (7, hash(b"one two")));
        assert_eq!(unpack(&output), Some((b"one two".to_vec(), vec![])));
        let nothing = captured(&[], &Redactor::default());
        assert_eq!((nothing.length, nothing.sha256, nothing.packed), (0, hash(b""), 0));
        assert_eq!(unpack(&nothing), Some((vec![], vec![])));
    }

    #[test]
    fn long_outputs_keep_their_ends_and_their_hash() {
        let whole: Vec<u8> = (0..300_000_u32).flat_map(|n| (n ^ n >> 7).to_le_bytes()).collect();
        for size in [1000, 48 * 1024, 50_001, 1 << 20] {
            let chunks: Vec<&[u8]> = whole.chunks(size).collect();
            let output = captured(&chunks, &Redactor::default());
            assert_eq!((output.length, output.sha256), (whole.len() as u64, hash(&whole)), "{size}");
            let (head, tail) = unpack(&output).unwrap();
            assert_eq!(head, whole[..HEAD_KEPT]);
            assert_eq!(tail, whole[whole.len() - TAIL_KEPT..]);
        }
    }

    #[test]
    fn secrets_are_gone_from_what_is_kept_and_hashed() {
        let redactor = Redactor::new(["hunter22"]);
        let output = captured(&[b"token=hunt", b"er22 and hun"], &redactor);
        assert_eq!(unpack(&output).unwrap().0, b"token=[secret] and hun");
        assert_eq!((output.length, output.sha256), (22, hash(b"token=[secret] and hun")));
    }

    #[test]
    fn a_part_that_was_not_seen_leaves_no_hash() {
        let mut capture = Capture::new(&Redactor::default());
        capture.take(b"abc");
        capture.skip(1000);
        capture.take(b"def");
        let output = capture.finish();
        assert_eq!((output.length, output.sha256), (1006, None));
        assert_eq!(unpack(&output).unwrap().0, b"abcdef");
    }

    #[test]
    fn hostile_bytes_unpack_to_nothing() {
        let bomb = captured(&[&vec![0; 60_000]], &Redactor::default());
        assert!(unpack(&Output { head: 10, tail: 0, ..bomb.clone() }).is_none());
        assert!(unpack(&Output { head: u32::MAX, ..bomb.clone() }).is_none());
        assert!(unpack(&Output { bytes: vec![0xff; 50], ..bomb }).is_none());
        assert!(unpack(&Output { bytes: vec![], ..bomb }).is_none());
    }
}
