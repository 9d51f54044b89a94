//! Making directories, one step at a time: each is opened by the kernel's rules before the next is made in it, so
//! that no symbolic link leads elsewhere.

use super::{
    entry,
    path::SplitPath,
    resolve::{self, Area},
};
use crate::errors::on_path;
use atoll_guest_proto::v1::FileEntry;
use atoll_types::Result;
use rustix::{
    fs::{Mode, OFlags, chmodat, mkdirat},
    io::Errno,
};
use std::os::fd::OwnedFd;

const DEFAULT_MODE: u32 = 0o755;

/// Makes a directory, with those above it if requested.
pub(crate) fn make(place: &SplitPath, parents: bool, mode: u32) -> Result<FileEntry> {
    if parents && place.split().is_none() {
        return entry::stat(place, true);
    }
    let (parent, name) = if parents { open_parent_making(place)? } else { resolve::open_parent(place)? };
    let failed = |e| on_path(e, place.field);
    let wanted = if mode == 0 { DEFAULT_MODE } else { mode & 0o7777 };
    match mkdirat(&parent, name, Mode::from_raw_mode(wanted)) {
        Ok(()) => {
            let made = resolve::open_directory(&parent, name).map_err(failed)?;
            // The umask applies in mkdir. Where the name was removed since, this fails.
            if mode != 0 {
                chmodat(&parent, name, Mode::from_raw_mode(wanted), rustix::fs::AtFlags::empty())
                    .map_err(failed)?;
            }
            entry::of_open(made, place)
        }
        Err(Errno::EXIST) if parents => existing(place),
        Err(e) => Err(failed(e)),
    }
}

/// What is there must be a directory, or a link to one.
fn existing(place: &SplitPath) -> Result<FileEntry> {
    let fd = resolve::open(place, OFlags::PATH | OFlags::DIRECTORY)?;
    entry::of_open(fd, place)
}

/// As `resolve::open_parent`, making what is missing on the way.
pub(crate) fn open_parent_making(place: &SplitPath) -> Result<(OwnedFd, &str)> {
    match resolve::open_parent(place) {
        Err(e) if e.code == atoll_types::ErrorCode::NotFound => {}
        other => return other,
    }
    let area = Area::of(place)?;
    let failed = |e| on_path(e, place.field);
    let directory = OFlags::PATH | OFlags::DIRECTORY;
    let mut fd = area.open(".", directory).map_err(failed)?;
    let mut way = String::new();
    for name in place.parents() {
        resolve::check_filesystem(&fd, place)?;
        way = if way.is_empty() { name.clone() } else { format!("{way}/{name}") };
        fd = match area.open(&way, directory) {
            Err(Errno::NOENT) => {
                match mkdirat(&fd, name.as_str(), Mode::from_raw_mode(DEFAULT_MODE)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(failed(e)),
                }
                area.open(&way, directory).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
    }
    resolve::open_parent(place)
}
