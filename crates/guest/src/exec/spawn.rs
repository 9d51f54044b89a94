//! Makes the pipes or the terminal and forks the shim. This is the only place where PID 1 forks.

use super::{
    control::Control,
    plan::Plan,
    shim,
    terminal::{self, Pair, Terminal, TerminalPlan},
};
use crate::{ready, reserve, sys};
use rustix::{
    fs::{Gid, Mode, OFlags, Uid},
    io::Result,
    net::{AddressFamily, SocketFlags, SocketType},
    pipe::PipeFlags,
};
use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
};
use tokio::io::{Interest, unix::AsyncFd};

/// PID 1's end of a pipe or of a terminal; a terminal's one end serves several streams.
pub(crate) type Pipe = Arc<AsyncFd<OwnedFd>>;

/// The ends that PID 1 keeps of a command's streams.
pub(crate) struct Streams {
    pub(crate) stdin: Option<Pipe>,
    pub(crate) stdout: Pipe,
    /// A terminal has none: all output is one.
    pub(crate) stderr: Option<Pipe>,
    pub(crate) terminal: Option<Terminal>,
    /// The command's end of a terminal, which lasts as long as this is held.
    pub(crate) slave: Option<OwnedFd>,
}

/// What PID 1 holds of a command that was forked.
pub(crate) struct Spawned {
    pub(crate) control: Control,
    pub(crate) streams: Streams,
}

/// Forks the shim, which forks the command.
pub(crate) fn spawn(plan: &Plan, with_stdin: bool) -> std::io::Result<Spawned> {
    match plan.terminal {
        Some(terminal) => on_terminal(plan, terminal),
        None => on_pipes(plan, with_stdin),
    }
}

fn on_terminal(plan: &Plan, wanted: TerminalPlan) -> std::io::Result<Spawned> {
    let Pair { master, slave } = terminal::open(wanted, plan.uid)?;
    let control = fork(plan, [slave.as_raw_fd(); 3])?;
    let terminal = Some(Terminal::new(&master, wanted.size));
    let stdin = Some(master.clone());
    Ok(Spawned {
        control,
        streams: Streams { stdin, stdout: master, stderr: None, terminal, slave: Some(slave) },
    })
}

fn on_pipes(plan: &Plan, with_stdin: bool) -> std::io::Result<Spawned> {
    let (stdin_theirs, stdin) = if with_stdin {
        let (read, write) = pipe(plan)?;
        (read, Some(ours(write, Interest::WRITABLE)?))
    } else {
        (rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None)
    };
    let (stdout, stdout_theirs) = pipe(plan)?;
    let (stderr, stderr_theirs) = pipe(plan)?;
    let (stdout, stderr) = (ours(stdout, Interest::READABLE)?, Some(ours(stderr, Interest::READABLE)?));
    let stdio = [stdin_theirs.as_raw_fd(), stdout_theirs.as_raw_fd(), stderr_theirs.as_raw_fd()];
    let control = fork(plan, stdio)?;
    Ok(Spawned { control, streams: Streams { stdin, stdout, stderr, terminal: None, slave: None } })
}

fn fork(plan: &Plan, stdio: [RawFd; 3]) -> std::io::Result<Control> {
    let (control, control_theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    reserve::check(&control_theirs, reserve::COMMAND)?;
    // SAFETY: the child runs `shim::run`, which keeps to raw calls and prepared memory.
    let Some(pid) = (unsafe { sys::fork() })? else { shim::run(plan, stdio, control_theirs.as_raw_fd()) };
    Control::new(control, pid)
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
fn ours(end: OwnedFd, interest: Interest) -> std::io::Result<Pipe> {
    rustix::io::ioctl_fionbio(&end, true)?;
    ready::watch(end, interest).map(Arc::new)
}
