//! The ends of an exported sandbox, which the server writes and reads: a small file in front, and one behind.
//! What lies between is for the tools inside.

use super::BLOCK;
use crate::errno::shown;
use atoll_types::{Error, Result};
use tar::{EntryType, Header};

/// The mark behind the last entry of an archive.
pub const END_MARK: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The longest name that a header has room for.
const NAME: usize = 100;

fn header(kind: EntryType, name: &[u8], mode: u32, mtime: u64, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(mtime);
    header.set_size(size);
    if let Some(fields) = header.as_gnu_mut() {
        let length = name.len().min(NAME);
        fields.name[..length].copy_from_slice(&name[..length]);
    }
    header.set_cksum();
    header
}

/// What lies in front of a file's bytes in an archive; behind them the last block is filled up with zeroes. A name that
/// is too long for a header goes before it, as GNU tar does it.
#[must_use]
pub fn file_head(name: &str, mode: u32, mtime: u64, size: u64) -> Vec<u8> {
    let mut head = Vec::new();
    if name.len() > NAME {
        let length = name.len() as u64 + 1;
        let long = header(EntryType::GNULongName, b"././@LongLink", 0o644, 0, length);
        head.extend_from_slice(long.as_bytes());
        head.extend_from_slice(name.as_bytes());
        head.resize((head.len() + 1).next_multiple_of(BLOCK), 0);
    }
    head.extend_from_slice(header(EntryType::Regular, name.as_bytes(), mode, mtime, size).as_bytes());
    head
}

/// A small file as an archive holds it. Of the same name and bytes it is always the same.
#[must_use]
pub fn small_file(name: &str, body: &[u8]) -> Vec<u8> {
    let mut entry = file_head(name, 0o644, 0, body.len() as u64);
    entry.extend_from_slice(body);
    entry.resize(entry.len().next_multiple_of(BLOCK), 0);
    entry
}

/// The length of a small file's body, with its padding and without, by the block in front of it.
pub fn small_file_length(block: &[u8; BLOCK], name: &str, most: usize) -> Result<(usize, usize)> {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    super::read::check(&header)?;
    let wrong = |message: String| Error::invalid("body", message);
    let found = header.path_bytes();
    if found.as_ref() != name.as_bytes() || header.entry_type() != EntryType::Regular {
        return Err(wrong(format!("the archive begins with {}, and not with {name}", shown(&found))));
    }
    let size = header.entry_size().ok().and_then(|size| usize::try_from(size).ok());
    match size.filter(|size| *size <= most) {
        Some(size) => Ok((size.next_multiple_of(BLOCK), size)),
        None => Err(wrong(format!("{name} is larger than {most} bytes"))),
    }
}
