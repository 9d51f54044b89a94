//! Checks that a descriptor from PID 1 is what was requested.
//!
//! A compromised PID 1 may pass any descriptor that it can get, which is any file that the sandbox can reach:
//! its volume, its image, its shares, its spool. Passing one of those instead of the requested one gains it
//! nothing, since it could have copied the bytes itself. What the server must not get is a descriptor that
//! blocks (a pipe, a socket, a device), that is no file (a directory, an `O_PATH` descriptor), or whose
//! reading and writing acts in the kernel with the server's identity (proc, cgroup and the like). There is no
//! list of permitted devices (`st_dev`): each volume, image and share has one of its own.
//!
//! The file's position and flags are shared with PID 1, which may change them at any time. So the position is
//! never used, and the flags are only a first check: what they say wrongly, the kernel refuses later.

use super::hostile;
use atoll_types::{Error, ErrorCode, Result, files::is_kernels_own};
use rustix::{
    fs::{FileType, OFlags, fcntl_getfl, fstat, fstatfs},
    io::Errno,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that PID 1 passed. Closing it may delete a large file, or wait for a share, so that happens
/// on a thread where it blocks no other work.
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
        // Errors about the bytes were reported when they were written.
        drop(self.0.take());
        Ok(())
    }

    /// The file's size, where it is a plain file that is open for this. May block on the file system.
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
        if is_kernels_own(kind) {
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

/// The error of a failed read or write, in the words that PID 1 would have for it.
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
