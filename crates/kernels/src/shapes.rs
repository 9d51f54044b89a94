//! Requests and lines, as JSON. The host checks a request before it sends it and the kernel manager checks it
//! again; the host bounds every line and believes none of it.
//!
//! A request carries a `tag` that its one answer repeats. Tags are chosen at random, so that a server
//! that comes later is not confused by answers to an earlier one. Cells and kernels have ids chosen by the
//! host; repeating a request with the same id joins what is there instead of doing it again.

use atoll_types::{CellId, CheckpointId, Death, Error, ExecId, KernelId, Result};
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

/// What a kernel speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
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
    /// Of what it prints.
    pub stdout: u32,
    /// Of what it complains.
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

/// What the host says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Repeated by the answer.
    pub tag: ExecId,
    /// What is wanted.
    pub ask: RequestKind,
}

/// What the host wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestKind {
    /// A kernel. Answered by [`Answer::Kernel`] when its interpreter is ready.
    Start(Start),
    /// A cell. Answered by [`Answer::Queued`] at once; its events follow, the last of them `ended`.
    Execute(Execute),
    /// The events of a cell from its beginning, whoever asked for it; as for `Execute`.
    Follow {
        /// Which.
        cell: CellId,
    },
    /// Ends the running cell; what waits behind it goes on. [`Answer::Done`].
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
    /// How the text before a cursor could go on, and whether it is a whole piece of code. Refused while the
    /// kernel works. [`Answer::Completion`].
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
    /// Remembers the interpreter as it is. Waits for its turn among the cells. [`Answer::Checkpoint`].
    Checkpoint {
        /// Whose.
        kernel: KernelId,
        /// Chosen by the host.
        checkpoint: CheckpointId,
        /// For people.
        name: String,
    },
    /// Puts the interpreter back as it was. The running cell is ended, those that wait are too.
    /// [`Answer::Kernel`].
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
    /// Replaces what the sandbox's variables are, for kernels that start afterwards and, where the
    /// language can, for those that run. Answered by [`Answer::Done`].
    Configure {
        /// Over those that the kernel manager itself was started with.
        variables: BTreeMap<String, String>,
    },
}

/// A new kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Chosen by the host.
    pub kernel: KernelId,
    /// What it speaks.
    pub language: Language,
    /// The one that is used where none is named; where there is one already, that one is the answer,
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
}

/// One kernel from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// From which.
    pub kernel: KernelId,
    /// Not as it is now but as it was then.
    pub checkpoint: Option<CheckpointId>,
    /// The new one.
    pub new: KernelId,
}

/// What the kernel manager says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The one answer to a request.
    Answer {
        /// Of which.
        tag: ExecId,
        /// What came of it.
        result: std::result::Result<Answer, Error>,
    },
    /// Something of a cell.
    Event {
        /// Of which.
        cell: CellId,
        /// What.
        event: CellEvent,
    },
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A kernel as it is now.
    Kernel(KernelInfo),
    /// All of them, the oldest first.
    Kernels(Vec<KernelInfo>),
    /// A checkpoint was made.
    Checkpoint(CheckpointInfo),
    /// How a text could go on.
    Completion(Completion),
    /// A cell waits, runs or has run.
    Queued {
        /// Whether it was known before.
        joined: bool,
    },
    /// It is done.
    Done,
}

/// Most ways in which a text could go on.
pub const MOST_MATCHES: usize = 1000;

/// How a text could go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// The end of the text that each match replaces.
    pub prefix: String,
    /// What could stand there, in order.
    pub matches: Vec<String>,
    /// Whether the text is a whole piece of code.
    pub status: CodeStatus,
}

/// Whether a text is a whole piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeStatus {
    /// It can be run.
    Complete,
    /// More lines have to follow.
    Incomplete,
    /// No line that follows can make it right.
    Invalid,
    /// The interpreter cannot tell.
    #[default]
    Unknown,
}

/// How a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
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
    /// What it speaks.
    pub language: Language,
    /// Whether it is the one that is used where none is named.
    pub default: bool,
    /// How it is.
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
    /// How its last interpreter ended, when it is dead. Whether memory was the reason, the host knows.
    pub death: Option<Death>,
    /// What can be returned to, the oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// The kernel that it was forked from.
    pub parent: Option<KernelId>,
    /// When it was asked for.
    pub started_unix_ms: u64,
    /// When last something was done with it.
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

/// Something of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellEvent {
    /// Its turn has come.
    Began {
        /// Which cell of its kernel it is.
        execution_count: u64,
    },
    /// It printed.
    Output {
        /// Where.
        stream: CellStream,
        /// What; whole characters.
        text: String,
    },
    /// It showed something.
    Display(Display),
    /// It has ended; the last event.
    Ended(Box<CellReport>),
}

/// Where a cell prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum CellStream {
    Stdout,
    Stderr,
}

/// Something to look at or listen to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Display {
    /// Its MIME type.
    #[serde(rename = "type")]
    pub mime: String,
    /// Text, or base64 where the type is not text, SVG or JSON.
    pub data: String,
}

/// What went wrong in a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// The language's own name of it; or `TIMEOUT`, `INTERRUPTED`, `KERNEL_DIED`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it happened.
    pub traceback: Option<String>,
}

/// A cell that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellReport {
    /// Where it ran.
    pub kernel: KernelId,
    /// Whether nothing went wrong.
    pub success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// Its value, by MIME type; `text/plain` is always among them.
    pub result: Option<BTreeMap<String, String>>,
    /// What went wrong.
    pub error: Option<CellError>,
    /// What it showed.
    pub display_outputs: Vec<Display>,
    /// Which cell of its kernel it was.
    pub execution_count: u64,
    /// How long it ran.
    pub duration_us: u64,
    /// Its time was up.
    pub timed_out: bool,
    /// Somebody ended it.
    pub interrupted: bool,
    /// The interpreter was lost with it, and all variables: it died, or would not be interrupted.
    pub state_lost: bool,
    /// Whether a fresh interpreter took its place.
    pub restarted: bool,
    /// How the interpreter ended.
    pub death: Option<Death>,
    /// Whether some of its output is missing; a notice stands where.
    pub truncated: bool,
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
