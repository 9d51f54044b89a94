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

/// Brings the loopback of a process's network namespace up. The caller is a worker, which may stay
/// in that namespace: it opens no other network socket.
pub(crate) fn loopback_up(pid: i32) -> io::Result<()> {
    enter(pid)?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::interface_up(&socket, c"lo")
}
