//! What to run, and how.

use super::exec::hostile;
use atoll_guest_proto::v1;
use atoll_types::{ExecId, Result, TerminalSize};
use std::{collections::BTreeMap, time::Duration};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A program and its arguments.
    Arguments(Vec<Vec<u8>>),
    /// A line for the image's shell.
    Shell(String),
    /// A program of PID 1's own, run as the user like any other.
    Tool {
        /// find, grep, pack, unpack, watch, kernels, process-api.
        name: String,
        /// Its request, as JSON.
        request: Vec<u8>,
        /// Whether it starts with the sandbox's variables, as a command does; else with none.
        environment: bool,
    },
}

/// A command and how to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What to run.
    pub program: Program,
    /// Absolute, or relative to /workspace; empty for /workspace.
    pub working_directory: String,
    /// On top of the sandbox's own.
    pub environment: BTreeMap<String, String>,
    /// A name, `uid` or `uid:gid`; empty for the profile's.
    pub user: String,
    /// Whether it reads what [`Guest::write_stdin`] sends; otherwise its input is empty.
    pub stdin: bool,
    /// When to end it.
    pub timeout: Option<Duration>,
    /// Most bytes of output to keep.
    pub output_limit: Option<u64>,
    /// Whether the command blocks while its readers are slow, as with a pipe, instead of losing output.
    pub lossless: bool,
    /// Its three streams are a terminal of this size. All output is then stdout, and stdin is open.
    pub terminal: Option<TerminalSize>,
    /// When there is more output than is kept, the oldest goes instead of the newest.
    pub keep_newest: bool,
}

impl Command {
    /// A program and its arguments.
    pub fn new<A: Into<Vec<u8>>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::of(Program::Arguments(arguments.into_iter().map(Into::into).collect()))
    }

    /// A line for the shell.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::of(Program::Shell(line.into()))
    }

    /// A program of PID 1's own.
    pub fn tool(name: impl Into<String>, request: Vec<u8>) -> Self {
        Self::of(Program::Tool { name: name.into(), request, environment: false })
    }

    /// The same, with the sandbox's variables where it is a program of PID 1's own.
    #[must_use]
    pub fn environment_of_sandbox(mut self) -> Self {
        if let Program::Tool { environment, .. } = &mut self.program {
            *environment = true;
        }
        self
    }

    fn of(program: Program) -> Self {
        Self {
            program,
            working_directory: String::new(),
            environment: BTreeMap::new(),
            user: String::new(),
            stdin: false,
            timeout: None,
            output_limit: None,
            lossless: false,
            terminal: None,
            keep_newest: false,
        }
    }

    pub(super) fn request(&self, id: ExecId) -> v1::ExecRequest {
        let Self {
            program,
            working_directory,
            environment,
            user,
            stdin,
            timeout,
            output_limit,
            lossless,
            terminal,
            keep_newest,
        } = self.clone();
        let program = match program {
            Program::Arguments(argv) => v1::exec_request::Program::Arguments(v1::Arguments { argv }),
            Program::Shell(line) => v1::exec_request::Program::Shell(line),
            Program::Tool { name, request, environment } => {
                v1::exec_request::Program::Tool(v1::Tool { name, request, environment })
            }
        };
        // Zero means none, so the shortest timeout is a millisecond.
        let timeout_ms = timeout.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX).max(1));
        v1::ExecRequest {
            exec_id: id.to_string(),
            program: Some(program),
            working_directory,
            environment: environment.into_iter().collect(),
            user,
            stdin,
            timeout_ms,
            output_limit: output_limit.unwrap_or(0),
            lossless,
            terminal: terminal.map(terminal_message),
            keep_newest,
        }
    }
}

pub(super) fn terminal_message(size: TerminalSize) -> v1::Terminal {
    v1::Terminal { rows: size.rows.into(), columns: size.columns.into() }
}

/// What PID 1 says of a terminal.
pub(super) fn terminal_size(terminal: v1::Terminal) -> Result<TerminalSize> {
    let side = |n: u32| u16::try_from(n).map_err(|_| hostile("a terminal's size"));
    Ok(TerminalSize { rows: side(terminal.rows)?, columns: side(terminal.columns)? })
}
