//! A walk over a folder and all below it, in the order of names, folder by folder. Symbolic links are reported
//! and never followed. No descriptor is held between steps, and only names wait in memory.

use crate::beneath;
use atoll_types::files::is_kernels_own;
use rustix::{
    fs::{AtFlags, Dir, FileType, OFlags, Stat, fstatfs, statat},
    io::Errno,
};
use std::os::fd::OwnedFd;

/// Names of one folder, and names that wait in all; further ones are left out, and the answer is marked so.
const MOST_NAMES: usize = 250_000;
const MOST_WAITING: usize = 1_000_000;

pub(crate) struct Item {
    /// Below the top, never empty.
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
}

impl Item {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    #[cfg(feature = "run")]
    pub(crate) fn name(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }
}

/// The names of a folder that are still to come, the next one last.
struct Level {
    path: Vec<u8>,
    names: Vec<Vec<u8>>,
}

pub(crate) struct Walk {
    top: OwnedFd,
    levels: Vec<Level>,
    waiting: usize,
    /// A folder to go into at the next step.
    enter: Option<Vec<u8>>,
    max_depth: u32,
    /// Whether folders that the kernel makes up, as those of /proc, are reported and not gone into.
    stored_only: bool,
    /// Folders that could not be read.
    pub(crate) unreadable: Vec<(Vec<u8>, Errno)>,
    pub(crate) skipped: u64,
    /// Something was left out.
    pub(crate) cut: bool,
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

impl Walk {
    pub(crate) fn new(top: OwnedFd, max_depth: u32) -> Self {
        Self {
            top,
            levels: Vec::new(),
            waiting: 0,
            enter: Some(Vec::new()),
            max_depth,
            stored_only: false,
            unreadable: Vec::new(),
            skipped: 0,
            cut: false,
        }
    }

    /// A walk that does not go into folders that the kernel makes up.
    pub(crate) fn stored_only(self) -> Self {
        Self { stored_only: true, ..self }
    }

    pub(crate) fn top(&self) -> &OwnedFd {
        &self.top
    }

    /// Does not go into the folder that was reported last.
    pub(crate) fn stay_out(&mut self) {
        self.enter = None;
    }

    pub(crate) fn next(&mut self) -> Option<Item> {
        if let Some(folder) = self.enter.take()
            && let Err(errno) = self.go_into(&folder)
        {
            self.note(folder, errno);
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            self.waiting -= 1;
            let path = join(&level.path, &name);
            match statat(&self.top, &path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    // 1 in the top folder.
                    let depth = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
                    let item = Item { path, stat };
                    if item.kind() == FileType::Directory && depth < self.max_depth {
                        self.enter = Some(item.path.clone());
                    }
                    return Some(item);
                }
                // It was removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => self.note(path, errno),
            }
        }
    }

    fn note(&mut self, path: Vec<u8>, errno: Errno) {
        if errno == Errno::NOENT {
            return;
        }
        self.skipped += 1;
        if self.unreadable.is_empty() {
            self.unreadable.push((path, errno));
        }
    }

    fn go_into(&mut self, folder: &[u8]) -> Result<(), Errno> {
        let fd = beneath::open(&self.top, folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if self.stored_only && is_kernels_own(fstatfs(&fd)?.f_type as u64) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() >= MOST_NAMES || self.waiting + names.len() >= MOST_WAITING {
                self.cut = true;
                break;
            }
            names.push(name.to_vec());
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.waiting += names.len();
        self.levels.push(Level { path: folder.to_vec(), names });
        Ok(())
    }
}
