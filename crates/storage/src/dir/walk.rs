//! Counts what a tree holds. The sandbox may change it meanwhile and may have planted anything in it, so no link
//! is followed and every directory is opened below its parent.

use crate::tree::DEEPEST;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes on disk below a directory, the directory itself left out. What vanishes or cannot be read
/// counts as nothing.
pub(super) fn used(root: &Path) -> u64 {
    let (mut sum, mut linked) = (0_u64, HashSet::new());
    let mut open: Vec<Dir> =
        crate::disk::open_dir(root).ok().and_then(|fd| Dir::new(fd).ok()).into_iter().collect();
    while let Some(dir) = open.last_mut() {
        let Some(Ok(entry)) = dir.next() else {
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = dir.fd().and_then(|fd| statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)) else { continue };
        // A file with several names counts once.
        if stat.st_nlink == 1 || FileType::from_raw_mode(stat.st_mode).is_dir() || linked.insert(stat.st_ino)
        {
            sum = sum.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() && open.len() < DEEPEST {
            let below = open.last().and_then(|dir| child(dir, name));
            open.extend(below);
        }
    }
    sum
}

fn child(dir: &Dir, name: &std::ffi::CStr) -> Option<Dir> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
    let fd: OwnedFd = rustix::fs::openat(dir.fd().ok()?, name, flags, rustix::fs::Mode::empty()).ok()?;
    Dir::new(fd).ok()
}
