//! Reads the entries of an archive, which is not trusted: every length is bounded, a header must be complete, and
//! an archive without its end mark is an error. Ids, extended attributes and sparse files are for images alone.

use super::{BLOCK, sparse};
use crate::errno::shown;
use atoll_types::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use tar::{EntryType, Header};

/// The longest name, target or set of extensions; one extended attribute may have 64 KiB.
const LONGEST_TEXT: u64 = 256 << 10;

/// An entry of an archive.
#[cfg_attr(not(feature = "run"), allow(dead_code))] // Only images have use for the rest.
pub struct Entry {
    pub name: Vec<u8>,
    pub target: Vec<u8>,
    pub(crate) kind: EntryType,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime: i64,
    pub(crate) nanoseconds: u32,
    /// Bytes in the archive.
    pub size: u64,
    /// Where they belong, of a sparse file.
    pub(crate) sparse: Option<sparse::Map>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an entry is, as far as a folder has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchivedKind {
    File,
    Folder,
    Link,
    HardLink,
    Other,
}

impl Entry {
    /// What it is.
    #[must_use]
    pub fn entry_kind(&self) -> ArchivedKind {
        match self.kind {
            EntryType::Regular | EntryType::Continuous => ArchivedKind::File,
            EntryType::Directory => ArchivedKind::Folder,
            EntryType::Symlink => ArchivedKind::Link,
            EntryType::Link => ArchivedKind::HardLink,
            _ => ArchivedKind::Other,
        }
    }
}

/// The entries of an archive; reading it reads the bytes of the current one.
pub struct Entries<R: Read> {
    input: R,
    /// Bytes of the current entry, and of its padding, that were not read yet.
    body: u64,
    padding: u64,
    /// Of what was read of the current entry, where digests are wanted.
    digest: Option<Sha256>,
    /// Whether this is an image's, with all that a file can have.
    image: bool,
    /// Whether the archive may end without its end mark: a digest says that it is whole.
    open_end: bool,
}

/// What extensions say of the entry that follows.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    uid: Option<u64>,
    gid: Option<u64>,
    sparse: sparse::Records,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("body", message)
}

/// The error for a failed read.
pub(crate) fn broke_off(error: &io::Error) -> Error {
    if let Some(inner) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        return inner.clone();
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong("the archive broke off"),
        _ => Error::new(ErrorCode::Unavailable, format!("the archive broke off ({error})")),
    }
}

impl<R: Read> Entries<R> {
    /// Reads an archive.
    pub fn new(input: R) -> Self {
        Self { input, body: 0, padding: 0, digest: None, image: false, open_end: false }
    }

    /// The same of an image.
    #[cfg(feature = "run")]
    pub(crate) fn of_image(self, open_end: bool) -> Self {
        Self { image: true, open_end, ..self }
    }

    /// What it reads from.
    pub fn input(&self) -> &R {
        &self.input
    }

    #[cfg(feature = "run")]
    pub(crate) fn into_input(self) -> R {
        self.input
    }

    /// The same, with a digest of each entry's bytes.
    #[must_use]
    pub fn hashing(self) -> Self {
        Self { digest: Some(Sha256::new()), ..self }
    }

    /// The digest of what was read of the current entry.
    #[must_use]
    pub fn digest(&self) -> Sha256 {
        self.digest.clone().unwrap_or_default()
    }

    /// The next entry; none at the end mark.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let mut header = Header::new_old();
            if !self.block(header.as_mut_bytes())? {
                return Ok(None);
            }
            if header.as_bytes().iter().all(|b| *b == 0) {
                return Ok(None);
            }
            check(&header)?;
            let size = header.entry_size().map_err(|_| wrong("a size in the archive is no number"))?;
            self.begin(size)?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.name = Some(self.text(size)?),
                EntryType::GNULongLink => extensions.target = Some(self.text(size)?),
                EntryType::XHeader => self.extend(size, &mut extensions)?,
                // Records for all entries are ignored.
                EntryType::XGlobalHeader => {}
                EntryType::GNUSparse if !self.image => return Err(sparse::refused()),
                kind => return self.entry(&header, kind, size, extensions).map(Some),
            }
        }
    }

    /// Reads a header; false where the archive may end here, and does.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool> {
        if self.open_end {
            let got = loop {
                match self.input.read(&mut block[..1]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => break other.map_err(|e| broke_off(&e))?,
                }
            };
            if got == 0 {
                return Ok(false);
            }
            return self.input.read_exact(&mut block[1..]).map_err(|e| broke_off(&e)).map(|()| true);
        }
        self.input.read_exact(block).map_err(|e| broke_off(&e)).map(|()| true)
    }

    fn entry(
        &mut self,
        header: &Header,
        mut kind: EntryType,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry> {
        let Extensions { name, target, size: real, mtime, uid, gid, sparse, xattrs } = extensions;
        let name = sparse.name.clone().or(name).unwrap_or_else(|| header.path_bytes().into_owned());
        let target = target.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let no_number = |what| wrong(format!("the {what} of {} is no number", shown(&name)));
        let mode = header.mode().map_err(|_| no_number("mode"))?;
        let seconds = header.mtime().map_err(|_| no_number("time"))?;
        // An id that is no number is one that no file can have; an empty one is root's.
        let id = |field: &[u8], id: io::Result<u64>| match field.iter().all(|b| matches!(*b, 0 | b' ')) {
            true => 0,
            false => id.unwrap_or(u64::MAX),
        };
        let uid = uid.unwrap_or_else(|| id(&header.as_old().uid, header.uid()));
        let gid = gid.unwrap_or_else(|| id(&header.as_old().gid, header.gid()));
        let blocks = match kind {
            EntryType::GNUSparse => Some(sparse::Blocks::read(header, &mut self.input)?),
            _ => None,
        };
        if blocks.is_some() {
            kind = EntryType::Regular;
        }
        // Some archives give a link the size of its target, without its bytes.
        let holds = matches!(kind, EntryType::Regular | EntryType::Continuous) || !kind_is_known(kind);
        let size = if holds { real.unwrap_or(size) } else { 0 };
        self.begin(size)?;
        let map = match blocks {
            Some(blocks) => Some(blocks.map()),
            None if holds && sparse.is_sparse() => Some(sparse.map(&mut *self)?),
            None => None,
        };
        let size = self.body;
        if let Some(map) = &map {
            map.check(size).map_err(|e| e.context(shown(&name)))?;
        }
        let (mtime, nanoseconds) = mtime.unwrap_or_else(|| (i64::try_from(seconds).unwrap_or(0), 0));
        let target = target.unwrap_or_default();
        Ok(Entry { name, target, kind, mode, uid, gid, mtime, nanoseconds, size, sparse: map, xattrs })
    }

    fn begin(&mut self, size: u64) -> Result<()> {
        // Far beyond any disk; the sums below cannot overflow.
        if size > 1 << 60 {
            return Err(wrong("a size in the archive cannot be right"));
        }
        self.digest = self.digest.take().map(|_| Sha256::new());
        self.body = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        Ok(())
    }

    fn skip(&mut self) -> Result<()> {
        let (body, padding) = (self.body, self.padding);
        (self.body, self.padding) = (0, 0);
        let got = io::copy(&mut self.input.by_ref().take(body + padding), &mut io::sink());
        // umoci pads no last entry, as Go's reader lets it.
        let least = if self.open_end { body } else { body + padding };
        if got.map_err(|e| broke_off(&e))? >= least { Ok(()) } else { Err(wrong("the archive broke off")) }
    }

    fn text(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > LONGEST_TEXT {
            return Err(wrong("a name in the archive is too long"));
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_exact(&mut text).map_err(|e| broke_off(&e))?;
        while text.last() == Some(&0) {
            text.pop();
        }
        Ok(text)
    }

    fn extend(&mut self, size: u64, extensions: &mut Extensions) -> Result<()> {
        let text = self.text(size)?;
        let mut rest = text.as_slice();
        while let Some((key, value)) = record(&mut rest)? {
            let number = || std::str::from_utf8(value).ok().and_then(|t| t.split('.').next()?.parse().ok());
            let id = || number().and_then(|id: i64| u64::try_from(id).ok()).unwrap_or(u64::MAX);
            match key {
                b"path" => extensions.name = Some(value.to_vec()),
                b"linkpath" => extensions.target = Some(value.to_vec()),
                b"size" => {
                    let size: i64 = number().ok_or_else(|| wrong("a size in the archive is no number"))?;
                    extensions.size = Some(u64::try_from(size).map_err(|_| wrong("a size is below zero"))?);
                }
                b"mtime" => extensions.mtime = std::str::from_utf8(value).ok().and_then(moment),
                b"uid" => extensions.uid = Some(id()),
                b"gid" => extensions.gid = Some(id()),
                key => {
                    if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                        if !self.image {
                            return Err(sparse::refused());
                        }
                        extensions.sparse.add(key, value)?;
                    } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.")
                        && self.image
                    {
                        extensions.xattrs.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what is left, so that the sender can finish.
    pub(crate) fn drain(mut self) {
        let _ = io::copy(&mut self.input, &mut io::sink());
    }
}

/// Seconds since 1970, with a fraction, as whole ones and nanoseconds after them.
fn moment(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match text.starts_with('-') && nanoseconds > 0 {
        true => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        false => Some((seconds, nanoseconds)),
    }
}

/// The next `LENGTH KEY=VALUE\n` of extensions. The length counts all of it, so a value may hold newlines.
fn record<'a>(rest: &mut &'a [u8]) -> Result<Option<(&'a [u8], &'a [u8])>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let broken = || wrong("an extension in the archive is broken");
    let space = rest.iter().position(|b| *b == b' ').ok_or_else(broken)?;
    let length = std::str::from_utf8(&rest[..space]).ok().and_then(|t| t.parse::<usize>().ok());
    let whole = length.and_then(|length| rest.get(space + 1..length)).ok_or_else(broken)?;
    let (line, [b'\n']) = whole.split_at_checked(whole.len().saturating_sub(1)).ok_or_else(broken)? else {
        return Err(broken());
    };
    *rest = &rest[space + 1 + whole.len()..];
    let equals = line.iter().position(|b| *b == b'=').ok_or_else(broken)?;
    Ok(Some((&line[..equals], &line[equals + 1..])))
}

fn kind_is_known(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Link
            | EntryType::Symlink
            | EntryType::Char
            | EntryType::Block
            | EntryType::Directory
            | EntryType::Fifo
    )
}

pub(crate) fn check(header: &Header) -> Result<()> {
    let bytes = header.as_bytes();
    let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|b| u32::from(*b)).sum::<u32>() + 8 * 32;
    if header.cksum().ok() == Some(sum) { Ok(()) } else { Err(wrong("this is not a tar archive")) }
}

/// The bytes of the current entry.
impl<R: Read> Read for Entries<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.body).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let got = self.input.read(&mut buffer[..most])?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(digest) = &mut self.digest {
            digest.update(&buffer[..got]);
        }
        self.body -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::{moment, record};

    #[test]
    fn moments_have_fractions_and_may_be_before_1970() {
        assert_eq!(moment("12.5"), Some((12, 500_000_000)));
        assert_eq!(moment("12"), Some((12, 0)));
        assert_eq!(moment("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(moment("1.0000000019"), Some((1, 1)));
        assert_eq!((moment("x"), moment("1.x")), (None, None));
    }

    #[test]
    fn extensions_are_taken_apart_by_their_lengths() {
        let mut rest = &b"12 path=a\nb\n13 mtime=1.5\n"[..];
        let mut seen = Vec::new();
        while let Ok(Some(pair)) = record(&mut rest) {
            seen.push(pair);
        }
        assert_eq!(seen, [(&b"path"[..], &b"a\nb"[..]), (b"mtime", b"1.5")]);
        for bad in
            ["x", "9", "5 a=b", "1 a=b\n", "99 a=b\n", "7 a=bcd\n", "0 a=\n", " =\n", "-1 a=\n", "3 \n"]
        {
            assert!(record(&mut bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
