//! Empties the trash. A sandbox may nest directories deeper than there are descriptors or stack, so
//! nothing recurses: a directory with entries is first moved up into the trash itself. Two processes
//! may do this at once, so what is gone already is not an error.

use rustix::fs::{AtFlags, Dir, openat, renameat, unlinkat};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use uuid::Uuid;

/// Removes everything in a directory.
pub(crate) fn empty(trash: &OwnedFd) -> Result<()> {
    loop {
        let mut found = false;
        for entry in Dir::read_from(trash)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            found = true;
            if gone(unlinkat(trash, name, AtFlags::empty()), Errno::ISDIR)? {
                continue;
            }
            flatten(trash, name)?;
            gone(unlinkat(trash, name, AtFlags::REMOVEDIR), Errno::NOTEMPTY)?;
        }
        if !found {
            return Ok(());
        }
    }
}

/// Removes the files of one directory and moves its directories up.
fn flatten(trash: &OwnedFd, name: &CStr) -> Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(trash, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let child = entry.file_name();
        if matches!(child.to_bytes(), b"." | b"..")
            || gone(unlinkat(&dir, child, AtFlags::empty()), Errno::ISDIR)?
        {
            continue;
        }
        if gone(unlinkat(&dir, child, AtFlags::REMOVEDIR), Errno::NOTEMPTY)? {
            continue;
        }
        let up = Uuid::new_v4().simple().to_string();
        gone(renameat(dir.as_fd(), child, trash, up.as_str()), Errno::NOENT)?;
    }
    Ok(())
}

/// Whether it is gone; `false` for the one error that only means "not yet".
fn gone(result: Result<()>, not_yet: Errno) -> Result<bool> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(cause) if cause == not_yet => Ok(false),
        Err(cause) => Err(cause),
    }
}
