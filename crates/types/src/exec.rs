//! How a command is or was.

use crate::{ExecId, ExitCode, names};
use std::time::Duration;

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl TerminalSize {
    /// What either side may be.
    pub const SIDE: std::ops::RangeInclusive<u16> = 1..=10_000;
}

/// The longest name of a user.
pub const LONGEST_USER: usize = 256;
/// A user as a regular expression: a name, UID or UID:GID.
pub const USER_PATTERN: &str = r"^(?:[^:\u0000\n]*|[0-9]+:[0-9]+)$";

/// Which of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

names!(
    /// What was being done when a command could not be started.
    StartStage {
        /// Finding its user.
        User = "user",
        /// Changing to its working directory.
        Workdir = "workdir",
        /// Setting its limits.
        Limits = "limits",
        /// Changing to its user.
        Privileges = "privileges",
        /// Executing its program.
        Exec = "exec",
        /// Making its process.
        Spawn = "spawn",
    }
);

/// Why a command never ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// What was being done.
    pub stage: StartStage,
    /// What the kernel said.
    pub errno: i32,
    /// The same for a person.
    pub message: String,
}

/// How a command is or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecReport {
    /// Which.
    pub id: ExecId,
    /// Whether it has ended.
    pub ended: bool,
    /// Its own exit code, if it had one.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Its time was up.
    pub timed_out: bool,
    /// It was killed on request.
    pub killed: bool,
    /// The memory limit ended it.
    pub oom_killed: bool,
    /// How many processes of the sandbox the memory limit killed meanwhile.
    pub oom_kills: u64,
    /// Why it never ran.
    pub failure: Option<StartFailure>,
    /// Bytes of output that came and were kept, at least for a while.
    pub output_bytes: u64,
    /// Bytes beyond the cap.
    pub dropped_bytes: u64,
    /// When it began.
    pub started_unix_ms: u64,
    /// How long it ran.
    pub duration: Duration,
    /// Processor time of its own.
    pub cpu_user: Duration,
    /// Processor time that the kernel spent for it.
    pub cpu_system: Duration,
    /// The most memory that it had.
    pub max_rss_bytes: u64,
    /// Its process id inside.
    pub pid: u32,
    /// The command as a person would type it.
    pub command: String,
    /// Whether something that it started still runs.
    pub descendants_alive: bool,
    /// Its terminal, where it has one.
    pub terminal: Option<TerminalSize>,
    /// The first byte of output that is still there.
    pub first_offset: u64,
    /// It is one of PID 1's own programs.
    pub tool: bool,
}

impl ExecReport {
    /// The exit code that a shell would show: the command's own, 124 for a timeout, 128 and the signal, 127
    /// for a program that is not there and 126 for one that cannot be started.
    #[must_use]
    pub fn shell_code(&self) -> ExitCode {
        match &self.failure {
            Some(failure) => ExitCode::not_started(failure.errno),
            None => ExitCode::ended(self.timed_out, self.exit_code, self.signal),
        }
    }
}
