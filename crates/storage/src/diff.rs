//! Which files differ between two trees. Folders are not listed; what is in a new or a deleted one is.
//!
//! What is in the trees is a sandbox's, and one of them may change meanwhile: no link is followed, every folder is
//! opened below its parent, and the work is bounded. What is beyond a bound makes the answer `truncated`.
//!
//! A file is the same where inode, size, mode, owner, mtime and ctime are: btrfs keeps them all in a snapshot, and no
//! program can set a ctime. A file that was changed just before the older tree was made may have been changed again
//! within the same tick of the kernel's clock, so its content is compared; and so is that of a file of the same size
//! that is another inode or has another ctime. With plain folders, whose copies are other inodes, that is every file
//! of the same size.

use crate::disk::open_dir;
use crate::error::failed;
use crate::tree::DEEPEST;
use atoll_types::Result;
use atoll_types::files::{Changed, FileAction, FileChange};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, readlinkat, statat,
};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::vec;

/// The most files in one answer, and the most bytes of their paths: they fit into an answer of the launcher's.
const MOST_CHANGES: usize = 10_000;
const MOST_PATH_BYTES: usize = 1 << 20;
/// The most names that are looked at.
const MOST_NAMES: usize = 500_000;
/// The most bytes of content that are compared. After that a file with the same size and mtime passes for the same.
const MOST_CONTENT: u64 = 2 << 30;
/// The longest tick of the kernel's clock, twice.
const TICK_MS: i64 = 20;

/// A folder that is in one of the trees or in both.
struct Level {
    old: Option<OwnedFd>,
    new: Option<OwnedFd>,
    names: vec::IntoIter<CString>,
    /// With a slash at its end.
    path: String,
}

struct Diff {
    /// A file with a ctime after this may differ although its times do not.
    certain_before: i64,
    changed: Changed,
    names: usize,
    path_bytes: usize,
    content: u64,
}

/// What differs; `oldest` is when the older tree was made, in milliseconds.
pub(crate) fn diff(old: &Path, new: &Path, oldest: u64) -> Result<Changed> {
    let open = |path: &Path| open_dir(path).map_err(failed("open the volume"));
    let mut diff = Diff {
        certain_before: certain_before(oldest),
        changed: Changed::default(),
        names: 0,
        path_bytes: 0,
        content: 0,
    };
    let mut levels = vec![diff.level(Some(open(old)?), Some(open(new)?), String::new())];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            continue;
        };
        if diff.is_full() {
            diff.changed.truncated = true;
            break;
        }
        let below = diff.entry(level, &name);
        for below in below.into_iter().flatten() {
            if levels.len() < DEEPEST {
                levels.push(below);
            } else {
                diff.changed.truncated = true;
            }
        }
    }
    diff.changed.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(diff.changed)
}

impl Diff {
    fn is_full(&self) -> bool {
        self.changed.files.len() >= MOST_CHANGES
            || self.path_bytes >= MOST_PATH_BYTES
            || self.names > MOST_NAMES
    }

    fn level(&mut self, old: Option<OwnedFd>, new: Option<OwnedFd>, path: String) -> Level {
        let mut names = BTreeSet::new();
        for entry in [&old, &new].into_iter().flatten().filter_map(|fd| Dir::read_from(fd).ok()).flatten() {
            let Ok(entry) = entry else { break };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.names += 1;
            if self.names > MOST_NAMES {
                break;
            }
            names.insert(entry.file_name().to_owned());
        }
        Level { old, new, names: names.into_iter().collect::<Vec<_>>().into_iter(), path }
    }

    /// Compares one name, and returns the folders to go on with.
    fn entry(&mut self, level: &Level, name: &CStr) -> [Option<Level>; 2] {
        let (old, new) = (look(level.old.as_ref(), name), look(level.new.as_ref(), name));
        let is_dir = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
        let (old_dir, new_dir) = (old.as_ref().is_some_and(is_dir), new.as_ref().is_some_and(is_dir));
        let path = format!("{}{}", level.path, name.to_string_lossy());
        let size = new.as_ref().map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let below =
            |folder: &Option<OwnedFd>| folder.as_ref().and_then(|at| open(at, name, OFlags::DIRECTORY));
        // A whiteout hides what the image has at its path: the file is deleted.
        let (old_hides, new_hides) =
            (old.as_ref().is_some_and(is_whiteout), new.as_ref().is_some_and(is_whiteout));
        match (old, new) {
            _ if old_hides && new_hides => [None, None],
            _ if new_hides && !old_dir => {
                self.add(path, FileAction::Deleted, 0);
                [None, None]
            }
            _ if old_hides && !new_dir => {
                self.add(path, FileAction::Created, size);
                [None, None]
            }
            (Some(old), Some(new)) if !old_dir && !new_dir => {
                if !self.same(level, name, &old, &new) {
                    self.add(path, FileAction::Modified, size);
                }
                [None, None]
            }
            (Some(_), Some(_)) if old_dir && new_dir => {
                [Some(self.level(below(&level.old), below(&level.new), path + "/")), None]
            }
            (old, new) => {
                let gone = old_dir.then(|| self.level(below(&level.old), None, format!("{path}/")));
                let come = new_dir.then(|| self.level(None, below(&level.new), format!("{path}/")));
                if old.is_some() && !old_dir && !old_hides {
                    self.add(path.clone(), FileAction::Deleted, 0);
                }
                if new.is_some() && !new_dir && !new_hides {
                    self.add(path, FileAction::Created, size);
                }
                [gone, come]
            }
        }
    }

    fn add(&mut self, path: String, action: FileAction, size_bytes: u64) {
        self.path_bytes += path.len();
        self.changed.files.push(FileChange { path, action, size_bytes });
    }

    fn same(&mut self, level: &Level, name: &CStr, old: &Stat, new: &Stat) -> bool {
        let written = |s: &Stat| (s.st_mtime, s.st_mtime_nsec);
        let (Some(at_old), Some(at_new)) = (&level.old, &level.new) else { return false };
        if shape(old) != shape(new) {
            return false;
        }
        if untouched(old, new, self.certain_before) {
            return true;
        }
        match FileType::from_raw_mode(new.st_mode) {
            FileType::RegularFile if self.content > MOST_CONTENT => {
                self.changed.truncated = true;
                written(old) == written(new)
            }
            FileType::RegularFile => {
                let (old, new) = (open(at_old, name, OFlags::NONBLOCK), open(at_new, name, OFlags::NONBLOCK));
                old.zip(new).is_some_and(|(old, new)| self.compare(&old, &new).unwrap_or(false))
            }
            FileType::Symlink => {
                readlinkat(at_old, name, Vec::new()).ok() == readlinkat(at_new, name, Vec::new()).ok()
            }
            // Pipes and the like have no content.
            _ => true,
        }
    }

    fn compare(&mut self, old: &OwnedFd, new: &OwnedFd) -> rustix::io::Result<bool> {
        for file in [old, new] {
            if !FileType::from_raw_mode(fstat(file)?.st_mode).is_file() {
                return Ok(false);
            }
        }
        same_content(old, new, |bytes| {
            self.content += bytes;
            self.changed.truncated |= self.content > MOST_CONTENT;
            self.content <= MOST_CONTENT
        })
    }
}

/// Whether this is what an overlay has in the place of a file that it hides.
fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// What of a file can differ without its content.
fn shape(stat: &Stat) -> (u32, u32, u32, i64, u64) {
    (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, stat.st_rdev)
}

/// When the older of two trees was made, less what its clock may have missed.
pub(crate) fn certain_before(made_unix_ms: u64) -> i64 {
    i64::try_from(made_unix_ms).unwrap_or(i64::MAX).saturating_sub(TICK_MS)
}

/// Whether a file of two trees is the same by its inode, shape and times alone, and was last changed early enough for these
/// to say so.
pub(crate) fn untouched(old: &Stat, new: &Stat, certain_before: i64) -> bool {
    let times = |s: &Stat| (s.st_ino, s.st_ctime, s.st_ctime_nsec, s.st_mtime, s.st_mtime_nsec);
    let changed_ms = new.st_ctime.saturating_mul(1000).saturating_add((new.st_ctime_nsec / 1_000_000) as i64);
    shape(old) == shape(new) && times(old) == times(new) && changed_ms < certain_before
}

/// Whether two files hold the same; also where `may_continue`, which is called with the length of each piece, ends the
/// comparison.
pub(crate) fn same_content(
    old: &OwnedFd,
    new: &OwnedFd,
    mut may_continue: impl FnMut(u64) -> bool,
) -> rustix::io::Result<bool> {
    let (mut left, mut right) = (vec![0; 128 << 10], vec![0; 128 << 10]);
    let mut at = 0;
    loop {
        let (a, b) = (fill(old, &mut left, at)?, fill(new, &mut right, at)?);
        if left[..a] != right[..b] {
            return Ok(false);
        }
        if a == 0 || !may_continue(a as u64) {
            return Ok(true);
        }
        at += a as u64;
    }
}

fn look(folder: Option<&OwnedFd>, name: &CStr) -> Option<Stat> {
    statat(folder?, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn open(folder: &OwnedFd, name: &CStr, more: OFlags) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, name, flags, Mode::empty(), inside).ok()
}

/// Reads until the buffer is full or the file ends.
fn fill(file: impl AsFd, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match retry_on_intr(|| rustix::io::pread(&file, &mut buffer[filled..], at + filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::AGAIN) => break,
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}
