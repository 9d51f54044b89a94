//! A command and what came of it.

use super::encode::json_pieces;
use crate::shapes::{Map, Variables};
use atoll_core::{ExecCommand, ExecOutcome};
use atoll_http::Rendered;
use atoll_types::files::{Changed, FileChange};
use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A command.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExecBody {
    /// A line for the shell.
    command: Option<String>,
    /// Or a program and its arguments.
    arguments: Option<Vec<String>>,
    /// 300 where nothing is said, and at most a day; in the background none, and at most a week.
    timeout_seconds: Option<f64>,
    /// Absolute, or relative to /workspace.
    working_directory: Option<String>,
    #[schema(value_type = Option<Variables>)]
    env_vars: Option<Map>,
    /// Variables too, whose values appear in no log, audit row, event or error.
    #[schema(write_only, value_type = Option<Variables>)]
    secrets: Option<Map>,
    /// What the command reads.
    stdin: Option<String>,
    /// Whether more input may follow: only with `stream` or `background`.
    stdin_open: Option<bool>,
    /// With `stream`: the command waits for the reader of its events instead of losing its oldest output. What
    /// was read is not kept.
    lossless: Option<bool>,
    /// A name, UID or UID:GID.
    user: Option<String>,
    /// Answer with events while it runs.
    stream: Option<bool>,
    /// Do not wait for it. The next command reports the files that it changes.
    background: Option<bool>,
}

impl ExecBody {
    pub(crate) fn stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(crate) fn background(&self) -> bool {
        self.background.unwrap_or(false)
    }
}

impl From<ExecBody> for ExecCommand {
    fn from(body: ExecBody) -> Self {
        let ExecBody {
            command,
            arguments,
            timeout_seconds,
            working_directory,
            env_vars,
            secrets,
            stdin,
            stdin_open,
            lossless,
            user,
            stream: _,
            background: _,
        } = body;
        Self {
            command,
            arguments,
            timeout_seconds,
            usual_seconds: None,
            working_directory,
            env_vars: env_vars.unwrap_or_default(),
            secrets: secrets.unwrap_or_default(),
            stdin: stdin.map(bytes::Bytes::from),
            stdin_open: stdin_open.unwrap_or(false),
            lossless: lossless.unwrap_or(false),
            user,
            id: None,
        }
    }
}

/// How a command went.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecResult {
    /// Its output can be asked for again under this id.
    exec_id: String,
    /// The command's own; 124 after a timeout, 127 or 126 when it could not start, 128 and the signal.
    exit_code: i32,
    stdout: String,
    stderr: String,
    duration_ms: u64,
    timed_out: bool,
    /// The memory limit ended it.
    oom_killed: bool,
    signal: Option<i32>,
    /// Whether some output is missing.
    truncated: bool,
    /// Files of /workspace that changed since the command before.
    files_changed: Vec<ChangedFile>,
    /// Whether there may be more of them.
    files_changed_truncated: bool,
}

/// A file that changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangedFile {
    /// Relative to /workspace after a command, absolute in a comparison of snapshots.
    path: String,
    /// created, modified or deleted.
    action: &'static str,
    /// Zero when it was deleted.
    size_bytes: u64,
}

impl From<FileChange> for ChangedFile {
    fn from(change: FileChange) -> Self {
        let FileChange { path, action, size_bytes } = change;
        Self { path, action: action.as_str(), size_bytes }
    }
}

/// The answer to a command. Outputs of some size are encoded while they are sent: as JSON they can be six times as
/// large, and a client may read slowly.
pub(crate) struct ExecAnswer(pub(crate) ExecOutcome);

/// The largest outputs of an answer that is encoded at once.
const AT_ONCE: usize = 64 << 10;

impl ExecAnswer {
    /// The answer with these texts as its outputs.
    fn result(&self, stdout: String, stderr: String) -> ExecResult {
        let ExecOutcome { report, truncated, changed, .. } = &self.0;
        let changed = changed.clone().unwrap_or(Changed { files: Vec::new(), truncated: true });
        ExecResult {
            exec_id: report.id.to_string(),
            exit_code: report.shell_code().get(),
            stdout,
            stderr,
            duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            timed_out: report.timed_out,
            oom_killed: report.oom_killed,
            signal: report.signal,
            truncated: *truncated,
            files_changed: changed.files.into_iter().map(ChangedFile::from).collect(),
            files_changed_truncated: changed.truncated,
        }
    }

    fn whole(&self) -> ExecResult {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.result(text(&self.0.stdout), text(&self.0.stderr))
    }

    /// The JSON before the outputs' texts, between them and after them.
    fn around(&self) -> (String, String) {
        const EMPTY: &str = r#""stdout":"","stderr":"""#;
        let json = serde_json::to_string(&self.result(String::new(), String::new())).unwrap_or_default();
        let (before, after) = json.split_once(EMPTY).unwrap_or_default();
        (format!("{before}\"stdout\":\""), format!("\"{after}"))
    }
}

impl From<ExecOutcome> for ExecAnswer {
    fn from(mut outcome: ExecOutcome) -> Self {
        if let Some(failure) = &outcome.report.failure {
            outcome.stderr.extend_from_slice(failure.message.as_bytes());
        }
        Self(outcome)
    }
}

impl Rendered for ExecAnswer {
    fn kept(&self) -> Option<Vec<u8>> {
        let ExecOutcome { stdout, stderr, redactor, .. } = &self.0;
        if stdout.len() + stderr.len() > atoll_types::REPLY_BYTES {
            return None;
        }
        let text = |bytes: &[u8]| redactor.text(&String::from_utf8_lossy(bytes));
        serde_json::to_vec(&self.result(text(stdout), text(stderr))).ok()
    }

    fn respond(self, status: StatusCode) -> Response {
        if self.0.stdout.len() + self.0.stderr.len() <= AT_ONCE {
            return (status, axum::Json(self.whole())).into_response();
        }
        let (before, after) = self.around();
        let ExecOutcome { stdout, stderr, held, .. } = self.0;
        let fixed = |text: String| stream::once(async move { text });
        let pieces = fixed(before)
            .chain(json_pieces(stdout))
            .chain(fixed("\",\"stderr\":\"".into()))
            .chain(json_pieces(stderr))
            .chain(fixed(after))
            .map(move |piece| {
                // Until the last piece is taken, or the connection has gone.
                let _ = &held;
                Ok::<_, std::convert::Infallible>(Bytes::from(piece))
            });
        let body = Body::from_stream(pieces);
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
