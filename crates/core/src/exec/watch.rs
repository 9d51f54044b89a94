//! After a restart of the server: commands that a former server left open get a task again, which writes
//! their ends, also of those that ended while there was no server.
//!
//! A command's activity says when it ended by the sandbox's own figures, which are the same whenever they are
//! asked for. So a server that starts can see which ends were written before.

use super::{
    ExecMode,
    request::{MODE, OWN_SECRETS},
    start::started,
    task::ExecEntry,
};
use crate::{
    Execs, Kernels,
    egress::Secrets,
    execution::{EndFigures, Ended, Execution, reported_figures},
    kernels::LeftCell,
    lifecycle::ActiveContainer,
    output_audit::OutputAudit,
    start_check::check_exec,
};
use atoll_audit::Redactor;
use atoll_provider::{Container, ExecReport};
use atoll_store::{ACTIVITIES_KEPT, Activity, ActivityKind, OperationId, SandboxId, SandboxRecord};
use atoll_types::{CellId, Error, ErrorCode, ExecId, Operation, Result};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Before a sandbox that does not answer is looked at again: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Sandboxes that are looked at together after a start, and how long one of them may take: what is inside
/// may be anything.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);
/// How far a clock is set back that is corrected and not changed.
const CORRECTION_MS: i64 = 1000;
/// Operations that are read together.
const OPEN_PAGE: u32 = 500;

/// An operation that a former server left open.
struct Left {
    operation: OperationId,
    /// The command as it may be kept.
    shown: String,
    /// Whether it was given secrets of its own, which the restart lost.
    own_secrets: bool,
    /// Whether its end takes the files that changed.
    takes_changes: bool,
    /// Whether it keeps the sandbox from being idle.
    is_work: bool,
    /// It is a cell, whose id stands in the command's place.
    cell: bool,
}

type OpenExecs = HashMap<(SandboxId, ExecId), Left>;

/// Which of these ends were noted before. One whose time lay in the future when it was noted, because the
/// clock was set back since the command began, has a time in its note that is a little earlier: it is matched
/// by its duration and exit code, after all exact matches.
fn noted_before(ends: &[EndFigures], mut notes: Vec<EndFigures>) -> Vec<bool> {
    let mut take = |fits: &dyn Fn(&EndFigures) -> bool| {
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

/// Whether a sandbox that cannot be looked at may be looked at later.
fn may_pass(error: &Error) -> bool {
    matches!(error.code, ErrorCode::Unavailable | ErrorCode::Timeout)
}

impl Execs {
    /// Spawns tasks for commands that a former server left open, and writes the ends of those that ended
    /// while no server ran. The commands of a paused sandbox wait until it is unpaused.
    pub(crate) fn watch_again(&self, kernels: &Kernels, sandboxes: Vec<SandboxId>, paused: Vec<SandboxId>) {
        let (execs, kernels) = (self.clone(), kernels.clone());
        tokio::spawn(async move {
            let open = match execs.open_execs().await {
                Ok(open) => Mutex::new(open),
                Err(error) => return tracing::error!(%error, "operations of a former server cannot be read"),
            };
            let alive = Mutex::new(Vec::new());
            for sandbox in paused {
                execs.watch_when_awake(&kernels, sandbox, &open, &alive);
            }
            let each = |sandbox| {
                let (execs, kernels, open, alive) = (&execs, &kernels, &open, &alive);
                async move {
                    match execs.watch_patiently(kernels, sandbox, open, alive).await {
                        Ok(()) => {}
                        // Its commands may live, so they do not end as lost: they are looked for until it answers.
                        Err(error) if may_pass(&error) => {
                            tracing::warn!(%sandbox, %error, "a sandbox's commands are not watched over yet");
                            execs.watch_when_awake(kernels, sandbox, open, alive);
                        }
                        Err(error) => {
                            tracing::warn!(%sandbox, %error, "cannot watch over a sandbox's commands");
                        }
                    }
                }
            };
            futures_util::stream::iter(sandboxes).for_each_concurrent(AT_ONCE, each).await;
            let alive = alive.into_inner().unwrap_or_else(PoisonError::into_inner);
            match execs.ledger.sweep(&alive).await {
                Ok(0) => {}
                Ok(lost) => tracing::warn!(lost, "operations had not ended when the last server did"),
                Err(error) => tracing::error!(%error, "operations of a former server cannot be ended"),
            }
        });
    }

    /// Looks once, as long as one sandbox may take.
    async fn watch_patiently(
        &self,
        kernels: &Kernels,
        sandbox: SandboxId,
        open: &Mutex<OpenExecs>,
        alive: &Mutex<Vec<OperationId>>,
    ) -> Result<()> {
        let looked = tokio::time::timeout(PATIENCE, self.watch_again_in(kernels, sandbox, open, alive)).await;
        looked.unwrap_or_else(|_| Err(Error::new(ErrorCode::Timeout, "it does not answer")))
    }

    /// Does the same for a sandbox that is paused, or does not answer, once it is unpaused and answers; its
    /// operations stay open until then.
    fn watch_when_awake(
        &self,
        kernels: &Kernels,
        sandbox: SandboxId,
        open: &Mutex<OpenExecs>,
        alive: &Mutex<Vec<OperationId>>,
    ) {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let mine: OpenExecs = open.extract_if(|(of, _), _| *of == sandbox).collect();
        drop(open);
        let operations = mine.values().map(|left| left.operation);
        alive.lock().unwrap_or_else(PoisonError::into_inner).extend(operations);
        let (execs, kernels) = (self.clone(), kernels.clone());
        tokio::spawn(async move {
            let (mine, mut pause) = (Mutex::new(mine), PAUSE);
            loop {
                let looked = match execs.registry.awake(sandbox).await {
                    Ok(_) => execs.watch_patiently(&kernels, sandbox, &mine, &Mutex::default()).await,
                    // The sandbox was stopped or died meanwhile, or its launcher does not answer.
                    Err(error) => Err(error),
                };
                match looked {
                    Ok(()) => break,
                    Err(error) if may_pass(&error) => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Err(error) => {
                        tracing::debug!(%sandbox, %error, "the commands of a sandbox are lost");
                        break;
                    }
                }
            }
            // These commands were not found in the sandbox.
            let error = Error::new(ErrorCode::NotFound, "the sandbox ended before the command did");
            let lost = Ended::LostCommand { error: &error, started_unix_ms: 0 };
            for left in mine.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
                let audit = OutputAudit::new(execs.ledger.clone(), left.operation, Redactor::default(), None);
                audit.end(&lost, false, None, None).await;
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
                    let mode = operation.begin.extra.get(MODE).and_then(|mode| ExecMode::from_name(mode));
                    let takes_changes = mode.is_some_and(ExecMode::takes_changes);
                    let is_work = mode.is_none_or(ExecMode::is_work);
                    let shown = operation.begin.detail.text;
                    let left = Left { operation: open.id, shown, own_secrets, takes_changes, is_work, cell };
                    // Of several, the first began the command; the others joined it.
                    found.entry((sandbox, exec)).or_insert(left);
                }
            }
        }
    }

    /// Takes a command on that a former server began. `noted`: its activity is written.
    fn take_on(&self, left: &LeftIn<'_>, entry: ExecEntry, report: &ExecReport, noted: bool) {
        let LeftIn { record, container, redactor, open, alive } = *left;
        let found = open.lock().unwrap_or_else(PoisonError::into_inner).remove(&(record.id, report.id));
        let takes_changes = found.as_ref().is_some_and(|left| left.takes_changes);
        let is_work = found.as_ref().is_none_or(|left| left.is_work);
        let (audit, shown) = match found {
            None => (None, redactor.text(&report.command)),
            Some(Left { operation, shown, own_secrets, .. }) => {
                alive.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
                let secrets = if own_secrets { Secrets::Forgotten } else { Secrets::None };
                let exec = self.running.enter(record.id, report.id, operation, secrets);
                let audit = OutputAudit::new(self.ledger.clone(), operation, redactor.clone(), Some(record))
                    .with(Some(exec));
                (Some(if own_secrets { audit.mute() } else { audit }), shown)
            }
        };
        if noted && audit.is_none() {
            return;
        }
        // A command is work until its end, unless its image started it; a terminal only while a client is connected to it.
        let container: Arc<dyn Container> = if report.ended || report.terminal.is_some() || !is_work {
            Arc::clone(container)
        } else {
            let activity_guard = self.activity_tracker.begin(record.id);
            Arc::new(ActiveContainer::new(Arc::clone(container), activity_guard))
        };
        let shown = (!noted).then_some(shown);
        let execution = Execution::new(&self.end_writer, record.id, container, audit, shown, takes_changes);
        self.spawn(entry.keep(), execution, report, None);
    }

    /// The ends of commands that are noted of a sandbox.
    async fn notes(&self, sandbox: SandboxId) -> Result<Vec<EndFigures>> {
        let most = u32::try_from(ACTIVITIES_KEPT).unwrap_or(u32::MAX);
        let all = self.store.activities(sandbox, most, None).await?.into_iter().map(|entry| entry.activity);
        let execs = all.filter(|activity| activity.kind == ActivityKind::Exec);
        Ok(execs.map(|Activity { at, duration_ms, exit_code, .. }| (at, duration_ms, exit_code)).collect())
    }

    async fn watch_again_in(
        &self,
        kernels: &Kernels,
        sandbox: SandboxId,
        open: &Mutex<OpenExecs>,
        alive: &Mutex<Vec<OperationId>>,
    ) -> Result<()> {
        let Some(record) = self.store.sandbox(sandbox).await? else { return Ok(()) };
        let redactor = Redactor::new(self.operations.environment_of(&record)?.secret_values());
        let container = self.registry.awake(sandbox).await?;
        let cells = left_cells(open, sandbox);
        let taken = |operation: OperationId| {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, left| left.operation != operation);
            alive.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
        };
        let tended = kernels.tend_again(&record, &container, &redactor, cells, taken).await;
        if let Err(error) = &tended {
            tracing::warn!(%sandbox, %error, "cannot watch over a sandbox's cells");
        }
        // A try of the ready check is the start's, which goes on with it, and no command of the sandbox's user.
        let check = check_exec(container.id());
        let is_known = open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&(sandbox, check));
        let before = container.guest().list_execs().await?.into_iter().filter(|report| {
            let earlier = i64::try_from(report.started_unix_ms).is_ok_and(|at| at < self.began);
            let is_check = report.id == check && !is_known;
            earlier && !report.tool && !is_check && started(report).is_ok()
        });
        let mut entered: Vec<(ExecReport, ExecEntry)> = Vec::new();
        for report in before {
            if let Some(entry) = self.exec_tasks.enter_left(sandbox, report.id).await {
                entered.push((report, entry));
            }
        }
        let ended = entered.iter().filter(|(report, _)| report.ended);
        let ends: Vec<EndFigures> = ended.map(|(report, _)| reported_figures(report)).collect();
        let noted = if ends.is_empty() { Vec::new() } else { self.notes(sandbox).await? };
        let mut noted = noted_before(&ends, noted).into_iter();
        let left = LeftIn { record: &record, container: &container, redactor: &redactor, open, alive };
        for (report, entry) in entered {
            let noted = report.ended && noted.next().unwrap_or(false);
            self.take_on(&left, entry, &report, noted);
        }
        // Cells of a sandbox that does not answer at the moment are looked for again.
        tended.or_else(|error| if may_pass(&error) { Err(error) } else { Ok(()) })
    }
}

/// What a former server left in one sandbox.
struct LeftIn<'a> {
    record: &'a SandboxRecord,
    container: &'a Arc<dyn Container>,
    redactor: &'a Redactor,
    open: &'a Mutex<OpenExecs>,
    /// Operations that go on.
    alive: &'a Mutex<Vec<OperationId>>,
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
