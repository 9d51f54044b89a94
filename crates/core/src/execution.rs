//! What the task of a running command ([`crate::exec`]) or cell ([`crate::kernels`]) owns until its end.
//!
//! Invariants:
//! - An [`Execution`] has one owner, its task, and [`Execution::end`] consumes it: an end is written once.
//! - The audit row, the activity, the event and the changed files of an end are written by that one call, and
//!   by nothing else. Callers learn of the end afterwards, through [`EndSignal`].
//! - The sandbox counts as active until the end is written: the container that the execution holds is an
//!   [`crate::lifecycle::ActiveContainer`], but for a terminal, which counts only while a client is connected
//!   to it.
//! - A server that ends drops its executions without an end. Their operations stay open, and the next
//!   server's tasks end them.

use crate::{changes::FileChanges, output_audit::OutputAudit};
use atoll_kernels::CellReport;
use atoll_provider::{Changed, Container, ExecReport, OutputStream};
use atoll_store::{Activity, ActivityKind, SandboxId, Store};
use atoll_types::{CellId, Error, Result, time::now_ms};
use futures_util::FutureExt;
use std::{panic::AssertUnwindSafe, sync::Arc};
use tokio::sync::watch;

/// An offset that no output reaches: only the end is of interest.
const NO_OUTPUT: u64 = u64::MAX;

/// When a command ended, how long it ran in milliseconds, and its exit code: what its activity says of it,
/// but for the command's text.
pub(crate) type EndFigures = (i64, Option<u64>, Option<i32>);

/// How a command or a cell ended.
pub(crate) enum Ended<'a> {
    Command(&'a ExecReport),
    /// Its sandbox ended first, or has forgotten it: how it went is not known.
    LostCommand {
        error: &'a Error,
        started_unix_ms: u64,
    },
    Cell(CellId, &'a CellReport),
    LostCell(&'a Error),
}

/// A command's end by the sandbox's own figures, which are the same whenever they are asked for.
pub(crate) fn reported_figures(report: &ExecReport) -> EndFigures {
    let millis = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
    let at = i64::try_from(report.started_unix_ms.saturating_add(millis)).unwrap_or(i64::MAX);
    (at, Some(millis), Some(report.shell_code().get()))
}

impl Ended<'_> {
    /// None of a cell that is lost: it has no activity.
    fn figures(&self) -> Option<EndFigures> {
        match self {
            // What the sandbox says is not to lie in the future.
            Self::Command(report) => {
                let (at, duration, code) = reported_figures(report);
                Some((at.min(now_ms()), duration, code))
            }
            Self::LostCommand { started_unix_ms, .. } => {
                let lasted = u64::try_from(now_ms()).unwrap_or(0).saturating_sub(*started_unix_ms);
                Some((now_ms(), Some(lasted), None))
            }
            Self::Cell(_, report) => {
                Some((now_ms(), Some(report.duration_us / 1000), Some(i32::from(!report.success))))
            }
            Self::LostCell(_) => None,
        }
    }
}

/// What an execution's end is written with, beside its audit.
#[derive(Clone)]
pub(crate) struct EndWriter {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) changes: Arc<FileChanges>,
}

/// A command or a cell that runs.
pub(crate) struct Execution {
    end_writer: EndWriter,
    sandbox: SandboxId,
    container: Arc<dyn Container>,
    /// None where its operation has an end already, or never had one.
    audit: Option<OutputAudit>,
    /// The command or code for its activity; none where that is written already.
    shown: Option<String>,
    /// Whether its end takes the files that changed; otherwise the next command's does.
    takes_changes: bool,
}

impl Execution {
    pub(crate) fn new(
        end_writer: &EndWriter,
        sandbox: SandboxId,
        container: Arc<dyn Container>,
        audit: Option<OutputAudit>,
        shown: Option<String>,
        takes_changes: bool,
    ) -> Self {
        Self { end_writer: end_writer.clone(), sandbox, container, audit, shown, takes_changes }
    }

    pub(crate) fn container(&self) -> &dyn Container {
        &*self.container
    }

    pub(crate) fn shared_container(&self) -> &Arc<dyn Container> {
        &self.container
    }

    /// The offset from which its output is still to be read.
    pub(crate) fn next_offset(&self) -> u64 {
        self.audit.as_ref().map_or(NO_OUTPUT, OutputAudit::next)
    }

    /// Takes what was printed, for the audit.
    pub(crate) fn take_output(&mut self, stream: OutputStream, offset: u64, data: &[u8]) {
        if let Some(audit) = &mut self.audit {
            audit.take(stream, offset, data);
        }
    }

    /// An error without secret values.
    pub(crate) fn redacted(&self, error: Error) -> Error {
        match &self.audit {
            Some(audit) => audit.redacted(error),
            None => error,
        }
    }

    /// Writes its end, and only then stops counting as activity. Returns which files changed; none where that
    /// is not known or the next command reports them. `cancelled`: it was ended because its caller went away.
    pub(crate) async fn end(self, ended: &Ended<'_>, cancelled: bool) -> Option<Changed> {
        let Self { end_writer, sandbox, container, audit, shown, takes_changes } = self;
        let known = matches!(ended, Ended::Command(_) | Ended::Cell(..));
        let report =
            if takes_changes && known { end_writer.changes.take(sandbox, &container).await } else { None };
        let (sequence, changed) = report.map(|report| (report.sequence, report.changed)).unzip();
        let activity = shown.zip(ended.figures()).map(|(detail, (at, duration_ms, exit_code))| Activity {
            sandbox,
            kind: ActivityKind::Exec,
            at,
            detail,
            exit_code,
            duration_ms,
            bytes: None,
        });
        match (audit, activity) {
            (Some(audit), activity) => audit.end(ended, cancelled, changed.as_ref(), activity).await,
            (None, Some(activity)) => {
                if let Err(error) = end_writer.store.record_activity(activity).await {
                    tracing::warn!(%sandbox, %error, "the end of a command cannot be written");
                }
            }
            (None, None) => {}
        }
        if let Some(sequence) = sequence {
            end_writer.changes.recorded(sandbox, &container, sequence);
        }
        drop(container);
        changed
    }
}

/// The result of work, or an error where it panicked: an execution that is not ended leaves its operation open
/// and its sandbox active.
pub(crate) async fn unless_panicked<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.map_err(|_| Error::internal(format!("the server failed while {what} ran; what it did is not known")))
}

/// How an execution ended, for everything that waits for it: set once, by its task, after the end is written.
pub(crate) struct EndSignal<T>(watch::Sender<Option<Result<T>>>);

impl<T> Default for EndSignal<T> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<T: Clone> EndSignal<T> {
    /// What is set first holds.
    pub(crate) fn set(&self, end: Result<T>) {
        self.0.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(end);
            }
            first
        });
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) async fn wait(&self) -> Result<T> {
        let mut known = self.0.subscribe();
        // The sender is ours, so it is not gone while this waits.
        let known = known.wait_for(Option::is_some).await;
        let gone = || Error::internal("the task of a command or a cell ended without its end");
        known.ok().and_then(|known| known.clone()).unwrap_or_else(|| Err(gone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_is_an_error_and_no_end_of_its_task() {
        assert_eq!(unless_panicked("a command", async { 1 }).await, Ok(1));
        let panics = async {
            tokio::task::yield_now().await;
            panic!("a test");
        };
        let error = unless_panicked::<()>("a cell", panics).await.unwrap_err();
        assert_eq!(error.code, atoll_types::ErrorCode::Internal);
        assert!(error.message.contains("a cell"), "{error}");
    }
}
