//! The index of an archive that comes with a build: what it holds by path, where the bytes are, and their digests. The archive is
//! a caller's: paths, kinds, the number of entries and the length of all names are bounded here.

use atoll_guest_tools::archive::{ArchivedKind, Counted, Entries, Entry};
use atoll_types::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256 as Hasher};
use std::{
    collections::BTreeMap,
    io::{self, Read},
};

/// The most entries.
const MOST_ENTRIES: usize = 100_000;
/// The most bytes of all paths and targets of links together, which are kept in memory.
const MOST_NAME_BYTES: usize = 16 << 20;
/// The longest target of a link, as the kernel takes it.
pub(super) const LONGEST_TARGET: usize = 4095;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Folder,
    Link(String),
}

/// An entry of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileEntry {
    pub(super) kind: EntryKind,
    pub(super) mode: u32,
    pub(super) mtime: i64,
    /// Where its bytes are in the archive.
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) digest: [u8; 32],
}

impl FileEntry {
    /// A folder that the archive does not name, or that a step makes.
    pub(super) fn new_folder() -> Self {
        Self { kind: EntryKind::Folder, mode: 0o755, mtime: 0, offset: 0, size: 0, digest: [0; 32] }
    }
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("body", message)
}

/// A path without `.` and empty parts; none where it leads out of the build's folder.
pub(super) fn path_inside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let inside = parts.iter().all(|part| *part != ".." && part.len() <= 255) && path.len() <= 4095;
    (inside && !path.contains('\0')).then(|| parts.join("/"))
}

/// Refuses more entries than a build may have.
pub(super) fn check_entries(field: &str, count: usize) -> Result<()> {
    if count <= MOST_ENTRIES {
        return Ok(());
    }
    let message = format!("the files of a build, and those that a step copies, are at most {MOST_ENTRIES}");
    Err(Error::new(ErrorCode::TooLarge, message).at(field))
}

/// Reads an archive to its end.
pub(super) fn index(archive: impl Read) -> Result<BTreeMap<String, FileEntry>> {
    let mut entries = Entries::new(Counted::new(archive)).hashing();
    let mut index = Index::default();
    while let Some(entry) = entries.next_entry()? {
        let name = String::from_utf8(entry.name.clone()).map_err(|_| wrong("a name is not UTF-8"))?;
        let path =
            path_inside(&name).ok_or_else(|| wrong(format!("{name:?} leads out of the build's folder")))?;
        if path.split('/').any(|part| part.starts_with(".wh.")) {
            return Err(wrong(format!("{path}: files of a build cannot be called .wh.…")));
        }
        let offset = entries.input().count();
        let (kind, size, digest) = match entry.entry_kind() {
            ArchivedKind::File => {
                io::copy(&mut entries, &mut io::sink()).map_err(|e| wrong(format!("it broke off ({e})")))?;
                (EntryKind::File, entry.size, entries.digest().finalize().into())
            }
            ArchivedKind::Folder => (EntryKind::Folder, 0, [0; 32]),
            ArchivedKind::Link => link(&path, &entry)?,
            ArchivedKind::HardLink => {
                let first = index.linked(&path, &entry)?;
                index.insert(path, FileEntry { mode: entry.mode & 0o7777, mtime: entry.mtime, ..first })?;
                continue;
            }
            ArchivedKind::Other => {
                return Err(wrong(format!("{path} is neither a file, a folder nor a link")));
            }
        };
        if path.ends_with(".dockerignore") && !path.contains('/') {
            let message = format!(
                "{path} is not supported: everything that is sent can be copied; send the files that are wanted, without it"
            );
            return Err(wrong(message));
        }
        if !path.is_empty() {
            let (mode, mtime) = (entry.mode & 0o7777, entry.mtime);
            index.insert(path, FileEntry { kind, mode, mtime, offset, size, digest })?;
        }
    }
    Ok(index.found)
}

fn target_of(entry: &Entry) -> Result<String> {
    String::from_utf8(entry.target.clone()).map_err(|_| wrong("a link is not UTF-8"))
}

fn link(path: &str, entry: &Entry) -> Result<(EntryKind, u64, [u8; 32])> {
    let target = target_of(entry)?;
    if target.len() > LONGEST_TARGET {
        return Err(wrong(format!("{path} is a link of more than {LONGEST_TARGET} bytes")));
    }
    let digest = Hasher::digest(target.as_bytes()).into();
    Ok((EntryKind::Link(target), 0, digest))
}

#[derive(Default)]
struct Index {
    found: BTreeMap<String, FileEntry>,
    name_bytes: usize,
}

impl Index {
    /// The file that a hard link names, which comes before it.
    fn linked(&self, path: &str, entry: &Entry) -> Result<FileEntry> {
        let first = path_inside(&target_of(entry)?).and_then(|path| self.found.get(&path));
        first
            .filter(|first| first.kind == EntryKind::File)
            .cloned()
            .ok_or_else(|| wrong(format!("{path} is a link to a file that is not there")))
    }

    /// Adds an entry, and the folders above it that the archive does not name: `tar -cf - src/a.py` names none.
    fn insert(&mut self, path: String, entry: FileEntry) -> Result<()> {
        for (at, _) in path.match_indices('/') {
            let above = &path[..at];
            if !self.found.contains_key(above) {
                self.name_bytes += above.len();
                self.found.insert(above.to_owned(), FileEntry::new_folder());
            }
        }
        let target = if let EntryKind::Link(target) = &entry.kind { target.len() } else { 0 };
        self.name_bytes += path.len() + target;
        self.found.insert(path, entry);
        if self.name_bytes > MOST_NAME_BYTES {
            let most = MOST_NAME_BYTES >> 20;
            let message = format!("the names of the files of a build have at most {most} MiB together");
            return Err(Error::new(ErrorCode::TooLarge, message).at("body"));
        }
        check_entries("body", self.found.len())
    }
}
