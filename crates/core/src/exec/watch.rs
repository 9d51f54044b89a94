//! Noting how commands end that nobody waits for, across restarts of the server too.
//!
//! A note says when the command ended by the sandbox's own figures, which are the same whoever asks and
//! whenever. So after a restart it can be told which ends were noted before.

use super::{claim::Claim, request::OWN_SECRETS, start::started};
use crate::{Core, egress::Secrets, kernels::LeftCell, operation::OutputAudit};
use atoll_audit::Redactor;
use atoll_provider::{Container, ExecEvent, ExecReport, State};
use atoll_store::{ACTIVITIES_KEPT, Activity, ActivityKind, OperationId, SandboxId, SandboxRecord};
use atoll_types::{CellId, Error, ErrorCode, ExecId, Operation, Result, time::now_ms};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Before a connection that broke is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Sandboxes that are looked at together after a start, and how long one of them may take: what is inside
/// may be anything.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);
/// An offset that no output reaches: only the end is of interest.
const NO_OUTPUT: u64 = u64::MAX;
/// How far a clock is set back that is corrected and not changed.
const CORRECTION_MS: i64 = 1000;
/// Operations that are read together.
const OPEN_PAGE: u32 = 500;

/// An operation that a former server left open.
struct Left {
    operation: OperationId,
    /// The command as it may be kept.
    shown: String,
    /// Whether it was given secrets that nobody knows any more.
    own_secrets: bool,
    /// It is a cell, whose id stands in the command's place.
    cell: bool,
}

type OpenExecs = HashMap<(SandboxId, ExecId), Left>;

/// What is noted of an end, but for the command's text, which is not always known in full.
type End = (i64, Option<u64>, Option<i32>);

/// An end by the sandbox's own figures, which are the same whenever they are asked for.
fn figures(report: &ExecReport) -> End {
    let millis = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
    let at = i64::try_from(report.started_unix_ms.saturating_add(millis)).unwrap_or(i64::MAX);
    (at, Some(millis), Some(report.shell_code().get()))
}

/// An end as it is noted: what the sandbox says is not to lie in the future.
fn end_of(report: &ExecReport) -> End {
    let (at, duration, code) = figures(report);
    (at.min(now_ms()), duration, code)
}

/// Which of these ends were noted before. One whose time lay in the future when it was noted, because the
/// clock was set back since the command began, has a time in its note that is a little earlier: it is known by
/// the rest, once all that can be told exactly are.
fn noted_before(ends: &[End], mut notes: Vec<End>) -> Vec<bool> {
    let mut take = |fits: &dyn Fn(&End) -> bool| {
        let found = notes.iter().position(fits);
        found.map(|at| notes.swap_remove(at)).is_some()
    };
    let mut before: Vec<bool> = ends.iter().map(|end| take(&|note| note == end)).collect();
    for (before, (at, duration, code)) in before.iter_mut().zip(ends) {
        let near = at.saturating_sub(CORRECTION_MS)..*at;
        *before = *before || take(&|note| near.contains(&note.0) && (note.1, note.2) == (*duration, *code));
    }
    before
}

fn activity(sandbox: SandboxId, detail: String, (at, duration_ms, exit_code): End) -> Activity {
    Activity { sandbox, kind: ActivityKind::Exec, at, detail, exit_code, duration_ms, bytes: None }
}

/// What is noted of a command that ended.
pub(super) fn activity_of(sandbox: SandboxId, detail: String, report: &ExecReport) -> Activity {
    activity(sandbox, detail, end_of(report))
}

impl Core {
    pub(super) async fn note_exec(&self, sandbox: SandboxId, shown: String, report: &ExecReport) {
        self.note_end(sandbox, shown, end_of(report)).await;
    }

    async fn note_end(&self, sandbox: SandboxId, detail: String, end: End) {
        if let Err(error) = self.store.record_activity(activity(sandbox, detail, end)).await {
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
        mut trail: Option<OutputAudit>,
    ) {
        let Some(claim) = self.claims.take(sandbox, report.id) else { return };
        let (core, container, began) = (self.clone(), Arc::clone(container), report.started_unix_ms);
        let id = report.id;
        // A command is work until its end; a terminal only while somebody looks at it.
        let activity_guard = report.terminal.is_none().then(|| self.activity_tracker.begin(sandbox));
        tokio::spawn(async move {
            let report = wait(&container, id, &mut trail).await;
            let end = match &report {
                Some(report) => end_of(report),
                // It went with its sandbox, and how is not known.
                None => {
                    let lasted = u64::try_from(now_ms()).unwrap_or(0).saturating_sub(began);
                    (now_ms(), Some(lasted), None)
                }
            };
            match trail {
                None => core.note_end(sandbox, shown, end).await,
                Some(trail) => {
                    let note = Some(activity(sandbox, shown, end));
                    if let Err(error) = trail.end(report.as_ref(), None, note).await {
                        tracing::error!(%error, "the end of a command waits to be written");
                    }
                }
            }
            drop((claim, activity_guard));
        });
    }

    /// Watches over what a former server left running, and notes what ended while there was none. Of those
    /// that are paused nothing can be known before they go on.
    pub(crate) fn watch_again(&self, sandboxes: Vec<SandboxId>, paused: Vec<SandboxId>) {
        let core = self.clone();
        tokio::spawn(async move {
            let open = match core.open_execs().await {
                Ok(open) => Mutex::new(open),
                Err(error) => return tracing::error!(%error, "operations of before cannot be read"),
            };
            let alive = Mutex::new(Vec::new());
            for sandbox in paused {
                core.watch_when_awake(sandbox, &open, &alive);
            }
            let each = |sandbox| {
                let (core, open, alive) = (&core, &open, &alive);
                async move {
                    let looking = core.watch_again_in(sandbox, open, alive);
                    let looked = tokio::time::timeout(PATIENCE, looking).await;
                    let late = || Error::new(ErrorCode::Timeout, "it does not answer");
                    if let Err(error) = looked.unwrap_or_else(|_| Err(late())) {
                        tracing::warn!(%sandbox, %error, "cannot watch over a sandbox's commands");
                    }
                }
            };
            futures_util::stream::iter(sandboxes).for_each_concurrent(AT_ONCE, each).await;
            let alive = alive.into_inner().unwrap_or_else(PoisonError::into_inner);
            match core.ledger.sweep(&alive).await {
                Ok(0) => {}
                Ok(lost) => tracing::warn!(lost, "operations had not ended when the last server did"),
                Err(error) => tracing::error!(%error, "operations of before cannot be ended"),
            }
        });
    }

    /// Watches over a sandbox that is paused when it goes on; its operations stay open until then.
    fn watch_when_awake(&self, sandbox: SandboxId, open: &Mutex<OpenExecs>, alive: &Mutex<Vec<OperationId>>) {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let mine: OpenExecs = open.extract_if(|(of, _), _| *of == sandbox).collect();
        drop(open);
        let operations = mine.values().map(|left| left.operation);
        alive.lock().unwrap_or_else(PoisonError::into_inner).extend(operations);
        let core = self.clone();
        tokio::spawn(async move {
            let mine = Mutex::new(mine);
            let awake = loop {
                match core.registry.awake(sandbox).await {
                    // Whoever knows does not answer at the moment.
                    Err(error) if error.code == ErrorCode::Unavailable => tokio::time::sleep(PAUSE).await,
                    awake => break awake,
                }
            };
            let looked = match awake {
                Ok(_) => core.watch_again_in(sandbox, &mine, &Mutex::default()).await,
                // It was stopped or died as it stood.
                Err(error) => Err(error),
            };
            if let Err(error) = looked {
                tracing::debug!(%sandbox, %error, "a paused sandbox's commands are lost");
            }
            // What is left was not found in it.
            for left in mine.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
                let trail = OutputAudit::new(core.ledger.clone(), left.operation, Redactor::default(), None);
                if let Err(error) = trail.end(None, None, None).await {
                    tracing::error!(%error, "the end of a command waits to be written");
                }
            }
        });
    }

    /// The operations that a former server left open and whose command has an id.
    async fn open_execs(&self) -> Result<OpenExecs> {
        let (mut found, mut after) = (HashMap::new(), 0);
        loop {
            let page = self.store.open_operations(after, OPEN_PAGE).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.seq;
            for open in page.iter().filter(|open| open.at < self.began) {
                let Some(operation) = self.store.audit_operation(open.id).await? else { continue };
                let (cell, name) = match Operation::from_name(&operation.begin.kind) {
                    Some(Operation::Exec | Operation::Terminal | Operation::DependenciesInstall) => {
                        (false, "exec_id")
                    }
                    Some(Operation::KernelExecute) => (true, "cell_id"),
                    _ => continue,
                };
                let exec = operation.begin.extra.get(name).and_then(|id| id.parse().ok());
                if let (Some(sandbox), Some(exec)) = (operation.begin.sandbox, exec) {
                    let own_secrets = operation.begin.extra.contains_key(OWN_SECRETS);
                    let shown = operation.begin.detail.text;
                    let left = Left { operation: open.id, shown, own_secrets, cell };
                    found.insert((sandbox, exec), left);
                }
            }
        }
    }

    /// Goes on with the trail of a command that a former server began, if it is open; and how the command is
    /// to be noted.
    fn trail_again(
        &self,
        record: &SandboxRecord,
        redactor: &Redactor,
        report: &ExecReport,
        open: &Mutex<OpenExecs>,
    ) -> (Option<OutputAudit>, String) {
        let left = open.lock().unwrap_or_else(PoisonError::into_inner).remove(&(record.id, report.id));
        match left {
            None => (None, redactor.text(&report.command)),
            Some(Left { operation, shown, own_secrets, cell: _ }) => {
                let secrets = if own_secrets { Secrets::Forgotten } else { Secrets::None };
                let exec = self.running.enter(record.id, report.id, operation, secrets);
                let trail = OutputAudit::new(self.ledger.clone(), operation, redactor.clone(), Some(record))
                    .with(Some(exec));
                (Some(if own_secrets { trail.mute() } else { trail }), shown)
            }
        }
    }

    /// The ends of commands that are noted of a sandbox.
    async fn notes(&self, sandbox: SandboxId) -> Result<Vec<End>> {
        let most = u32::try_from(ACTIVITIES_KEPT).unwrap_or(u32::MAX);
        let all = self.store.activities(sandbox, most, None).await?.into_iter().map(|entry| entry.activity);
        let execs = all.filter(|activity| activity.kind == ActivityKind::Exec);
        Ok(execs.map(|Activity { at, duration_ms, exit_code, .. }| (at, duration_ms, exit_code)).collect())
    }

    async fn watch_again_in(
        &self,
        sandbox: SandboxId,
        open: &Mutex<OpenExecs>,
        alive: &Mutex<Vec<OperationId>>,
    ) -> Result<()> {
        let keep = |trail: &OutputAudit| {
            alive.lock().unwrap_or_else(PoisonError::into_inner).push(trail.operation());
        };
        let Some(record) = self.store.sandbox(sandbox).await? else { return Ok(()) };
        let redactor = Redactor::new(self.environment_of(&record)?.secret_values());
        let container = self.registry.awake(sandbox).await?;
        let cells = left_cells(open, sandbox);
        match self.tend_again(&record, &container, &redactor, cells).await {
            Ok(found) => {
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                open.retain(|_, left| !found.contains(&left.operation));
                alive.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
            }
            Err(error) => tracing::warn!(%sandbox, %error, "cannot watch over a sandbox's cells"),
        }
        let before = container.guest().list_execs().await?.into_iter().filter(|report| {
            let earlier = i64::try_from(report.started_unix_ms).is_ok_and(|at| at < self.began);
            earlier && !report.tool && started(report).is_ok()
        });
        let (ended, running): (Vec<_>, Vec<_>) = before.partition(|report| report.ended);
        for report in running {
            let (trail, shown) = self.trail_again(&record, &redactor, &report, open);
            trail.iter().for_each(keep);
            self.watch_exec(sandbox, &container, &report, shown, trail);
        }
        let claimed: Vec<(ExecReport, Claim)> = ended
            .into_iter()
            .filter_map(|report| self.claims.take(sandbox, report.id).map(|claim| (report, claim)))
            .collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let ends: Vec<End> = claimed.iter().map(|(report, _)| figures(report)).collect();
        let before = noted_before(&ends, self.notes(sandbox).await?);
        for ((report, claim), before) in claimed.into_iter().zip(before) {
            let (mut trail, shown) = self.trail_again(&record, &redactor, &report, open);
            let note = (!before).then(|| activity_of(sandbox, shown, &report));
            if trail.is_some() {
                trail.iter().for_each(keep);
                // What it printed is still there, or is told to be missing.
                let _ = wait_once(&container, report.id, &mut trail).await;
            }
            match (trail, note) {
                (Some(trail), note) => trail.end(Some(&report), None, note).await?,
                (None, Some(note)) => self.store.record_activity(note).await?,
                (None, None) => {}
            }
            drop(claim);
        }
        Ok(())
    }
}

/// The cells of a sandbox that a former server left open. What is not found of them is lost.
fn left_cells(open: &Mutex<OpenExecs>, sandbox: SandboxId) -> Vec<LeftCell> {
    let open = open.lock().unwrap_or_else(PoisonError::into_inner);
    let mine = open.iter().filter(|((of, _), left)| *of == sandbox && left.cell);
    let cell = |((_, id), left): (&(SandboxId, ExecId), &Left)| LeftCell {
        cell: CellId::from_uuid(id.uuid()),
        operation: left.operation,
        shown: left.shown.clone(),
    };
    mine.map(cell).collect()
}

/// Waits for a command's end; none when its container ended first, or it was forgotten.
async fn wait(
    container: &Arc<dyn Container>,
    id: ExecId,
    trail: &mut Option<OutputAudit>,
) -> Option<ExecReport> {
    loop {
        match wait_once(container, id, trail).await {
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

async fn wait_once(
    container: &Arc<dyn Container>,
    id: ExecId,
    trail: &mut Option<OutputAudit>,
) -> Result<Option<ExecReport>> {
    let from = trail.as_ref().map_or(NO_OUTPUT, |trail| trail.next);
    let mut events = container.guest().attach(id, from, true).await?;
    while let Some(event) = events.next().await? {
        match (event, trail.as_mut()) {
            (ExecEvent::Ended(report), _) => return Ok(Some(report)),
            (ExecEvent::Output { stream, offset, data }, Some(trail)) => trail.take(stream, offset, &data),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_whose_time_lay_in_the_future_is_known_again() {
        let end = |at, duration, code| (at, Some(duration), Some(code));
        // Noted when the clock said 990, though the command says 1000.
        let ends = [end(1000, 5, 9)];
        assert_eq!(noted_before(&ends, vec![end(990, 5, 9)]), [true]);
        assert_eq!(noted_before(&ends, vec![end(1000, 5, 9)]), [true]);
        for other in [end(1001, 5, 9), end(990, 6, 9), end(990, 5, 0), end(-1, 5, 9)] {
            assert_eq!(noted_before(&ends, vec![other]), [false], "{other:?}");
        }
        // What is known exactly is not taken for another, whatever the order, and one note is one end.
        let ends = [end(1000, 5, 0), end(900, 5, 0), end(1100, 5, 0)];
        assert_eq!(noted_before(&ends, vec![end(900, 5, 0)]), [false, true, false]);
        assert_eq!(noted_before(&ends, vec![end(900, 5, 0), end(999, 5, 0)]), [true, true, false]);
    }
}
