//! Requests and lines, as JSON. The host checks a request before it sends it and the kernel manager checks it
//! again; the host bounds every line and trusts none of it.
//!
//! A request carries a `tag` that its one answer repeats. Tags are chosen at random, so that a server
//! that comes later is not confused by answers to an earlier one. Cells and kernels have ids chosen by the
//! host; repeating a request with the same id joins what is there instead of doing it again.

mod cell;

use atoll_types::{CellId, CheckpointId, Death, Error, ExecId, KernelId, Result};
pub use cell::{CellError, CellErrorKind, CellEvent, CellReport, CellStream, Display};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, str::FromStr};

/// The longest line of either side.
pub const LONGEST_LINE: usize = 16 << 20;
/// The longest piece of code.
pub const LONGEST_CODE: usize = 1 << 20;
/// Most kernels of one sandbox.
pub const MOST_KERNELS: usize = 64;
/// Most checkpoints of one kernel.
pub const MOST_CHECKPOINTS: usize = 16;
/// Most cells that wait for one kernel.
pub const MOST_QUEUED: usize = 256;

/// The language of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    Python,
    Node,
    R,
    Bash,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Python, Self::Node, Self::R, Self::Bash];

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::R => "r",
            Self::Bash => "bash",
        }
    }
}

impl FromStr for Language {
    type Err = Error;

    /// Also by the names that people use: py, python3, javascript, js, nodejs, R, sh, shell.
    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Ok(Self::Python),
            "node" | "nodejs" | "javascript" | "js" => Ok(Self::Node),
            "r" => Ok(Self::R),
            "bash" | "sh" | "shell" => Ok(Self::Bash),
            _ => Err(Error::invalid("language", "language must be one of python, node, r and bash")),
        }
    }
}

/// How much of a cell's output is kept, in characters, and of its displays, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputLimits {
    /// Of its stdout.
    pub stdout: u32,
    /// Of its stderr.
    pub stderr: u32,
    /// Of its value.
    pub result: u32,
    /// Of a traceback.
    pub traceback: u32,
    /// Of one display; a larger one is replaced by a notice as text/plain.
    pub display_bytes: u32,
    /// Of all of a cell's displays together; those beyond are counted in one notice.
    pub displays_bytes: u32,
    /// How many displays.
    pub displays: u32,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            stdout: 50_000,
            stderr: 120_000,
            result: 30_000,
            traceback: 8_000,
            display_bytes: 6 << 20,
            displays_bytes: 12 << 20,
            displays: 64,
        }
    }
}

/// A message of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Repeated by the answer.
    pub tag: ExecId,
    /// The request.
    pub ask: RequestKind,
}

/// The kinds of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestKind {
    /// Starts a kernel. Answered by [`Answer::Kernel`] when its interpreter is ready.
    Start(Start),
    /// Runs a cell. Answered by [`Answer::Queued`] at once; its events follow, the last of them `ended`.
    Execute(Execute),
    /// The events of a cell from its beginning, whichever request started it; as for `Execute`.
    Follow {
        /// Which.
        cell: CellId,
        /// Only its end, which has everything: the host keeps no events of a cell that it missed some of.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        end_only: bool,
    },
    /// Ends the running cell; those that wait behind it still run. [`Answer::Done`].
    Interrupt {
        /// Which.
        kernel: KernelId,
        /// Only this one, whether it runs or waits.
        cell: Option<CellId>,
    },
    /// A fresh interpreter under the same id, its checkpoints kept. [`Answer::Kernel`] when it is ready.
    Restart {
        /// Which.
        kernel: KernelId,
    },
    /// Completions of the text before a cursor, and whether it is a complete piece of code. Refused while the
    /// kernel is busy. [`Answer::Completion`].
    Complete {
        /// Where.
        kernel: KernelId,
        /// The text before the cursor.
        code: String,
    },
    /// Ends it and everything that it started.
    Delete {
        /// Which.
        kernel: KernelId,
    },
    /// [`Answer::Kernels`].
    List,
    /// Saves the interpreter's state. Queued among the cells. [`Answer::Checkpoint`].
    Checkpoint {
        /// Whose.
        kernel: KernelId,
        /// Chosen by the host.
        checkpoint: CheckpointId,
        /// For people.
        name: String,
    },
    /// Restores the interpreter's state. The running cell and the waiting ones are ended. [`Answer::Kernel`].
    Rollback {
        /// Whose.
        kernel: KernelId,
        /// To which.
        checkpoint: CheckpointId,
    },
    /// Forgets a checkpoint and frees its memory.
    DropCheckpoint {
        /// Whose.
        kernel: KernelId,
        /// Which.
        checkpoint: CheckpointId,
    },
    /// A second kernel that begins with everything that the first has now. [`Answer::Kernel`].
    Fork(Fork),
    /// Replaces the sandbox's variables, for kernels that start afterwards and, where the language can, for those
    /// that run. Answered by [`Answer::Done`].
    Configure {
        /// Over those that the kernel manager itself was started with.
        variables: BTreeMap<String, String>,
    },
}

impl RequestKind {
    /// Whether a kernel manager that gets it twice does what it does for one: what it makes has an id of the host's.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        match self {
            Self::Start(_)
            | Self::Execute(_)
            | Self::Follow { .. }
            | Self::Interrupt { cell: Some(_), .. }
            | Self::Complete { .. }
            | Self::List
            | Self::Fork(_)
            | Self::Configure { .. } => true,
            Self::Interrupt { cell: None, .. }
            | Self::Restart { .. }
            | Self::Delete { .. }
            | Self::Checkpoint { .. }
            | Self::Rollback { .. }
            | Self::DropCheckpoint { .. } => false,
        }
    }
}

/// A new kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Chosen by the host.
    pub kernel: KernelId,
    /// Its language.
    pub language: Language,
    /// The kernel that is used where a request names none; where there is one already, that one is the answer,
    /// whatever its state.
    pub default: bool,
    /// Absolute, or relative to /workspace; empty: /workspace.
    pub working_directory: String,
    /// Over the sandbox's.
    pub variables: BTreeMap<String, String>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    /// Where.
    pub kernel: KernelId,
    /// Chosen by the host. One that is known is followed and not run again.
    pub cell: CellId,
    /// The code.
    pub code: String,
    /// How long it may run, not counting its waiting and not counting time that the sandbox is paused.
    pub timeout_ms: u64,
    /// Whether output comes as it is made; otherwise the first event is `ended`.
    pub stream: bool,
    /// How much of it.
    pub limits: OutputLimits,
    /// Whether a Python cell without a last expression has the value of the variable `result`, where it names that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_variable: bool,
}

/// One kernel from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// From which.
    pub kernel: KernelId,
    /// From this checkpoint instead of the current state.
    pub checkpoint: Option<CheckpointId>,
    /// The new one.
    pub new: KernelId,
}

/// A message of the kernel manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The one answer to a request.
    Answer {
        /// Of which.
        tag: ExecId,
        /// The result.
        result: std::result::Result<Answer, Error>,
    },
    /// An event of a cell.
    Event {
        /// Of which.
        cell: CellId,
        /// What.
        event: CellEvent,
    },
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A kernel as it is now.
    Kernel(KernelInfo),
    /// All of them, the oldest first.
    Kernels(Vec<KernelInfo>),
    /// A checkpoint was made.
    Checkpoint(CheckpointInfo),
    /// Completions of a text.
    Completion(Completion),
    /// A cell waits, runs or has run.
    Queued {
        /// Whether it was known before.
        joined: bool,
    },
    /// The request succeeded.
    Done,
}

/// Most completions of a text.
pub const MOST_MATCHES: usize = 1000;

/// Completions of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// The end of the text that each match replaces.
    pub prefix: String,
    /// The completions, in order.
    pub matches: Vec<String>,
    /// Whether the text is a complete piece of code.
    pub status: CodeStatus,
}

/// Whether a text is a complete piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeStatus {
    /// It can be run.
    Complete,
    /// More lines have to follow.
    Incomplete,
    /// No further line can make it valid.
    Invalid,
    /// The interpreter cannot decide.
    #[default]
    Unknown,
}

/// The state of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelStatus {
    Starting,
    Idle,
    Busy,
    Dead,
}

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelInfo {
    /// Its id.
    pub kernel: KernelId,
    /// Its language.
    pub language: Language,
    /// Whether it is the one that is used where a request names none.
    pub default: bool,
    /// Its state.
    pub status: KernelStatus,
    /// What it is, for people: `Python 3.11.2, IPython 8.5.0`.
    pub interpreter: String,
    /// The interpreter's process, inside.
    pub pid: Option<u32>,
    /// How many cells it has run since its interpreter began.
    pub execution_count: u64,
    /// How many times its interpreter was started anew.
    pub restarts: u32,
    /// The cell that runs.
    pub running: Option<CellId>,
    /// How many wait.
    pub queued: u32,
    /// How its last interpreter ended, when it is dead. Only the host knows whether the OOM killer ended it.
    pub death: Option<Death>,
    /// Its checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// The kernel that it was forked from.
    pub parent: Option<KernelId>,
    /// When the request to start it came.
    pub started_unix_ms: u64,
    /// When it was last used.
    pub active_unix_ms: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointInfo {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// For people.
    pub name: String,
    /// When it was made.
    pub made_unix_ms: u64,
    /// The cells that had been run then.
    pub execution_count: u64,
    /// The threads that it is without: only the one that runs cells is in it.
    pub threads_lost: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_go_by_the_names_that_people_use() {
        for (text, language) in [
            ("python", Language::Python),
            ("JavaScript", Language::Node),
            ("R", Language::R),
            ("sh", Language::Bash),
        ] {
            assert_eq!(text.parse::<Language>().unwrap(), language);
        }
        assert_eq!("cobol".parse::<Language>().unwrap_err().field.as_deref(), Some("language"));
        for language in Language::ALL {
            assert_eq!(language.name().parse::<Language>().unwrap(), language);
        }
    }

    #[test]
    fn a_request_is_a_line() {
        let ask = RequestKind::Interrupt { kernel: KernelId::random(), cell: None };
        let request = Request { tag: ExecId::random(), ask };
        let line = serde_json::to_string(&request).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
    }
}
