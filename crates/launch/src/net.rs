//! The container's network namespace, from outside: it has a loopback and nothing else.

use crate::{record::Record, sys};
use rustix::{
    fd::AsFd,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{fs, io, os::unix::fs::MetadataExt};

/// Moves this worker into a process's network namespace.
fn enter(pid: i32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
    sys::setns(namespace.as_fd(), libc::CLONE_NEWNET)
}

/// Moves this worker into the network namespace of a container's PID 1, and sees that it is that one's
/// and not ours.
pub(crate) fn enter_checked(record: &Record) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let pid = Pid::from_raw(record.pid).ok_or_else(gone)?;
    // The number may be another process's by now; the handle is whoever had it, and a number that still
    // starts when the record says was never anybody else's.
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    if !record.alive() {
        return Err(gone());
    }
    let ours = namespace()?;
    sys::setns(handle.as_fd(), libc::CLONE_NEWNET)?;
    if namespace()? == ours {
        return Err(io::Error::other("the container has no network of its own"));
    }
    Ok(())
}

/// Which network namespace this worker is in.
fn namespace() -> io::Result<(u64, u64)> {
    let file = fs::metadata("/proc/self/ns/net")?;
    Ok((file.dev(), file.ino()))
}

/// Brings the loopback of a process's network namespace up, and comes back: a runtime's own control
/// socket may live in ours.
pub(crate) fn loopback_up(pid: i32) -> io::Result<()> {
    let ours = fs::File::open("/proc/self/ns/net")?;
    enter(pid)?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let result = sys::interface_up(&socket, c"lo");
    sys::setns(ours.as_fd(), libc::CLONE_NEWNET)?;
    result
}
