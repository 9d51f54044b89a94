//! Several folders in one archive, with a digest of every file: the middle of an exported sandbox. The digests
//! follow their files in batches, so neither side keeps more than one batch. A batch is a file of the archive in
//! the format of `sha256sum`. What the folders were at snapshots follows as differences ([`super::changes`]), each a part
//! with digests of its own.

use super::{
    changes::{REMOVED, pack_changes},
    pack::{broken, check_readable, pack_top},
    read::{Entries, Entry, wrong},
    split::part_folder,
    unpack::{Links, Unpacker, inside},
    write::Archive,
};
use crate::{Unpacked, errno::shown};
use atoll_types::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256};
use std::{
    io::{Read, Write},
    os::fd::OwnedFd,
};
use tar::EntryType;

/// Most entries of an archive, its digests not counted.
pub const MOST_ENTRIES: u64 = 1_000_000;
/// The folder of the digests.
const DIGESTS: &[u8] = b"digests";
/// A batch is written once it is longer than this.
pub(super) const BATCH: usize = 64 << 10;
/// A longer one is not an export's: it holds at most one file more, with a name of any length.
const LONGEST_BATCH: usize = BATCH + (64 << 10);

/// The digests of the files since the last batch.
#[derive(Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    /// The name of the last file.
    last: Vec<u8>,
    written: u32,
}

impl Batch {
    /// Adds a file, as `sha256sum` writes it: a name with a newline or a backslash is escaped.
    pub(super) fn add(&mut self, name: &[u8], digest: Sha256) {
        let escapes = name.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\\'));
        if escapes {
            self.text.push(b'\\');
        }
        for byte in digest.finalize() {
            self.text.extend([byte >> 4, byte & 15].map(|n| b"0123456789abcdef"[usize::from(n)]));
        }
        self.text.extend(b"  ");
        for byte in name {
            match byte {
                b'\n' => self.text.extend(b"\\n"),
                b'\r' => self.text.extend(b"\\r"),
                b'\\' => self.text.extend(b"\\\\"),
                byte => self.text.push(*byte),
            }
        }
        self.text.push(b'\n');
        self.last = name.to_vec();
    }

    /// The name and the text of a batch to be written; none where it is short, or with `all` empty.
    pub(super) fn due(&mut self, all: bool) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.text.is_empty() || !all && self.text.len() <= BATCH {
            return None;
        }
        self.written += 1;
        let name = [DIGESTS, format!("/{:06}", self.written).as_bytes()].concat();
        Some((name, std::mem::take(&mut self.text)))
    }

    /// Compares what an archive says with what was read of it.
    fn compare(&mut self, said: &[u8]) -> Result<()> {
        let read = std::mem::take(&mut self.text);
        if read == said {
            return Ok(());
        }
        let lines = |text: &[u8]| text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (read, said) = (lines(&read), lines(said));
        let first = read.iter().zip(&said).find(|(read, said)| read != said).map(|(read, _)| read.as_slice());
        // Behind the digest and two spaces.
        let name = first.and_then(|line| line.get(66..)).unwrap_or(&self.last);
        Err(wrong(format!("the digest of {} is not that of its bytes", shown(name))))
    }

    /// Refuses files without a digest.
    fn must_be_short(&self, most: usize) -> Result<()> {
        if self.text.len() <= most {
            return Ok(());
        }
        Err(wrong(format!("{} has no digest in the archive", shown(&self.last))))
    }
}

/// Checks that all of the folders can be packed: every file can be read, and they have no more than `most` entries. Once
/// an archive has begun, its reader learns of an error only by an archive that breaks off.
fn check_folders(folders: &[(String, OwnedFd)], most: u64) -> Result<()> {
    let mut entries = 0;
    for (name, folder) in folders {
        entries += 1 + check_readable(folder, name.as_bytes())?;
    }
    if entries > most { Err(too_many(most)) } else { Ok(()) }
}

/// The error of a sandbox with more entries than an archive may have.
pub(super) fn too_many(most: u64) -> Error {
    let message = format!("a sandbox with more than {most} files and folders cannot be exported");
    Error::new(ErrorCode::TooLarge, message)
}

/// Packs open folders, each under its name, and then what they were at snapshots: `made_ms` says when each was made, and
/// `state` opens the folders of one by its number, which begins with 1. Where that is known before, an error comes before the
/// first byte.
pub fn pack_folders(
    folders: &[(String, OwnedFd)],
    made_ms: &[i64],
    state: impl Fn(u32) -> Result<Vec<(String, OwnedFd)>>,
    out: impl Write,
) -> Result<()> {
    check_folders(folders, MOST_ENTRIES)?;
    for (number, _) in (1..).zip(made_ms) {
        check_folders(&state(number)?, MOST_ENTRIES)
            .map_err(|error| error.context(part_folder(number).trim_end_matches('/')))?;
    }
    let mut archive = Archive::new(out).with_digests();
    for (name, folder) in folders {
        let folder = folder.try_clone().map_err(broken)?;
        pack_top(folder, name.as_bytes(), &mut archive)?;
    }
    let mut later = None;
    for (number, made_ms) in (1..).zip(made_ms) {
        let earlier = state(number)?;
        pack_changes(later.as_deref().unwrap_or(folders), &earlier, number, *made_ms, &mut archive)?;
        later = Some(earlier);
    }
    archive.finish().map_err(broken)
}

/// Unpacks into open folders what [`pack_folders`] made, or another program claims to: the folders themselves, or the
/// part of a snapshot by its number, which changes them. `done` counts as it goes.
pub fn unpack_folders(
    folders: &[(String, OwnedFd)],
    snapshot: Option<u32>,
    archive: impl Read,
    done: &mut Unpacked,
) -> Result<()> {
    let part = snapshot.map(part_folder).unwrap_or_default();
    let mut entries = Entries::new(archive).hashing();
    let mut counts = vec![(Unpacked::default(), Vec::new()); folders.len()];
    let mut unpackers = Vec::new();
    for ((name, folder), (count, left_out)) in folders.iter().zip(&mut counts) {
        let unpacker = Unpacker::new(folder, false, Links::Any, count, left_out)?;
        unpackers.push((name.as_bytes(), if snapshot.is_some() { unpacker.onto() } else { unpacker }));
    }
    let result = all(&mut unpackers, part.as_bytes(), &mut entries);
    let finished = unpackers.iter_mut().try_for_each(|(_, unpacker)| unpacker.finish());
    drop(unpackers);
    for (Unpacked { files, bytes }, _) in counts {
        done.files += files;
        done.bytes += bytes;
    }
    result?;
    entries.drain();
    finished
}

/// Unpacks all entries; the names of a part begin with its folder.
fn all(unpackers: &mut [(&[u8], Unpacker<'_>)], part: &[u8], entries: &mut Entries<impl Read>) -> Result<()> {
    let (mut batch, mut count) = (Batch::default(), 0);
    while let Some(mut entry) = entries.next_entry()? {
        let path = inside(&entry.name)?;
        if split_top(&path).0 == DIGESTS {
            batch.compare(&list(&entry, entries)?)?;
            continue;
        }
        count += 1;
        if count > MOST_ENTRIES {
            let message = format!("{} is one entry too many; {MOST_ENTRIES} are allowed", shown(&path));
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        if !part.is_empty() && entry.name == part {
            continue;
        }
        let (top, below) = path.strip_prefix(part).map_or((&b""[..], &b""[..]), split_top);
        if !part.is_empty() && top == REMOVED {
            remove(unpackers, &list(&entry, entries)?)?;
            continue;
        }
        let unpacker = unpacker_of(unpackers, top, &path)?;
        if entry.kind == EntryType::Link {
            // Within the same folder; one between two folders has no target there.
            let target = inside(&entry.target)?;
            let (of, target) = split_top(&target);
            entry.target = if of == top { target.to_vec() } else { b"/".to_vec() };
        }
        let (name, below) = (entry.name.clone(), below.to_vec());
        if unpacker.entry(below, entry, entries)? {
            batch.add(&name, entries.digest());
            batch.must_be_short(LONGEST_BATCH)?;
        }
    }
    batch.must_be_short(0)
}

fn unpacker_of<'a, 'b>(
    unpackers: &'a mut [(&[u8], Unpacker<'b>)],
    top: &[u8],
    path: &[u8],
) -> Result<&'a mut Unpacker<'b>> {
    let found = unpackers.iter_mut().find(|(name, _)| *name == top);
    let none = || wrong(format!("{} is in no folder of a sandbox", shown(path)));
    found.map(|(_, unpacker)| unpacker).ok_or_else(none)
}

/// Removes what a list names, each with a zero byte behind it.
fn remove(unpackers: &mut [(&[u8], Unpacker<'_>)], removed: &[u8]) -> Result<()> {
    for name in removed.split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let path = inside(name)?;
        let (top, below) = split_top(&path);
        unpacker_of(unpackers, top, &path)?.remove(below)?;
    }
    Ok(())
}

/// The first name of a path, and the rest.
fn split_top(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, b""),
    }
}

/// The text of a list that is no file of the sandbox's.
fn list(entry: &Entry, entries: &mut Entries<impl Read>) -> Result<Vec<u8>> {
    let plain = matches!(entry.kind, EntryType::Regular | EntryType::Continuous);
    if !plain || entry.size > LONGEST_BATCH as u64 {
        return Err(wrong(format!("{} is no list of an export's", shown(&entry.name))));
    }
    let mut text = Vec::new();
    entries.read_to_end(&mut text).map_err(|e| super::read::broke_off(&e))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn entries_are_counted_over_all_folders() {
        let top = tempfile::tempdir().unwrap();
        for folder in ["workspace/deep", "home"] {
            fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        fs::write(top.path().join("workspace/deep/file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", top.path().join("home/link")).unwrap();
        let open = |name: &str| (name.to_owned(), File::open(top.path().join(name)).unwrap().into());
        let folders = ["workspace", "home"].map(open);
        assert_eq!(check_folders(&folders, 5), Ok(()));
        assert_eq!(check_folders(&folders, 4).unwrap_err().code, ErrorCode::TooLarge);
    }
}
