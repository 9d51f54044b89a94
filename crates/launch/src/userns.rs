//! The user namespace of a container, made before it: idmapped mounts take their mapping from it, and the
//! runtime enters it. The container's own root id owns it, so what the kernel counts for each user
//! (inotify instances, message queues, timers, namespaces) is counted for that id and not for the
//! machine's root.

use crate::{options::Owner, sys, uids::Range};
use rustix::fd::OwnedFd;
use std::{fs, io};

/// A user namespace in which ids 0 to 65535 are those of `range`.
pub(crate) fn make(range: Range) -> io::Result<OwnedFd> {
    let line = format!("0 {} {}\n", range.base, range.length);
    make_with(range, &line, &line)
}

/// A user namespace for a mount in which one owner on disk is one user of the container, and no other id is mapped.
pub(crate) fn make_for_owner(range: Range, on_disk: Owner, inside: Owner) -> io::Result<OwnedFd> {
    let line = |on_disk: u32, inside: u32| format!("{on_disk} {} 1\n", range.base + inside);
    make_with(range, &line(on_disk.uid, inside.uid), &line(on_disk.gid, inside.gid))
}

fn make_with(range: Range, uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let (ready_r, ready_w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (done_r, done_w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = match sys::fork()? {
        sys::Fork::Child => {
            sys::end_with_parent();
            drop((ready_r, done_w));
            let entered = sys::with_effective_user(range.base, || sys::unshare(libc::CLONE_NEWUSER)).is_ok();
            let _ = rustix::io::write(&ready_w, &[u8::from(entered)]);
            // Lives until the parent has opened the namespace and closes its end.
            let _ = rustix::io::read(&done_r, &mut [0u8; 1]);
            sys::exit_now(0);
        }
        sys::Fork::Parent(child) => child,
    };
    drop((ready_w, done_r));
    let result = map(child, &ready_r, uids, gids);
    drop(done_w);
    sys::reap_one(child, true)?;
    result
}

fn map(child: i32, ready: &OwnedFd, uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let mut entered = [0u8; 1];
    if rustix::io::read(ready, &mut entered)? != 1 || entered[0] != 1 {
        return Err(io::Error::other("user namespaces are refused by this kernel"));
    }
    fs::write(format!("/proc/{child}/uid_map"), uids)?;
    fs::write(format!("/proc/{child}/gid_map"), gids)?;
    Ok(fs::File::open(format!("/proc/{child}/ns/user"))?.into())
}
