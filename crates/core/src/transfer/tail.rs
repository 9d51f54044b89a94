//! The end of an archive: an entry with the digest of every byte before it, and the mark. Its length is fixed,
//! so whichever bytes come last are it; no reader has to look for it.

use atoll_guest_tools::archive::{END_MARK, small_file};
use atoll_types::{Error, Result, text::hex};
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

const NAME: &str = "sha256";

/// The bytes behind those that this digest is of.
pub(super) fn tail_of(digest: Sha256) -> Vec<u8> {
    let text = format!("{}\n", hex(&digest.finalize()));
    let mut tail = small_file(NAME, text.as_bytes());
    tail.extend(END_MARK);
    tail
}

/// Holds the last bytes of a stream back.
pub(super) struct HoldBack {
    held: BytesMut,
    most: usize,
}

impl HoldBack {
    /// Holds the last `most` bytes back.
    pub(super) fn new(most: usize) -> Self {
        Self { held: BytesMut::new(), most }
    }

    /// The bytes that are not the last ones any more.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.held.extend_from_slice(bytes);
        self.held.split_to(self.held.len().saturating_sub(self.most)).freeze()
    }

    /// The bytes that are held back: at the end of the stream, its last ones.
    pub(super) fn rest(&self) -> &[u8] {
        &self.held
    }
}

/// The digest of an archive on its way in, compared in the end with the one in its tail.
pub(super) struct DigestCheck {
    held: HoldBack,
    digest: Sha256,
}

impl Default for DigestCheck {
    fn default() -> Self {
        Self { held: HoldBack::new(tail_of(Sha256::new()).len()), digest: Sha256::new() }
    }
}

impl DigestCheck {
    /// The bytes that are sure to lie before the tail.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Bytes {
        let sure = self.held.push(bytes);
        self.digest.update(&sure);
        sure
    }

    /// Whether the archive is whole and every byte as it was.
    pub(super) fn check(&self) -> Result<()> {
        let (wanted, found) = (tail_of(self.digest.clone()), self.held.rest());
        if found == wanted {
            return Ok(());
        }
        // The header and the mark are the same in every archive.
        let body = 512..512 + 64;
        let framed = found.len() == wanted.len()
            && found[..body.start] == wanted[..body.start]
            && found[body.end..] == wanted[body.end..];
        let message = match framed {
            true => "the digest of the archive is not that of its bytes: it was changed on the way",
            false => "the archive broke off: it does not end with its digest",
        };
        Err(Error::invalid("body", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(archive: &[u8], piece: usize) -> (Vec<u8>, Result<()>) {
        let mut checked = DigestCheck::default();
        let sure = archive.chunks(piece).flat_map(|bytes| checked.push(bytes)).collect();
        (sure, checked.check())
    }

    #[test]
    fn an_archive_is_whole_or_refused() {
        let body: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        let archive = [body.clone(), tail_of(Sha256::new_with_prefix(&body))].concat();
        for piece in [1, 511, 2048, 9000] {
            assert_eq!(read(&archive, piece), (body.clone(), Ok(())));
        }
        let refused = |archive: &[u8]| read(archive, 700).1.unwrap_err().message;
        for at in [0, 4999, 5000 + 512, 5000 + 570] {
            let mut changed = archive.clone();
            changed[at] ^= 1;
            assert!(refused(&changed).contains("changed on the way"), "{at}");
        }
        for length in [0, 1, 4000, archive.len() - 1024, archive.len() - 1] {
            assert!(refused(&archive[..length]).contains("broke off"), "{length}");
        }
        assert!(refused(&[&archive[..], &[0; 512]].concat()).contains("broke off"));
    }
}
