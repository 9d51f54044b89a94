//! Operations on the wire.

use crate::egress::EgressItem;
use atoll_core::{KeptOutput, KeptOutputs};
use atoll_types::{
    SandboxId,
    audit::{
        Begin, Detail, End, FileChanged, OperationEnd, OperationRow, Outcome, Output, Problem, Summary, Tally,
    },
    time::{day, rfc3339},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// Some operations.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    pub(super) entries: Vec<AuditEntry>,
    /// Where the next page begins: its `before`. None after the last page.
    pub(super) next_before: Option<u64>,
}

/// An operation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    operation_id: Uuid,
    /// The row of its beginning.
    seq: u64,
    at: String,
    /// Where it came in, such as rest.
    front: String,
    key_id: Option<Uuid>,
    owner: String,
    address: Option<String>,
    kind: String,
    sandbox_id: Option<Uuid>,
    /// The command, the code or the path: its first 4 KiB.
    detail: String,
    /// How long the whole was, in bytes.
    detail_length: u64,
    working_directory: Option<String>,
    /// The names of the variables that were given, never their values.
    variables: Vec<String>,
    extra: BTreeMap<String, String>,
    /// None while it goes on.
    ended: Option<AuditEnd>,
    /// What it asked of the network, the latest first, at most 500; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<Vec<EgressItem>>,
}

/// How an operation ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEnd {
    at: String,
    /// ok, failed, refused or lost.
    outcome: &'static str,
    error: Option<AuditError>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    duration_ms: f64,
    cpu_ms: Option<f64>,
    peak_memory_bytes: Option<u64>,
    stdout: Option<AuditStream>,
    stderr: Option<AuditStream>,
    /// The first hundred files that it changed.
    files: Vec<AuditFile>,
    files_count: u64,
    /// There may be more than were counted.
    files_truncated: bool,
    /// How much was moved in or out.
    bytes: Option<u64>,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditError {
    code: String,
    message: String,
}

/// What is known of an output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditStream {
    length: u64,
    /// Of the whole; none where the whole was not seen.
    sha256: Option<String>,
    /// How many bytes of it can be read.
    kept: u64,
}

/// A file that changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditFile {
    path: String,
    /// created, modified or deleted.
    action: &'static str,
    /// Afterwards; none where it was deleted.
    size: Option<u64>,
}

// Beyond centuries.
fn millis(us: u64) -> f64 {
    us as f64 / 1000.0
}

impl From<Output> for AuditStream {
    fn from(output: Output) -> Self {
        let Output { length, sha256, head, tail, packed: _, bytes: _ } = output;
        let kept = u64::from(head) + u64::from(tail);
        Self { length, sha256: sha256.map(|hash| hash.to_string()), kept }
    }
}

impl From<OperationEnd> for AuditEnd {
    fn from(end: OperationEnd) -> Self {
        let OperationEnd { seq: _, at, facts } = end;
        let End {
            outcome,
            error,
            exit_code,
            signal,
            duration_us,
            cpu_us,
            peak_memory,
            stdout,
            stderr,
            files,
            files_count,
            files_truncated,
            bytes,
        } = facts;
        let file = |FileChanged { path, action, size }| AuditFile { path, action: action.as_str(), size };
        Self {
            at: rfc3339(at),
            outcome: outcome.as_str(),
            error: error.map(|Problem { code, message }| AuditError { code, message }),
            exit_code,
            signal,
            duration_ms: millis(duration_us),
            cpu_ms: cpu_us.map(millis),
            peak_memory_bytes: peak_memory,
            stdout: stdout.map(AuditStream::from),
            stderr: stderr.map(AuditStream::from),
            files: files.into_iter().map(file).collect(),
            files_count,
            files_truncated,
            bytes,
        }
    }
}

impl AuditEntry {
    /// The same with what it asked of the network.
    pub(super) fn with(mut self, egress: Vec<EgressItem>) -> Self {
        self.egress = Some(egress);
        self
    }
}

impl From<OperationRow> for AuditEntry {
    fn from(operation: OperationRow) -> Self {
        let OperationRow { seq, id, at, begin, end } = operation;
        let Begin { front, key, owner, address, kind, sandbox, detail, directory, variables, extra } = begin;
        let Detail { text, length } = detail;
        Self {
            operation_id: id.uuid(),
            seq,
            at: rfc3339(at),
            front,
            key_id: key.map(|key| key.uuid()),
            owner,
            address,
            kind,
            sandbox_id: sandbox.map(|sandbox| sandbox.uuid()),
            detail: text,
            detail_length: length,
            working_directory: directory,
            variables,
            extra,
            ended: end.map(AuditEnd::from),
            egress: None,
        }
    }
}

/// What is kept of both outputs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditOutputs {
    stdout: Option<AuditKept>,
    stderr: Option<AuditKept>,
}

/// What is kept of an output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditKept {
    /// Of `head` and `tail`: utf8, or base64 where one of them is no text.
    encoding: &'static str,
    /// The beginning; all of it unless `truncated`.
    head: String,
    /// The end, where something between is missing.
    tail: String,
    /// Of the whole.
    length: u64,
    /// Of the whole; none where the whole was not seen.
    sha256: Option<String>,
    truncated: bool,
}

impl From<KeptOutput> for AuditKept {
    fn from(output: KeptOutput) -> Self {
        let KeptOutput { head, tail, length, sha256, truncated } = output;
        let (encoding, head, tail) = match (String::from_utf8(head), String::from_utf8(tail)) {
            (Ok(head), Ok(tail)) => ("utf8", head, tail),
            (head, tail) => {
                let bytes = |text: Result<String, std::string::FromUtf8Error>| match text {
                    Ok(text) => STANDARD.encode(text),
                    Err(error) => STANDARD.encode(error.as_bytes()),
                };
                ("base64", bytes(head), bytes(tail))
            }
        };
        Self { encoding, head, tail, length, sha256: sha256.map(|hash| hash.to_string()), truncated }
    }
}

impl From<KeptOutputs> for AuditOutputs {
    fn from(outputs: KeptOutputs) -> Self {
        let KeptOutputs { stdout, stderr } = outputs;
        Self { stdout: stdout.map(AuditKept::from), stderr: stderr.map(AuditKept::from) }
    }
}

/// How many, and how long.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditTally {
    count: u64,
    /// Those that did what was asked.
    ok: u64,
    /// Those that ended otherwise.
    failed: u64,
    /// How long those that ended took together.
    duration_ms: f64,
    /// How long one of them took.
    mean_ms: f64,
}

impl From<Tally> for AuditTally {
    fn from(tally: Tally) -> Self {
        let mean_ms = millis(tally.mean_us());
        let Tally { count, ok, failed, duration_us } = tally;
        Self { count, ok, failed, duration_ms: millis(duration_us), mean_ms }
    }
}

/// The operations of a day, in UTC.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditDay {
    day: String,
    #[serde(flatten)]
    tally: AuditTally,
}

/// The operations on a sandbox, or on none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditSandbox {
    sandbox_id: Option<Uuid>,
    #[serde(flatten)]
    tally: AuditTally,
}

/// The operations that ended so, or have not ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditOutcome {
    outcome: Option<&'static str>,
    #[serde(flatten)]
    tally: AuditTally,
}

/// What operations add up to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditSummary {
    total: AuditTally,
    /// The latest first.
    by_day: Vec<AuditDay>,
    /// The busiest first, at most 500.
    by_sandbox: Vec<AuditSandbox>,
    by_outcome: Vec<AuditOutcome>,
}

impl From<Summary> for AuditSummary {
    fn from(summary: Summary) -> Self {
        let Summary { total, days, sandboxes, outcomes } = summary;
        let of_day = |(number, tally): (i64, Tally)| AuditDay { day: day(number), tally: tally.into() };
        let of_sandbox = |(sandbox, tally): (Option<SandboxId>, Tally)| {
            let sandbox_id = sandbox.map(|sandbox| sandbox.uuid());
            AuditSandbox { sandbox_id, tally: tally.into() }
        };
        let of_outcome = |(outcome, tally): (Option<Outcome>, Tally)| {
            let outcome = outcome.map(Outcome::as_str);
            AuditOutcome { outcome, tally: tally.into() }
        };
        Self {
            total: total.into(),
            by_day: days.into_iter().map(of_day).collect(),
            by_sandbox: sandboxes.into_iter().map(of_sandbox).collect(),
            by_outcome: outcomes.into_iter().map(of_outcome).collect(),
        }
    }
}
