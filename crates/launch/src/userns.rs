//! The user namespace of a container, made before it: idmapped mounts take their mapping from it, and the
//! runtime enters it. The container's own root id owns it, so what the kernel counts for each user
//! (inotify instances, message queues, timers, namespaces) is counted for that id and not for the
//! machine's root.

use crate::{sys, uids::Range};
use rustix::fd::OwnedFd;
use std::{fs, io};

/// A user namespace in which ids 0 to 65535 are those of `range`.
pub(crate) fn make(range: Range) -> io::Result<OwnedFd> {
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
    let result = map(child, &ready_r, range);
    drop(done_w);
    sys::reap_one(child, true)?;
    result
}

fn map(child: i32, ready: &OwnedFd, range: Range) -> io::Result<OwnedFd> {
    let mut entered = [0u8; 1];
    if rustix::io::read(ready, &mut entered)? != 1 || entered[0] != 1 {
        return Err(io::Error::other("user namespaces are refused by this kernel"));
    }
    let line = format!("0 {} {}\n", range.base, range.length);
    fs::write(format!("/proc/{child}/uid_map"), &line)?;
    fs::write(format!("/proc/{child}/gid_map"), &line)?;
    Ok(fs::File::open(format!("/proc/{child}/ns/user"))?.into())
}
