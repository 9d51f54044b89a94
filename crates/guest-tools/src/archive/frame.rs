//! The ends of an exported sandbox, which the server writes and reads: a small file in front, and one behind.
//! What lies between is for the tools inside.

use super::BLOCK;
use crate::errno::shown;
use atoll_types::{Error, Result};
use tar::{EntryType, Header};

/// The mark behind the last entry of an archive.
pub const END_MARK: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// A small file as an archive holds it. Of the same name and bytes it is always the same.
#[must_use]
pub fn small_file(name: &str, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(body.len() as u64);
    if let Some(fields) = header.as_gnu_mut() {
        let length = name.len().min(fields.name.len());
        fields.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    }
    header.set_cksum();
    let mut entry = header.as_bytes().to_vec();
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
