//! The request for a command, checked before anything is done.

use crate::{
    bounds::{ARGUMENT, check_directory},
    ceiling::{TierCeiling, check_timeout},
    operation::OperationSpec,
};
use atoll_provider::{Command, Guest, Program};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Operation, Result};
use bytes::Bytes;
use std::{collections::BTreeMap, time::Duration};

/// The longest that a command may ask for.
pub const MAX_TIMEOUT_SECONDS: u64 = 24 * 3600;
/// The longest that a background command may ask for; without a timeout it has none.
pub const MAX_BACKGROUND_SECONDS: u64 = 7 * 24 * 3600;
const DEFAULT_TIMEOUT_SECONDS: u64 = 300;
/// What the kernel takes of one argument, and of all of them with the variables. A line for the shell may be
/// as long as all.
const LONGEST_ARGUMENT: usize = (128 << 10) - 1;
pub(crate) const LONGEST_COMMAND: usize = 2 << 20;
/// Of an operation that runs a command: its mode.
pub(super) const MODE: &str = "mode";
/// Of an operation whose command was given secrets of its own: how many.
pub(super) const OWN_SECRETS: &str = "secrets";
/// Input goes to the sandbox in pieces of this.
const PIECE: usize = 1 << 18;

/// Who waits for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecMode {
    /// The caller, for the whole result.
    Foreground,
    /// The caller, for each piece of output.
    Streamed,
    /// No caller.
    Background,
    /// No caller: an image says that each of its sandboxes starts it. It is no work that keeps a sandbox from being idle.
    Start,
}

impl ExecMode {
    const ALL: [Self; 4] = [Self::Foreground, Self::Streamed, Self::Background, Self::Start];

    /// Its name in the audit trail.
    const fn name(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Streamed => "streamed",
            Self::Background => "background",
            Self::Start => "start",
        }
    }

    /// The mode of a row of the audit trail.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether the command's end takes the files that changed; otherwise the next command's does.
    pub(super) const fn takes_changes(self) -> bool {
        !matches!(self, Self::Background | Self::Start)
    }

    /// Whether the command keeps its sandbox from being idle until its end.
    pub(super) const fn is_work(self) -> bool {
        !matches!(self, Self::Start)
    }
}

/// What to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExecCommand {
    /// A line for the shell.
    pub command: Option<String>,
    /// Or a program and its arguments.
    pub arguments: Option<Vec<String>>,
    /// When to end it.
    pub timeout_seconds: Option<f64>,
    /// The same where none is given, as far as the caller's tier allows; 300 where this is not given either.
    pub usual_seconds: Option<u64>,
    /// Where, absolute or relative to /workspace.
    pub working_directory: Option<String>,
    /// On top of the sandbox's own.
    pub env_vars: BTreeMap<String, String>,
    /// The same, with values that no record may show.
    pub secrets: BTreeMap<String, String>,
    /// What it reads.
    pub stdin: Option<Bytes>,
    /// Whether its stdin stays open for more.
    pub stdin_open: bool,
    /// Whether a streamed command waits for its reader, instead of losing the oldest of its output.
    pub lossless: bool,
    /// Who: a name, UID or UID:GID.
    pub user: Option<String>,
    /// Of a request that may be repeated: a command with this id is joined and not run again, and it
    /// outlives its caller, who may come back.
    pub id: Option<ExecId>,
}

impl ExecCommand {
    pub(super) fn build(&self, mode: ExecMode, most: TierCeiling) -> Result<Command> {
        let mut command = Command::shell("");
        command.program = self.program()?;
        command.timeout = self.timeout(mode, most)?;
        check_directory(self.working_directory.as_deref())?;
        command.working_directory = self.working_directory.clone().unwrap_or_default();
        let secrets = self.secrets.iter().map(|(name, value)| (name.clone(), value.clone()));
        command.environment = self.env_vars.clone().into_iter().chain(secrets).collect();
        command.user = self.user.clone().unwrap_or_default();
        command.stdin = self.stdin.is_some() || self.stdin_open;
        if self.stdin_open && mode == ExecMode::Foreground {
            let message = "no request could write to its stdin: stdin_open needs stream or background";
            return Err(Error::invalid("stdin_open", message));
        }
        if self.lossless && mode != ExecMode::Streamed {
            let message = "there is no reader to wait for: lossless needs stream, and no background";
            return Err(Error::invalid("lossless", message));
        }
        command.lossless = self.lossless;
        // A caller that waits for the result wants the output's beginning; one that follows it wants the
        // newest.
        command.keep_newest = mode != ExecMode::Foreground;
        Ok(command)
    }

    fn program(&self) -> Result<Program> {
        let program = match (&self.command, &self.arguments) {
            (Some(line), None) if !line.trim().is_empty() => Program::Shell(line.clone()),
            (None, Some(list)) if !list.is_empty() => {
                Program::Arguments(list.iter().map(|a| a.clone().into_bytes()).collect())
            }
            (Some(_), Some(_)) => {
                return Err(Error::invalid("command", "give command or arguments, not both"));
            }
            _ => return Err(Error::invalid("command", "command must not be empty")),
        };
        let texts = self.command.iter().chain(self.arguments.iter().flatten());
        let (length, nul) = texts.fold((0, false), |(n, nul), t| (n + t.len(), nul || !ARGUMENT.fits(t)));
        if nul {
            return Err(Error::invalid("command", "a command cannot hold a NUL character"));
        }
        let field = if self.command.is_some() { "command" } else { "arguments" };
        if length > LONGEST_COMMAND {
            let message = format!("{field} may have {LONGEST_COMMAND} bytes in all, and has {length}");
            return Err(Error::new(ErrorCode::TooLarge, message).at(field));
        }
        let longest = self.arguments.iter().flatten().map(String::len).max().unwrap_or(0);
        if longest > LONGEST_ARGUMENT {
            let message =
                format!("one of the arguments may have {LONGEST_ARGUMENT} bytes, and has {longest}");
            return Err(Error::new(ErrorCode::TooLarge, message).at(field));
        }
        Ok(program)
    }

    fn timeout(&self, mode: ExecMode, ceiling: TierCeiling) -> Result<Option<Duration>> {
        let (default, most) = match mode {
            ExecMode::Background | ExecMode::Start => (None, MAX_BACKGROUND_SECONDS),
            _ => (Some(self.usual_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS)), MAX_TIMEOUT_SECONDS),
        };
        const FIELD: &str = "timeout_seconds";
        check_timeout(FIELD, self.timeout_seconds, most)?;
        Ok(ceiling.timeout(FIELD, self.timeout_seconds, default)?.map(Duration::from_secs_f64))
    }

    /// What the audit trail records before the command starts.
    pub(super) fn what(
        &self,
        kind: Operation,
        sandbox: SandboxId,
        mode: ExecMode,
        id: ExecId,
    ) -> OperationSpec {
        let mut what = OperationSpec::running(kind, sandbox, id).with(self.shown()).and(MODE, mode.name());
        if let Some(user) = &self.user {
            what = what.and("user", user);
        }
        what.directory.clone_from(&self.working_directory);
        what.variables = self.env_vars.keys().chain(self.secrets.keys()).cloned().collect();
        what.secrets = self.secrets.values().cloned().collect();
        // The next server does not know these values; the count says that there were some.
        if self.secrets.is_empty() { what } else { what.and(OWN_SECRETS, self.secrets.len()) }
    }

    /// The command as the audit trail and the activity record it.
    pub(super) fn shown(&self) -> String {
        match (&self.command, &self.arguments) {
            (Some(line), _) => line.clone(),
            (None, Some(list)) => list.join(" "),
            (None, None) => String::new(),
        }
    }

    /// Writes the command's stdin from a task of its own: the command may print before it has read
    /// everything, or never read.
    pub(super) fn feed(&self, guest: &Guest, id: ExecId) {
        let Some(input) = self.stdin.clone() else { return };
        let (guest, stays_open) = (guest.clone(), self.stdin_open);
        let pieces: Vec<Bytes> =
            (0..input.len()).step_by(PIECE).map(|at| input.slice(at..input.len().min(at + PIECE))).collect();
        tokio::spawn(async move {
            let pieces = futures_util::stream::iter(pieces);
            // A command that does not take its input has its reasons.
            let _ = if stays_open {
                guest.add_stdin(id, pieces).await
            } else {
                guest.write_stdin(id, pieces).await
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{COMMAND, LONGEST_PATH};

    #[test]
    fn a_line_and_arguments_are_what_their_bounds_say() {
        for line in ["true", " \u{3000}é", "", " ", "\t\u{85}", "a\0b", "\u{feff}"] {
            let command = ExecCommand { command: Some(line.into()), ..ExecCommand::default() };
            assert_eq!(command.program().is_ok(), COMMAND.fits(line), "{line:?}");
        }
        for (list, fits) in [(vec!["a", ""], true), (vec![""], true), (vec![], false), (vec!["a\0"], false)] {
            let list = list.into_iter().map(str::to_owned).collect();
            let command = ExecCommand { arguments: Some(list), ..ExecCommand::default() };
            assert_eq!(command.program().is_ok(), fits, "{command:?}");
        }
    }

    #[test]
    fn a_front_names_the_usual_timeout() {
        let of = |usual_seconds, timeout_seconds| {
            let command = ExecCommand { usual_seconds, timeout_seconds, ..ExecCommand::default() };
            command.timeout(ExecMode::Streamed, TierCeiling::default()).unwrap().unwrap().as_secs()
        };
        assert_eq!((of(None, None), of(Some(MAX_TIMEOUT_SECONDS), None)), (300, MAX_TIMEOUT_SECONDS));
        assert_eq!(of(Some(9), Some(7.0)), 7);
    }

    #[test]
    fn a_working_directory_has_a_length() {
        for (length, fits) in [(LONGEST_PATH, true), (LONGEST_PATH + 1, false)] {
            let directory = Some("d".repeat(length));
            let command = ExecCommand {
                command: Some("true".into()),
                working_directory: directory,
                ..ExecCommand::default()
            };
            let built = command.build(ExecMode::Foreground, TierCeiling::default());
            assert_eq!(
                built.map(drop).map_err(|e| e.field).err(),
                (!fits).then(|| Some("working_directory".into()))
            );
        }
    }
}
