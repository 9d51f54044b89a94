//! Descriptors: reading, writing, renumbering, closing. They are plain numbers here, because after a fork no
//! value owns them and `Drop` must not run.

use super::check;
use rustix::io::{Errno, Result};
use std::{ffi::CStr, os::fd::RawFd};

/// Above every descriptor. gVisor reads the number as signed.
const LAST: u32 = i32::MAX as u32;

/// Marks every descriptor but the standard three close-on-exec. On a kernel that knows no such range (gVisor's),
/// they are marked one by one.
pub(crate) fn mark_close_on_exec() -> Result<()> {
    match close_range(3, LAST, libc::CLOSE_RANGE_CLOEXEC) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        result => return result,
    }
    let folder = std::fs::read_dir("/proc/self/fd").map_err(|_| Errno::NOSYS)?;
    let numbers: Vec<i32> = folder.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|n| *n > 2) {
        // SAFETY: sets a flag by number; the folder's own descriptor is closed by now and answers EBADF.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Closes the descriptors from `first` to `last`, or with flags only marks them.
pub(crate) fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: three numbers. The caller owns the descriptors that it closes.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Closes every descriptor that is not in `kept`, which it sorts.
pub(crate) fn keep_only(kept: &mut [RawFd]) -> Result<()> {
    kept.sort_unstable();
    let mut next: u32 = 0;
    for &fd in kept.iter() {
        let fd = fd as u32;
        if fd > next {
            close_range(next, fd - 1, 0)?;
        }
        next = next.max(fd + 1);
    }
    close_range(next, LAST, 0)
}

/// Makes 0, 1 and 2 exist, so that no pipe of ours ever gets one of these numbers.
pub(crate) fn open_missing_stdio() -> Result<()> {
    loop {
        let fd = open(c"/dev/null", libc::O_RDWR)?;
        if fd > 2 {
            return close(fd);
        }
    }
}

/// Opens a path; the descriptor is close-on-exec only if the flags say so.
pub(crate) fn open(path: &CStr, flags: libc::c_int) -> Result<RawFd> {
    open_at(libc::AT_FDCWD, path, flags)
}

/// Opens a path relative to an open directory.
pub(crate) fn open_at(directory: RawFd, path: &CStr, flags: libc::c_int) -> Result<RawFd> {
    // SAFETY: the path ends in NUL and lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_openat, directory, path.as_ptr(), flags, 0) };
    check(fd).map(|fd| fd as RawFd)
}

/// Closes a descriptor by number.
pub(crate) fn close(fd: RawFd) -> Result<()> {
    // SAFETY: a number. After fork no value owns the copies.
    check(unsafe { libc::syscall(libc::SYS_close, fd) }).map(drop)
}

/// Puts a copy of `from` at the number `to`, not close-on-exec.
pub(crate) fn dup_to(from: RawFd, to: RawFd) -> Result<()> {
    // SAFETY: three numbers.
    check(unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) }).map(drop)
}

/// Reads once.
pub(crate) fn read(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes into a buffer that is ours alone.
    check(unsafe { libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) })
}

/// Writes once.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads `len` bytes of a live slice.
    check(unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) })
}

/// Sends one packet; a peer that is gone is an error, not a signal.
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> Result<usize> {
    let none = std::ptr::null::<libc::sockaddr>();
    // SAFETY: the kernel reads `len` bytes of a live slice; there is no address.
    check(unsafe {
        libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL, none, 0)
    })
}

/// Reads directory entries in the kernel's own form.
pub(crate) fn read_entries(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes into a buffer that is ours alone.
    check(unsafe { libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) })
}

/// Waits for one of the descriptors; a negative number in one leaves it out.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> Result<usize> {
    let time = libc::timespec {
        tv_sec: (timeout_ms / 1000).into(),
        tv_nsec: libc::c_long::from(timeout_ms % 1000) * 1_000_000,
    };
    let limit = if timeout_ms < 0 { std::ptr::null() } else { &raw const time };
    // SAFETY: the array and the time live through the call; no signal mask is given.
    let ready =
        check(unsafe { libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), limit, 0usize, 8usize) });
    match ready {
        Err(Errno::INTR) => Ok(0),
        other => other,
    }
}

/// A pipe, close-on-exec at both ends: (read, write).
pub(crate) fn pipe() -> Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers into an array of two.
    check(unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((ends[0], ends[1]))
}
