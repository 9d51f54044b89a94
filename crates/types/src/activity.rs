//! What happened in a sandbox, newest first, for its owner to look at. Not the audit trail: it is
//! trimmed, and nothing proves that it is whole.

use crate::{Millis, SandboxId, names, text::cut};

/// How much of a command or a path is kept.
pub const DETAIL_BYTES: usize = 1024;

names!(
    /// What happened.
    ActivityKind {
        /// A container was started.
        Start = "start",
        /// It was stopped.
        Stop = "stop",
        /// It was paused.
        Pause = "pause",
        /// It went on.
        Resume = "resume",
        /// The sandbox was destroyed.
        Destroy = "destroy",
        /// A command ran; counts in `exec_count` and `exec_total_ms`.
        Exec = "exec",
        /// A file went in; counts in `bytes_uploaded`.
        Upload = "upload",
        /// A file came out; counts in `bytes_downloaded`.
        Download = "download",
    }
);

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Where.
    pub sandbox: SandboxId,
    /// What.
    pub kind: ActivityKind,
    /// When.
    pub at: Millis,
    /// The command or the path; cut to [`DETAIL_BYTES`] when it is kept.
    pub detail: String,
    /// How the command ended.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// How much was moved.
    pub bytes: Option<u64>,
}

/// One thing that happened, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityEntry {
    /// Its number in its sandbox: 1, 2, 3, without a gap.
    pub number: u64,
    /// What happened.
    pub activity: Activity,
}

/// What an activity adds to its sandbox's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    pub execs: u64,
    pub exec_ms: u64,
    pub uploaded: u64,
    pub downloaded: u64,
}

impl Activity {
    /// The detail as it is kept.
    #[must_use]
    pub fn kept_detail(&self) -> &str {
        cut(&self.detail, DETAIL_BYTES)
    }

    /// What it adds to the counters.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let bytes = self.bytes.unwrap_or(0);
        match self.kind {
            ActivityKind::Exec => {
                Counted { execs: 1, exec_ms: self.duration_ms.unwrap_or(0), ..Counted::default() }
            }
            ActivityKind::Upload => Counted { uploaded: bytes, ..Counted::default() },
            ActivityKind::Download => Counted { downloaded: bytes, ..Counted::default() },
            ActivityKind::Start
            | ActivityKind::Stop
            | ActivityKind::Pause
            | ActivityKind::Resume
            | ActivityKind::Destroy => Counted::default(),
        }
    }
}
