//! The container's network namespace, from outside: it has a loopback and nothing else.

use crate::{record::Record, sys};
use rustix::{
    fd::{AsFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{fs, io, os::unix::fs::MetadataExt};

/// The network namespace of a process, for [`inside`].
pub(crate) fn namespace_of(pid: i32) -> io::Result<OwnedFd> {
    Ok(fs::File::open(format!("/proc/{pid}/ns/net"))?.into())
}

/// A pidfd of a container's PID 1, for [`inside`], after a check that the pid still names that PID 1.
pub(crate) fn handle_of(record: &Record) -> io::Result<OwnedFd> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let pid = Pid::from_raw(record.pid).ok_or_else(gone)?;
    // The pid may have been reused. The pidfd pins one process, and if that process's start time is the one in
    // the record, the pid was not reused.
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    if record.alive() { Ok(handle) } else { Err(gone()) }
}

/// Moves this worker into a network namespace, and fails if it is the one that the worker was in already.
fn enter(namespace: OwnedFd) -> io::Result<()> {
    let ours = identity()?;
    sys::setns(namespace.as_fd(), libc::CLONE_NEWNET)?;
    if identity()? == ours {
        return Err(io::Error::other("the container has no network of its own"));
    }
    Ok(())
}

/// Moves this worker into the network namespace of a container's PID 1, for good.
pub(crate) fn enter_checked(record: &Record) -> io::Result<()> {
    enter(handle_of(record)?)
}

/// Which network namespace this worker is in.
fn identity() -> io::Result<(u64, u64)> {
    let file = fs::metadata("/proc/self/ns/net")?;
    Ok((file.dev(), file.ino()))
}

/// Runs a closure in another network namespace, and returns to ours: a runtime's own control socket may live
/// there.
pub(crate) fn inside<T>(namespace: OwnedFd, action: impl FnOnce() -> T) -> io::Result<T> {
    let ours = fs::File::open("/proc/self/ns/net")?;
    enter(namespace)?;
    let result = action();
    sys::setns(ours.as_fd(), libc::CLONE_NEWNET)?;
    Ok(result)
}

/// Brings the loopback of the network namespace up that this process is in.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::interface_up(&socket, c"lo")
}
