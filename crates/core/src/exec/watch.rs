//! Noting how commands end that nobody waits for, across restarts of the server too.
//!
//! A note says when the command ended by the sandbox's own figures, which are the same whoever asks and
//! whenever. So after a restart it can be told which ends were noted before.

use super::{claim::Claim, start::started};
use crate::{Core, now};
use atoll_provider::{Container, ExecEvent, ExecReport, State};
use atoll_store::{ACTIVITIES_KEPT, Activity, ActivityKind, SandboxId};
use atoll_types::{Error, ErrorCode, ExecId, Result};
use futures_util::StreamExt;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Before a connection that broke is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Sandboxes that are looked at together after a start, and how long one of them may take: what is inside
/// may be anything.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);
/// An offset that no output reaches: only the end is of interest.
const NO_OUTPUT: u64 = u64::MAX;

/// What is noted of an end, but for the command's text, which is not always known in full.
type End = (i64, Option<u64>, Option<i32>);

fn end_of(report: &ExecReport) -> End {
    let millis = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
    // The sandbox says when; what it says is not to lie in the future.
    let at = i64::try_from(report.started_unix_ms.saturating_add(millis)).unwrap_or(i64::MAX).min(now());
    (at, Some(millis), Some(report.shell_code()))
}

impl Core {
    pub(super) async fn note_exec(&self, sandbox: SandboxId, shown: String, report: &ExecReport) {
        self.note_end(sandbox, shown, end_of(report)).await;
    }

    async fn note_end(&self, sandbox: SandboxId, detail: String, (at, duration_ms, exit_code): End) {
        let kind = ActivityKind::Exec;
        let activity = Activity { sandbox, kind, at, detail, exit_code, duration_ms, bytes: None };
        if let Err(error) = self.store.record_activity(activity).await {
            tracing::warn!(%error, "cannot note a command");
        }
    }

    /// Notes the end of a command when it comes, unless somebody else will.
    pub(crate) fn watch_exec(
        &self,
        sandbox: SandboxId,
        container: &Arc<dyn Container>,
        report: &ExecReport,
        shown: String,
    ) {
        let Some(claim) = self.claims.take(sandbox, report.id) else { return };
        let (core, container, began) = (self.clone(), Arc::clone(container), report.started_unix_ms);
        let id = report.id;
        tokio::spawn(async move {
            let end = match wait(&container, id).await {
                Some(report) => end_of(&report),
                // It went with its sandbox, and how is not known.
                None => {
                    let lasted = u64::try_from(now()).unwrap_or(0).saturating_sub(began);
                    (now(), Some(lasted), None)
                }
            };
            core.note_end(sandbox, shown, end).await;
            drop(claim);
        });
    }

    /// Watches over what a former server left running, and notes what ended while there was none.
    pub(crate) fn watch_again(&self, sandboxes: Vec<SandboxId>) {
        let core = self.clone();
        tokio::spawn(async move {
            let each = |sandbox| {
                let core = &core;
                async move {
                    let looked = tokio::time::timeout(PATIENCE, core.watch_again_in(sandbox)).await;
                    let late = || Error::new(ErrorCode::Timeout, "it does not answer");
                    if let Err(error) = looked.unwrap_or_else(|_| Err(late())) {
                        tracing::warn!(%sandbox, %error, "cannot watch over a sandbox's commands");
                    }
                }
            };
            futures_util::stream::iter(sandboxes).for_each_concurrent(AT_ONCE, each).await;
        });
    }

    async fn watch_again_in(&self, sandbox: SandboxId) -> Result<()> {
        let container = self.desks.container(sandbox).await?;
        let before = container.guest().list_execs().await?.into_iter().filter(|report| {
            let earlier = i64::try_from(report.started_unix_ms).is_ok_and(|at| at < self.began);
            earlier && !report.tool && started(report).is_ok()
        });
        let (ended, running): (Vec<_>, Vec<_>) = before.partition(|report| report.ended);
        for report in running {
            self.watch_exec(sandbox, &container, &report, report.command.clone());
        }
        let claimed: Vec<(ExecReport, Claim)> = ended
            .into_iter()
            .filter_map(|report| self.claims.take(sandbox, report.id).map(|claim| (report, claim)))
            .collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let most = u32::try_from(ACTIVITIES_KEPT).unwrap_or(u32::MAX);
        let mut noted: HashMap<End, usize> = HashMap::new();
        for entry in self.store.activities(sandbox, most, None).await? {
            let Activity { kind, at, duration_ms, exit_code, .. } = entry.activity;
            if kind == ActivityKind::Exec {
                *noted.entry((at, duration_ms, exit_code)).or_default() += 1;
            }
        }
        for (report, claim) in claimed {
            match noted.get_mut(&end_of(&report)) {
                Some(count @ 1..) => *count -= 1,
                _ => self.note_exec(sandbox, report.command.clone(), &report).await,
            }
            drop(claim);
        }
        Ok(())
    }
}

/// Waits for a command's end; none when its container ended first, or it was forgotten.
async fn wait(container: &Arc<dyn Container>, id: ExecId) -> Option<ExecReport> {
    loop {
        match wait_once(container, id).await {
            Ok(Some(report)) => return Some(report),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::ContainerDied) => {
                return None;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot wait for a command"),
        }
        tokio::time::sleep(PAUSE).await;
        match container.state().await {
            Ok(State::Dead(_)) => return None,
            Err(error) if error.code == ErrorCode::NotFound => return None,
            _ => {}
        }
    }
}

async fn wait_once(container: &Arc<dyn Container>, id: ExecId) -> Result<Option<ExecReport>> {
    let mut events = container.guest().attach(id, NO_OUTPUT, true).await?;
    while let Some(event) = events.next().await? {
        if let ExecEvent::Ended(report) = event {
            return Ok(Some(report));
        }
    }
    Ok(None)
}
