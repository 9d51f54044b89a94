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

/// What an entry is, as its header says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind<'a> {
    File,
    Folder,
    /// A symbolic link with its target.
    Link(&'a str),
}

/// What the header of an entry says.
#[derive(Debug, Clone, Copy)]
pub struct EntryHead<'a> {
    pub kind: HeadKind<'a>,
    pub path: &'a str,
    pub mode: u32,
    /// The user's and the group's id.
    pub owner: (u32, u32),
    pub mtime: u64,
    pub size: u64,
}

/// A text that is too long for a header, in an entry of its own before it, as GNU tar does it.
fn long_text(head: &mut Vec<u8>, kind: EntryType, text: &str) {
    if text.len() <= NAME {
        return;
    }
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(text.len() as u64 + 1);
    if let Some(fields) = header.as_gnu_mut() {
        fields.name[..13].copy_from_slice(b"././@LongLink");
    }
    header.set_cksum();
    head.extend_from_slice(header.as_bytes());
    head.extend_from_slice(text.as_bytes());
    head.resize((head.len() + 1).next_multiple_of(BLOCK), 0);
}

/// What lies in front of an entry's bytes in an archive; behind them the last block is filled up with zeroes.
#[must_use]
pub fn entry_head(entry: &EntryHead<'_>) -> Vec<u8> {
    let EntryHead { kind, path, mode, owner, mtime, size } = *entry;
    let (kind, target) = match kind {
        HeadKind::File => (EntryType::Regular, ""),
        HeadKind::Folder => (EntryType::Directory, ""),
        HeadKind::Link(target) => (EntryType::Symlink, target),
    };
    let mut head = Vec::new();
    long_text(&mut head, EntryType::GNULongLink, target);
    long_text(&mut head, EntryType::GNULongName, path);
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner.0.into());
    header.set_gid(owner.1.into());
    header.set_mtime(mtime);
    header.set_size(size);
    if let Some(fields) = header.as_gnu_mut() {
        for (field, text) in [(&mut fields.name, path), (&mut fields.linkname, target)] {
            let length = text.len().min(NAME);
            field[..length].copy_from_slice(&text.as_bytes()[..length]);
        }
    }
    header.set_cksum();
    head.extend_from_slice(header.as_bytes());
    head
}

/// What lies in front of a file's bytes; the file is root's.
#[must_use]
pub fn file_head(path: &str, mode: u32, mtime: u64, size: u64) -> Vec<u8> {
    entry_head(&EntryHead { kind: HeadKind::File, path, mode, owner: (0, 0), mtime, size })
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
