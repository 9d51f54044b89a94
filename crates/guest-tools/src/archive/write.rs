//! Entries on their way into an archive. Names and targets are written as they are, byte for byte; those
//! too long for a header go before it, as GNU tar does it.

use super::{
    BLOCK,
    folders::{Batch, MOST_ENTRIES},
};
use rustix::fs::Stat;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use tar::{EntryType, Header};

const NAME: usize = 100;

pub(crate) struct Archive<W: Write> {
    out: W,
    /// Of an archive that has them.
    digests: Option<Digests>,
}

/// The digests on their way into an archive.
#[derive(Default)]
struct Digests {
    batch: Batch,
    /// The present entry.
    name: Vec<u8>,
    entries: u64,
}

/// What a header says beside name and target.
pub(crate) struct About<'a> {
    pub(crate) kind: EntryType,
    pub(crate) stat: &'a Stat,
    pub(crate) size: u64,
}

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, digests: None }
    }

    /// The same, with the digests of its files between them.
    pub(crate) fn with_digests(self) -> Self {
        Self { digests: Some(Digests::default()), ..self }
    }

    /// Whether an archive with digests has as many entries as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.digests.as_ref().is_some_and(|digests| digests.entries > MOST_ENTRIES)
    }

    /// Writes the head of an entry; exactly `about.size` bytes must follow with [`Archive::body`].
    pub(crate) fn head(&mut self, name: &[u8], target: &[u8], about: &About<'_>) -> io::Result<()> {
        self.long(EntryType::GNULongLink, target)?;
        self.long(EntryType::GNULongName, name)?;
        let mut header = Header::new_gnu();
        header.set_entry_type(about.kind);
        header.set_mode(about.stat.st_mode & 0o7777);
        header.set_uid(about.stat.st_uid.into());
        header.set_gid(about.stat.st_gid.into());
        header.set_mtime(u64::try_from(about.stat.st_mtime).unwrap_or(0));
        header.set_size(about.size);
        if let Some(digests) = &mut self.digests {
            digests.name = name.to_vec();
            digests.entries += 1;
        }
        self.header(header, name, target)
    }

    /// Writes extensions of the entry that follows.
    #[cfg(feature = "run")]
    pub(crate) fn extensions(&mut self, records: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for (key, value) in records {
            // The length counts itself.
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            text.extend_from_slice(format!("{length} ").as_bytes());
            text.extend_from_slice(key);
            text.push(b'=');
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        self.header(header, b"././@PaxHeader", b"")?;
        self.out.write_all(&text)?;
        self.pad(text.len() as u64)
    }

    fn long(&mut self, kind: EntryType, text: &[u8]) -> io::Result<()> {
        if text.len() <= NAME {
            return Ok(());
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(text.len() as u64 + 1);
        self.header(header, b"././@LongLink", b"")?;
        self.out.write_all(text)?;
        self.out.write_all(&[0])?;
        self.pad(text.len() as u64 + 1)
    }

    fn header(&mut self, mut header: Header, name: &[u8], target: &[u8]) -> io::Result<()> {
        if let Some(fields) = header.as_gnu_mut() {
            let put = |field: &mut [u8; NAME], text: &[u8]| {
                let length = text.len().min(NAME);
                field[..length].copy_from_slice(&text[..length]);
            };
            put(&mut fields.name, name);
            put(&mut fields.linkname, target);
        }
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    /// Writes exactly `size` bytes: a file that shrank meanwhile is filled up with zeroes, one that grew is cut,
    /// so that the archive stays valid.
    pub(crate) fn body(&mut self, file: &mut impl Read, size: u64) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let mut digest = self.digests.is_some().then(Sha256::new);
        let mut written = |out: &mut W, bytes: &[u8]| {
            if let Some(digest) = &mut digest {
                digest.update(bytes);
            }
            out.write_all(bytes)
        };
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let got = match file.read(&mut buffer[..most]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if got == 0 {
                break;
            }
            written(&mut self.out, &buffer[..got])?;
            left -= got as u64;
        }
        buffer.fill(0);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            written(&mut self.out, &buffer[..most])?;
            left -= most as u64;
        }
        self.pad(size)?;
        if let (Some(digests), Some(digest)) = (&mut self.digests, digest) {
            digests.batch.add(&digests.name, digest);
        }
        self.batch(false)
    }

    /// Writes the digests that are due.
    fn batch(&mut self, all: bool) -> io::Result<()> {
        let due = self.digests.as_mut().and_then(|digests| digests.batch.due(all));
        due.map_or(Ok(()), |(name, text)| self.list(&name, &text))
    }

    /// Begins a part of the archive with an entry for its folder. Its entries are counted from here on, and the digests of
    /// all files before it are written before it.
    pub(super) fn part(&mut self, name: &[u8]) -> io::Result<()> {
        self.batch(true)?;
        if let Some(digests) = &mut self.digests {
            digests.entries = 0;
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        self.header(header, name, b"")
    }

    /// Writes a list that is no file of the sandbox's.
    pub(super) fn list(&mut self, name: &[u8], text: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        self.header(header, name, b"")?;
        self.out.write_all(text)?;
        self.pad(text.len() as u64)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        self.out.write_all(&[0; BLOCK][..padding(size)])
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.batch(true)?;
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}
