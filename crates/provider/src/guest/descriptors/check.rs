//! What PID 1 passed, and whether it is what was asked for.
//!
//! A compromised PID 1 may pass any descriptor that it can get, which is any file that the sandbox can
//! reach: its volume, its image, its shares, its spool. To have one of those read or written instead of
//! the one that was asked for does it no good, since it could have copied the bytes itself. What the
//! server must not get hold of is something that waits (a pipe, a socket, a device), that is no file (a
//! directory, a bare place), or whose reading and writing does things in the kernel, with the server's
//! identity (proc, cgroup and their kin). There is no list of devices (`st_dev`) that are right: each
//! volume, image and share has one of its own.
//!
//! The file's position and flags are shared with PID 1, who may change them at any time. So the position
//! is never used, and the flags are only a first look: what they say wrongly, the kernel refuses later.

use super::hostile;
use atoll_guest_proto::KERNEL_FILESYSTEMS;
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{FileType, OFlags, fcntl_getfl, fstat, fstatfs},
    io::Errno,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that was passed. To close it may be to delete a large file, or to wait for a share, so
/// that is done where it holds nobody up.
pub(super) struct Passed(Option<OwnedFd>);

/// What a file is passed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
    Append,
}

impl Passed {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self(Some(file))
    }

    pub(super) fn get(&self) -> Result<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd).ok_or_else(|| Error::internal("the file is closed"))
    }

    /// Closes it now, on this thread.
    pub(super) fn close(mut self) -> Result<()> {
        // What the kernel has to say about bytes it said when it took them.
        drop(self.0.take());
        Ok(())
    }

    /// The file's size, where it is a plain file that is open for this. May wait for the file system.
    pub(super) fn check(&self, purpose: Purpose) -> Result<u64> {
        let file = self.get()?;
        let wrong = || hostile("an open file");
        let flags = fcntl_getfl(file).map_err(|_| wrong())?;
        let (mode, append) = match purpose {
            Purpose::Read => (OFlags::RDONLY, false),
            Purpose::Write => (OFlags::WRONLY, false),
            Purpose::Append => (OFlags::WRONLY, true),
        };
        let open_for = flags & OFlags::RWMODE;
        if open_for != mode || flags.contains(OFlags::PATH) || flags.contains(OFlags::APPEND) != append {
            return Err(wrong());
        }
        let stat = fstat(file).map_err(|_| wrong())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(wrong());
        }
        let kind = fstatfs(file).map_err(|_| wrong())?.f_type as u64;
        // The kernel's own type is signed on some machines.
        if KERNEL_FILESYSTEMS.contains(&(kind & 0xffff_ffff)) {
            return Err(wrong());
        }
        u64::try_from(stat.st_size).map_err(|_| wrong())
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if let Some(file) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}

/// The error of a failed reading or writing, in the words that PID 1 would have for it.
pub(super) fn failed(errno: Errno) -> Error {
    let code = match errno {
        Errno::NOSPC | Errno::DQUOT => ErrorCode::DiskFull,
        Errno::FBIG | Errno::OVERFLOW => ErrorCode::TooLarge,
        Errno::ROFS => ErrorCode::ReadOnly,
        Errno::ACCESS | Errno::PERM => ErrorCode::PermissionDenied,
        Errno::NOMEM | Errno::AGAIN => ErrorCode::LimitExceeded,
        Errno::OPNOTSUPP => ErrorCode::Unsupported,
        _ => ErrorCode::Internal,
    };
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    Error::new(code, text).at("path")
}
