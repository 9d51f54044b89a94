//! The state of one command, for calls that read it and calls that wait for it. The command's own task writes it;
//! all other code reads, sends orders, or feeds stdin.

use super::{
    control::Control,
    followers::Followers,
    oom::OomCounter,
    program::Named,
    spool::Extent,
    stdin::Stdin,
    terminal::{Size, Terminal},
    wire::{Ending, Failed, Order, Usage},
};
use atoll_guest_proto::v1::{self, ExecInfo, ExecState};
use atoll_types::{Error, ErrorCode, ExecId, Result, StartFailure, StartStage, time::now_ms};
use std::{sync::Arc, time::Instant};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    #[default]
    Starting,
    Running,
    Ended,
}

/// Everything that changes about a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    pub(crate) pid: i32,
    pub(crate) extent: Extent,
    pub(crate) ending: Option<Ending>,
    /// Of what has ended so far; see `usage` for what runs.
    pub(crate) usage: Usage,
    pub(crate) failure: Option<StartFailure>,
    pub(crate) timeout_reached: bool,
    pub(crate) kill_asked: bool,
    pub(crate) oom_kills: u64,
    pub(crate) duration_us: u64,
    /// No descendant and no shim is left.
    pub(crate) gone: bool,
}

impl Status {
    /// The status of a command that could not start.
    pub(crate) fn failed(failure: StartFailure) -> Self {
        Self { phase: Phase::Ended, failure: Some(failure), gone: true, ..Self::default() }
    }

    fn exit_code(&self) -> Option<i32> {
        self.ending.filter(|e| libc::WIFEXITED(e.status)).map(|e| libc::WEXITSTATUS(e.status))
    }

    fn signal(&self) -> Option<i32> {
        self.ending.filter(|e| libc::WIFSIGNALED(e.status)).map(|e| libc::WTERMSIG(e.status))
    }
}

/// When a command began, by both clocks at one moment: the start plus the measured duration must not lie after
/// the command's end.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    pub(crate) unix_ms: u64,
    pub(crate) at: Instant,
}

impl Began {
    pub(crate) fn now() -> Self {
        // The monotonic clock second: the sum is early at most.
        Self { unix_ms: now_ms().unsigned_abs(), at: Instant::now() }
    }
}

/// What a started command has and one that never ran has not.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) control: Option<Control>,
    pub(crate) stdin: Stdin,
    pub(crate) followers: Option<Arc<Followers>>,
    pub(crate) terminal: Option<Terminal>,
    /// It is one of our own programs.
    pub(crate) tool: bool,
    /// What counts kills for memory, and its count at the start.
    pub(crate) oom: Option<(OomCounter, u64)>,
}

pub(crate) struct Exec {
    pub(crate) id: ExecId,
    pub(crate) stdin: Stdin,
    command: String,
    began: Began,
    status: watch::Sender<Status>,
    /// Of a lossless command.
    pub(crate) followers: Option<Arc<Followers>>,
    pub(crate) terminal: Option<Terminal>,
    tool: bool,
    oom: Option<(OomCounter, u64)>,
    /// None for one that was never forked.
    pub(crate) control: Option<Control>,
}

impl Exec {
    pub(crate) fn new(id: ExecId, command: String, status: Status, began: Began, parts: Parts) -> Self {
        let Parts { control, stdin, followers, terminal, tool, oom } = parts;
        Self {
            id,
            stdin,
            command,
            began,
            status: watch::Sender::new(status),
            tool,
            oom,
            followers,
            terminal,
            control,
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(change);
    }

    /// Its shim, while a process of it lives.
    pub(crate) fn living_shim(&self) -> Option<i32> {
        self.control.as_ref().filter(|_| !self.status.borrow().gone).map(Control::shim)
    }

    /// How much room its output takes.
    pub(crate) fn spooled(&self) -> u64 {
        self.status.borrow().extent.room()
    }

    /// Waits until the program runs or has failed to.
    pub(crate) async fn started(&self) {
        // An error means that the sender is gone, which we hold.
        let _ = self.watch().wait_for(|s| s.phase > Phase::Starting).await;
    }

    /// The error number of one that never ran because a limit of the sandbox left no room for it.
    pub(crate) fn refused_by_limit(&self) -> Option<i32> {
        let status = self.status.borrow();
        let failure = status.failure.as_ref()?;
        let limits = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
        let before_its_program = !matches!(failure.stage, StartStage::Workdir | StartStage::User);
        (before_its_program && limits.contains(&failure.errno)).then_some(failure.errno)
    }

    /// Kills the command and all it started; waits until nothing is left.
    pub(crate) async fn kill(&self) {
        let Some(control) = &self.control else { return };
        if self.status.borrow().gone {
            return;
        }
        self.update(|s| s.kill_asked |= s.phase < Phase::Ended);
        control.order(Order::Kill);
        let _ = self.watch().wait_for(|s| s.gone).await;
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn signal(&self, number: i32) -> Result<()> {
        let number = u8::try_from(number).ok().filter(|n| (1..=64).contains(n));
        let number = number.ok_or_else(|| Error::invalid("signal", "signal must be between 1 and 64"))?;
        match &self.control {
            Some(control) if self.status.borrow().phase < Phase::Ended => {
                control.order(Order::Signal(number));
                Ok(())
            }
            _ => Err(Error::new(ErrorCode::Conflict, "the command has ended")),
        }
    }

    /// Resizes its terminal.
    pub(crate) fn resize(&self, size: Option<v1::Terminal>) -> Result<()> {
        let none = || Error::new(ErrorCode::Unsupported, "the command has no terminal");
        let terminal = self.terminal.as_ref().ok_or_else(none)?;
        let size = Size::parse(size.unwrap_or_default())?;
        if self.status.borrow().phase == Phase::Ended {
            return Err(Error::new(ErrorCode::Conflict, "the command has ended"));
        }
        terminal.resize(size)
    }

    fn oom_kills_so_far(&self) -> u64 {
        self.oom.as_ref().map_or(0, |(counter, before)| counter.read().saturating_sub(*before))
    }

    /// The command's state for the host.
    pub(crate) fn info(&self) -> ExecInfo {
        self.info_at(&self.status.borrow())
    }

    pub(crate) fn info_at(&self, status: &Status) -> ExecInfo {
        let signal = status.signal();
        let exit_code = status.exit_code();
        // A kill that came too late killed no process.
        let killed_by_us = signal == Some(libc::SIGKILL) && (status.timeout_reached || status.kill_asked);
        let like_oom = (signal == Some(libc::SIGKILL) && !killed_by_us) || exit_code == Some(137);
        let usage = status.usage;
        let ended = status.phase == Phase::Ended;
        ExecInfo {
            exec_id: self.id.to_string(),
            state: if ended { ExecState::Ended } else { ExecState::Running }.into(),
            exit_code,
            signal,
            timed_out: killed_by_us && status.timeout_reached,
            killed: killed_by_us && status.kill_asked,
            oom_killed: status.oom_kills > 0 && like_oom,
            oom_kills: if ended { status.oom_kills } else { self.oom_kills_so_far() },
            failure: status.failure.as_ref().map(|StartFailure { stage, errno, message }| v1::StartFailure {
                stage: stage.as_str().into(),
                errno: *errno,
                message: message.clone(),
            }),
            output_bytes: status.extent.kept,
            dropped_bytes: status.extent.dropped,
            started_unix_ms: self.began.unix_ms,
            duration_us: if ended { status.duration_us } else { micros(self.began.at) },
            cpu_user_us: usage.user_us,
            cpu_system_us: usage.system_us,
            max_rss_bytes: usage.max_rss_kb.saturating_mul(1024),
            pid: u32::try_from(status.pid).unwrap_or(0),
            command: self.command.clone(),
            descendants_alive: ended && !status.gone,
            terminal: self.terminal.as_ref().map(Terminal::size),
            first_offset: status.extent.freed,
            tool: self.tool,
        }
    }
}

/// Microseconds since a moment.
pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The failure that is reported to the host for a step that did not work.
pub(crate) fn start_failure(failed: Failed, program: &Named, directory: &str) -> StartFailure {
    let errno = rustix::io::Errno::from_raw_os_error(failed.errno);
    let reason = crate::errors::text(errno);
    let message = match failed.stage {
        StartStage::Workdir => format!("cannot start in {directory}: {reason}"),
        StartStage::Exec if errno == rustix::io::Errno::NOENT => program.missing(),
        StartStage::Exec => format!("{}: {reason}", program.name),
        StartStage::Limits => format!("cannot set limits: {reason}"),
        StartStage::Privileges => format!("cannot change to the user: {reason}"),
        StartStage::User | StartStage::Spawn => format!("cannot start a process: {reason}"),
    };
    StartFailure { stage: failed.stage, errno: failed.errno, message }
}
