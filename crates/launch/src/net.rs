//! The container's network namespace, from outside: it has a loopback and nothing else.

use crate::sys;
use rustix::{
    fd::AsFd,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};
use std::{fs, io};

/// Moves this worker into a process's network namespace.
pub(crate) fn enter(pid: i32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
    sys::setns(namespace.as_fd(), libc::CLONE_NEWNET)
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
