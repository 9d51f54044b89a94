//! Reads the entries of an archive, which is not trusted: every length is bounded, a header must be complete, and
//! an archive without its end mark is an error.

use super::BLOCK;
use crate::errno::shown;
use atoll_types::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use tar::{EntryType, Header};

/// The longest name, target or set of extensions.
const LONGEST_TEXT: u64 = 64 << 10;

pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) mode: u32,
    pub(super) mtime: i64,
    pub(super) size: u64,
}

pub(super) struct Entries<R: Read> {
    input: R,
    /// Bytes of the current entry, and of its padding, that were not read yet.
    body: u64,
    padding: u64,
    /// Of what was read of the current entry, where digests are wanted.
    digest: Option<Sha256>,
}

/// What extensions say of the entry that follows.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<i64>,
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("body", message)
}

/// The error for a failed read.
pub(super) fn broke_off(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong("the archive broke off"),
        _ => Error::new(ErrorCode::Unavailable, format!("the archive broke off ({error})")),
    }
}

impl<R: Read> Entries<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, body: 0, padding: 0, digest: None }
    }

    /// The same, with a digest of each entry's bytes.
    pub(super) fn hashing(self) -> Self {
        Self { digest: Some(Sha256::new()), ..self }
    }

    /// The digest of what was read of the current entry.
    pub(super) fn digest(&self) -> Sha256 {
        self.digest.clone().unwrap_or_default()
    }

    /// The next entry; none at the end mark.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let mut header = Header::new_old();
            self.input.read_exact(header.as_mut_bytes()).map_err(|e| broke_off(&e))?;
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
                EntryType::GNUSparse => return Err(wrong("sparse entries are not supported")),
                kind => return self.entry(&header, kind, size, extensions).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry> {
        let Extensions { name, target, size: real, mtime } = extensions;
        let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let target = target.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let no_number = |what| wrong(format!("the {what} of {} is no number", shown(&name)));
        let mode = header.mode().map_err(|_| no_number("mode"))?;
        let seconds = header.mtime().map_err(|_| no_number("time"))?;
        // Some archives give a link the size of its target, without its bytes.
        let holds = matches!(kind, EntryType::Regular | EntryType::Continuous) || !kind_is_known(kind);
        let size = if holds { real.unwrap_or(size) } else { 0 };
        self.begin(size)?;
        let mtime = mtime.unwrap_or_else(|| i64::try_from(seconds).unwrap_or(0));
        Ok(Entry { name, target: target.unwrap_or_default(), kind, mode, mtime, size })
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
        let left = self.body + self.padding;
        (self.body, self.padding) = (0, 0);
        let got = io::copy(&mut self.input.by_ref().take(left), &mut io::sink());
        if got.map_err(|e| broke_off(&e))? == left { Ok(()) } else { Err(wrong("the archive broke off")) }
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
            match key {
                b"path" => extensions.name = Some(value.to_vec()),
                b"linkpath" => extensions.target = Some(value.to_vec()),
                b"size" => {
                    let size: i64 = number().ok_or_else(|| wrong("a size in the archive is no number"))?;
                    extensions.size = Some(u64::try_from(size).map_err(|_| wrong("a size is below zero"))?);
                }
                b"mtime" => extensions.mtime = number(),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(wrong("sparse entries are not supported"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads what is left, so that the sender can finish.
    pub(super) fn drain(mut self) {
        let _ = io::copy(&mut self.input, &mut io::sink());
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

pub(super) fn check(header: &Header) -> Result<()> {
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
    use super::record;

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
