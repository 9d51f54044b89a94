//! Two views of /proc: the one that every command sees, and PID 1's own. And what PID 1 sets there.

use super::check;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Result,
    mount::{OpenTreeFlags, open_tree},
};
use std::os::fd::OwnedFd;

/// The kernel's `mount_attr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// As every command sees it.
pub(crate) fn open_proc() -> Result<OwnedFd> {
    openat(CWD, c"/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a view for this process alone, then makes the one at /proc read-only.
pub(crate) fn guard_proc() -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let own = open_tree(CWD, c"/proc", flags)?;
    let attributes = Attributes { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, userns: 0 };
    // SAFETY: the path ends in NUL, the attributes live through the call and have the size that is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/proc".as_ptr(),
            0,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    })?;
    // Shared memory is freed with the last process that has it: it is the sandbox's memory, and if it outlived
    // all of them PID 1 would be the OOM killer's only target. On an old kernel only the host's root may set
    // this.
    if let Ok(file) =
        openat(&own, c"sys/kernel/shm_rmid_forced", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::io::write(file, b"1");
    }
    Ok(own)
}
