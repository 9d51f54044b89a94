//! Commands. A caller that goes away takes its command with it.

use crate::{Caller, Core, leash::Leash, now};
use atoll_provider::{Changed, Command, Container, ExecEvent, ExecReport, OutputStream, Program};
use atoll_store::{Activity, ActivityKind, SandboxId};
use atoll_types::{Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest that a command may ask for.
pub const MAX_TIMEOUT_SECONDS: u64 = 24 * 3600;
const DEFAULT_TIMEOUT_SECONDS: u64 = 300;
/// The most of each output that is returned; what is beyond is counted.
const LARGEST_OUTPUT: usize = 8 << 20;
/// The longest command line.
const LONGEST_COMMAND: usize = 1 << 20;

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecCommand {
    /// A line for the shell.
    pub command: Option<String>,
    /// Or a program and its arguments.
    pub arguments: Option<Vec<String>>,
    /// When to end it.
    pub timeout_seconds: Option<u64>,
    /// Where, absolute or relative to /workspace.
    pub working_directory: Option<String>,
    /// On top of the sandbox's own.
    pub env_vars: BTreeMap<String, String>,
    /// What it reads.
    pub stdin: Option<Bytes>,
    /// Who: a name, UID or UID:GID.
    pub user: Option<String>,
}

/// A command that was waited for.
#[derive(Debug, Clone)]
pub struct ExecOutcome {
    /// How it went.
    pub report: ExecReport,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained.
    pub stderr: Vec<u8>,
    /// Whether some of either is missing.
    pub truncated: bool,
    /// Which files changed since the command before; none where nobody can tell.
    pub changed: Option<Changed>,
}

impl ExecCommand {
    fn build(&self) -> Result<Command> {
        let program = match (&self.command, &self.arguments) {
            (Some(line), None) if !line.trim().is_empty() => Program::Shell(line.clone()),
            (None, Some(list)) if list.first().is_some_and(|p| !p.is_empty()) => {
                Program::Arguments(list.iter().map(|a| a.clone().into_bytes()).collect())
            }
            (Some(_), Some(_)) => {
                return Err(Error::invalid("command", "give command or arguments, not both"));
            }
            _ => return Err(Error::invalid("command", "command must not be empty")),
        };
        let texts = self.command.iter().chain(self.arguments.iter().flatten());
        let (length, nul) = texts.fold((0, false), |(n, nul), t| (n + t.len(), nul || t.contains('\0')));
        if nul {
            return Err(Error::invalid("command", "a command cannot hold a NUL character"));
        }
        if length > LONGEST_COMMAND {
            return Err(Error::new(ErrorCode::TooLarge, "a command may have 1 MiB").at("command"));
        }
        let seconds = self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
            let message = format!("timeout_seconds must be between 1 and {MAX_TIMEOUT_SECONDS}");
            return Err(Error::invalid("timeout_seconds", message));
        }
        let mut command = Command::shell("");
        command.program = program;
        command.timeout = Some(Duration::from_secs(seconds));
        command.working_directory = self.working_directory.clone().unwrap_or_default();
        command.environment = self.env_vars.clone();
        command.user = self.user.clone().unwrap_or_default();
        command.stdin = self.stdin.is_some();
        Ok(command)
    }

    /// The command as it is noted.
    fn shown(&self) -> String {
        match (&self.command, &self.arguments) {
            (Some(line), _) => line.clone(),
            (None, Some(list)) => list.join(" "),
            (None, None) => String::new(),
        }
    }
}

/// What was printed so far.
#[derive(Default)]
struct Printed {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

impl Printed {
    fn add(&mut self, stream: OutputStream, data: &[u8]) {
        let to = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let room = LARGEST_OUTPUT.saturating_sub(to.len()).min(data.len());
        to.extend_from_slice(&data[..room]);
        self.truncated |= room < data.len();
    }
}

impl Core {
    /// Runs a command to its end.
    pub async fn exec(&self, caller: &Caller, id: SandboxId, request: &ExecCommand) -> Result<ExecOutcome> {
        let command = request.build()?;
        self.writable(caller, id).await?;
        let container = self.desks.container(id).await?;
        let mut outcome = run(Arc::clone(&container), &command, request.stdin.clone()).await?;
        outcome.changed = self.take_changes(id, &container).await;
        if let Some(failure) = &outcome.report.failure
            && failure.stage != "exec"
        {
            let error = Error::new(ErrorCode::ExecFailed, failure.message.clone());
            return Err(match failure.stage.as_str() {
                "workdir" => error.at("working_directory"),
                "user" => error.at("user"),
                _ => error,
            });
        }
        self.note_exec(id, request, &outcome).await;
        Ok(outcome)
    }

    async fn note_exec(&self, id: SandboxId, request: &ExecCommand, outcome: &ExecOutcome) {
        let activity = Activity {
            sandbox: id,
            kind: ActivityKind::Exec,
            at: now(),
            detail: request.shown(),
            exit_code: Some(outcome.report.shell_code()),
            duration_ms: Some(u64::try_from(outcome.report.duration.as_millis()).unwrap_or(u64::MAX)),
            bytes: None,
        };
        if let Err(error) = self.store.record_activity(activity).await {
            tracing::warn!(%error, "cannot note a command");
        }
    }
}

async fn run(container: Arc<dyn Container>, command: &Command, stdin: Option<Bytes>) -> Result<ExecOutcome> {
    let id = ExecId::random();
    let mut leash = Leash::new(&container, id);
    let guest = container.guest();
    let mut events = guest.exec(id, command).await?;
    if let Some(input) = stdin {
        let guest = guest.clone();
        // Beside the output: a command may print before it has read everything, or never read.
        tokio::spawn(async move {
            let pieces: Vec<Bytes> = (0..input.len())
                .step_by(1 << 18)
                .map(|at| input.slice(at..input.len().min(at + (1 << 18))))
                .collect();
            let _ = guest.write_stdin(id, futures_util::stream::iter(pieces)).await;
        });
    }
    let mut printed = Printed::default();
    loop {
        match events.next().await? {
            Some(ExecEvent::Started(_)) => {}
            Some(ExecEvent::Output { stream, data, .. }) => printed.add(stream, &data),
            Some(ExecEvent::Ended(report)) => {
                leash.forget();
                let Printed { stdout, stderr, truncated } = printed;
                let truncated = truncated || report.dropped_bytes > 0;
                return Ok(ExecOutcome { report, stdout, stderr, truncated, changed: None });
            }
            None => return Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
        }
    }
}
