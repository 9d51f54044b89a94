//! Makes the pipes and forks the shim. This is the only place where PID 1 forks.

use super::{control::Control, plan::Plan, shim};
use crate::{ready, sys};
use rustix::{
    fs::{Gid, Mode, OFlags, Uid},
    io::Result,
    net::{AddressFamily, SocketFlags, SocketType},
    pipe::PipeFlags,
};
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

/// What PID 1 holds of a command that was forked.
pub(crate) struct Spawned {
    pub(crate) control: Control,
    pub(crate) stdin: Option<AsyncFd<OwnedFd>>,
    pub(crate) stdout: AsyncFd<OwnedFd>,
    pub(crate) stderr: AsyncFd<OwnedFd>,
}

/// Forks the shim, which forks the command.
pub(crate) fn spawn(plan: &Plan, with_stdin: bool) -> std::io::Result<Spawned> {
    let (stdin_theirs, stdin) = if with_stdin {
        let (read, write) = pipe(plan)?;
        (read, Some(ours(write, Interest::WRITABLE)?))
    } else {
        (rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None)
    };
    let (stdout, stdout_theirs) = pipe(plan)?;
    let (stderr, stderr_theirs) = pipe(plan)?;
    let (stdout, stderr) = (ours(stdout, Interest::READABLE)?, ours(stderr, Interest::READABLE)?);
    let (control, control_theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    let stdio = [stdin_theirs.as_raw_fd(), stdout_theirs.as_raw_fd(), stderr_theirs.as_raw_fd()];
    // SAFETY: the child runs `shim::run`, which keeps to raw calls and prepared memory.
    let Some(pid) = (unsafe { sys::fork() })? else { shim::run(plan, stdio, control_theirs.as_raw_fd()) };
    Ok(Spawned { control: Control::new(control, pid)?, stdin, stdout, stderr })
}

/// A pipe that belongs to the user, so that `/dev/stdout` and its kin can be opened again.
fn pipe(plan: &Plan) -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let owner = (Uid::from_raw(plan.uid), Gid::from_raw(plan.gid));
    match rustix::fs::fchown(&read, Some(owner.0), Some(owner.1)) {
        // gVisor's pipes have no owner to change, and anyone may open them.
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(e) => return Err(e),
    }
    Ok((read, write))
}

/// Our end never blocks; the command's end is another file description and still does.
fn ours(end: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&end, true)?;
    ready::watch(end, interest)
}
