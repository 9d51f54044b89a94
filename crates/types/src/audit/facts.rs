//! The content of an audit row. Every field has a bound, applied by `kept`, so that a row has one too. A new
//! field is optional, and left out where it is not set: older rows keep their bytes.

use super::{Mac, Sha256};
use crate::{KeyId, Millis, SandboxId, files::FileAction, names, text::cut};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How much of a command, code or path is kept.
pub const DETAIL_KEPT: usize = 4096;
/// How many changed files are kept by name.
pub const FILES_KEPT: usize = 100;
/// How much is kept of a short text: a name, an address, a value of `extra`.
pub(super) const SHORT: usize = 256;
/// How much is kept of a path or a message.
pub(super) const LONG: usize = 1024;
/// A longer path may have been cut, at the start of a character, so it names no file for sure.
const LONGEST_WHOLE_PATH: usize = LONG - 4;
/// In the place of a path: files changed that the row does not name. No file has this path.
pub const UNNAMED_FILES: &str = "";
/// How many names of variables are kept.
const VARIABLES: usize = 256;
/// How many extras are kept.
const EXTRAS: usize = 16;

names!(
    /// The kind of a row.
    Part {
        /// An operation is about to be carried out.
        Begin = "begin",
        /// It was carried out, or was not.
        End = "end",
        /// A process in a sandbox made a network request, and this was decided.
        Egress = "egress",
        /// The ledger reports something about the audit trail itself.
        Note = "note",
        /// Rows before this one were removed on purpose.
        Checkpoint = "checkpoint",
    }
);

names!(
    /// How an operation ended.
    Outcome {
        /// It succeeded.
        Ok = "ok",
        /// It failed.
        Failed = "failed",
        /// It was refused.
        Refused = "refused",
        /// Unknown: the server died.
        Lost = "lost",
    }
);

names!(
    /// What a note is about.
    NoteKind {
        /// The audit trail begins.
        Genesis = "genesis",
        /// The last rows had not reached the disk when the machine went down.
        PowerCut = "power_cut",
        /// There were rows and no head.
        HeadMissing = "head_missing",
        /// The head was not signed by this server.
        HeadForged = "head_forged",
        /// The head knew rows that are gone.
        HeadAhead = "head_ahead",
        /// The head knew another row in its place.
        HeadDiffers = "head_differs",
        /// The head was older than it can be.
        HeadOld = "head_old",
    }
);

impl NoteKind {
    /// Whether it reports tampering, and must never be removed.
    #[must_use]
    pub fn is_evidence(self) -> bool {
        match self {
            NoteKind::Genesis | NoteKind::PowerCut => false,
            NoteKind::HeadMissing
            | NoteKind::HeadForged
            | NoteKind::HeadAhead
            | NoteKind::HeadDiffers
            | NoteKind::HeadOld => true,
        }
    }
}

/// A text of which the beginning is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Detail {
    /// The beginning.
    pub text: String,
    /// How long the whole was, in bytes.
    pub length: u64,
}

impl Detail {
    /// The text as it is stored.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: cut(text, DETAIL_KEPT).to_owned(), length: text.len() as u64 }
    }
}

/// The caller of an operation, and its request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Begin {
    /// The front, such as `rest`.
    pub front: String,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The key's owner.
    pub owner: String,
    /// The peer's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The kind, such as `exec`, `sandbox.create` or `file.write`.
    pub kind: String,
    /// The sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// The command, the code or the path.
    #[serde(default, skip_serializing_if = "nothing")]
    pub detail: Detail,
    /// The working directory in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The names of the variables that were given; never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Further details, in a few words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

fn nothing(detail: &Detail) -> bool {
    *detail == Detail::default()
}

pub(super) fn shorten(text: &mut String, most: usize) {
    text.truncate(cut(text, most).len());
}

impl Begin {
    /// The request as it is stored.
    #[must_use]
    pub fn kept(mut self) -> Self {
        let Self { front, key: _, owner, address, kind, sandbox: _, detail, directory, variables, extra } =
            &mut self;
        for text in [front, owner, kind].into_iter().chain(address) {
            shorten(text, SHORT);
        }
        shorten(&mut detail.text, DETAIL_KEPT);
        if let Some(directory) = directory {
            shorten(directory, DETAIL_KEPT);
        }
        variables.truncate(VARIABLES);
        variables.iter_mut().for_each(|name| shorten(name, SHORT));
        let all = std::mem::take(extra);
        *extra = all
            .into_iter()
            .take(EXTRAS)
            .map(|(name, value)| (cut(&name, SHORT).to_owned(), cut(&value, SHORT).to_owned()))
            .collect();
        self
    }
}

/// An error, as the caller got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// An `ErrorCode`, or another short word.
    pub code: String,
    /// One sentence.
    pub message: String,
}

impl From<&crate::Error> for Problem {
    fn from(error: &crate::Error) -> Self {
        Self { code: error.code.as_str().to_owned(), message: error.message.clone() }
    }
}

/// What a command wrote to one of its outputs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Output {
    /// How long the whole was.
    pub length: u64,
    /// The hash of the whole; absent where the whole was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// How many bytes of the beginning are kept.
    pub head: u32,
    /// How many bytes of the end are kept, after those.
    pub tail: u32,
    /// How many bytes they take, compressed.
    pub packed: u32,
    /// Both, compressed as one; empty where only the facts were read.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// A file that an operation changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanged {
    /// Where.
    pub path: String,
    /// How.
    pub action: FileAction,
    /// Its size afterwards; none where it was deleted, and in rows of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The command's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_us: u64,
    /// How much processor time it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// How much memory it used at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Output>,
    /// Its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Output>,
    /// The first files that it changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChanged>,
    /// How many it changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub files_count: u64,
    /// It may have changed files that are neither named nor counted: not all were seen, or a path held a secret.
    #[serde(default, skip_serializing_if = "is_false")]
    pub files_truncated: bool,
    /// Bytes transferred in or out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so.
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so.
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl End {
    /// An end with only its outcome.
    #[must_use]
    pub fn new(outcome: Outcome, duration_us: u64) -> Self {
        Self {
            outcome,
            error: None,
            exit_code: None,
            signal: None,
            duration_us,
            cpu_us: None,
            peak_memory: None,
            stdout: None,
            stderr: None,
            files: Vec::new(),
            files_count: 0,
            files_truncated: false,
            bytes: None,
        }
    }

    /// The same end, with its error.
    #[must_use]
    pub fn because(mut self, error: impl Into<Problem>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// The end as it is stored.
    #[must_use]
    pub fn kept(mut self) -> Self {
        if let Some(Problem { code, message }) = &mut self.error {
            shorten(code, SHORT);
            shorten(message, LONG);
        }
        self.files_count = self.files_count.max(self.files.len() as u64);
        self.files.truncate(FILES_KEPT);
        for FileChanged { path, action: _, size: _ } in &mut self.files {
            shorten(path, LONG);
        }
        self
    }

    /// The paths that this end is found by in the history of a file. [`UNNAMED_FILES`] is among them where
    /// files changed that the row does not name: too many, not all seen, or with a path that was cut.
    #[must_use]
    pub fn changed_paths(&self) -> BTreeSet<&str> {
        let named = |file: &FileChanged| file.path.len() <= LONGEST_WHOLE_PATH;
        let mut paths: BTreeSet<&str> =
            self.files.iter().filter(|file| named(file)).map(|file| file.path.as_str()).collect();
        let all_named = self.files.iter().all(named) && self.files_count <= self.files.len() as u64;
        if self.files_truncated || !all_named {
            paths.insert(UNNAMED_FILES);
        }
        paths
    }
}

/// A note of the ledger about the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// One sentence.
    pub text: String,
    /// Where the head said that the audit trail ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<(u64, Mac)>,
    /// Where it did end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<(u64, Mac)>,
}

/// A note that must outlive its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The row that it was.
    pub seq: u64,
    /// When.
    pub at: Millis,
    /// What it was about.
    pub kind: NoteKind,
    /// What it said.
    pub text: String,
}

/// Rows that were removed on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last of them.
    pub removed_to: u64,
    /// Its MAC: the first row that is left continues the chain from there.
    pub mac: Mac,
    /// The cutoff: rows older than this were to be removed.
    pub before: Millis,
    /// Notes that must not be removed with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}
