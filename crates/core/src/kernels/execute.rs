//! Running cells. Each is tended by a task of its own, which is at work until the cell has ended, asks what
//! it changed, and writes its end into the trail; those who asked only listen. So it is one path whether
//! somebody waits for all of it, follows it, joined it, or the server was killed meanwhile.

use super::{
    cell::Cell,
    follow::CellFollow,
    link::Link,
    request::{CellOutcome, CellRequest},
    send::{CellContext, Sent, follow_known},
};
use crate::{
    Caller, Core,
    idempotency::repeatable,
    operation::{CellAudit, OutputAudit},
};
use atoll_kernels::CellReport;
use atoll_provider::Changed;
use atoll_store::{Activity, ActivityKind, SandboxId};
use atoll_types::{CellId, Death, DeathKind, Error, Result, time::now_ms};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// What came of a cell, once it is known.
type Known = Option<Result<CellOutcome>>;

/// A cell that somebody tends.
pub(crate) struct CellTask {
    pub(super) cell: Arc<Cell>,
    outcome: watch::Sender<Known>,
    /// Nobody waits for it any more.
    pub(super) cancelled: AtomicBool,
}

impl CellTask {
    pub(super) fn new(cell: Arc<Cell>) -> Self {
        Self { cell, outcome: watch::Sender::new(None), cancelled: AtomicBool::new(false) }
    }

    /// What came of it, once that is written down.
    pub(super) async fn outcome(&self) -> Result<CellOutcome> {
        let mut outcome = self.outcome.subscribe();
        let known = outcome.wait_for(Option::is_some).await;
        let gone = || Error::internal("nobody tends the cell");
        known.ok().and_then(|known| known.clone()).unwrap_or_else(|| Err(gone()))
    }
}

/// Every cell that is tended, so that who asks again joins.
#[derive(Default)]
pub(crate) struct CellTasks(Mutex<HashMap<(SandboxId, CellId), Arc<CellTask>>>);

impl CellTasks {
    fn get(&self, sandbox: SandboxId, cell: CellId) -> Option<Arc<CellTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(sandbox, cell)).cloned()
    }

    fn add(&self, sandbox: SandboxId, cell_task: &Arc<CellTask>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((sandbox, cell_task.cell.id), Arc::clone(cell_task));
    }

    fn remove(&self, sandbox: SandboxId, cell_task: &Arc<CellTask>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sandbox, cell_task.cell.id);
        if all.get(&key).is_some_and(|there| Arc::ptr_eq(there, cell_task)) {
            all.remove(&key);
        }
    }
}

impl Core {
    /// The id of a cell whose request may be repeated.
    #[must_use]
    pub fn repeatable_cell(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> CellId {
        CellId::from_uuid(repeatable("cell", caller, sandbox, key, request))
    }

    /// Runs a cell to its end. A caller that goes away takes it along, unless the request may be repeated.
    pub async fn execute(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellOutcome> {
        self.begin_cell(caller, sandbox, request, false).await?.outcome().await
    }

    /// Runs a cell and tells what it prints and shows as it comes.
    pub async fn execute_stream(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellFollow> {
        self.begin_cell(caller, sandbox, request, true).await
    }

    /// Whether a cell with this id runs, waits, or is still remembered.
    pub async fn knows_cell(&self, caller: &Caller, sandbox: SandboxId, cell: CellId) -> Result<bool> {
        self.visible(caller, sandbox).await?;
        if self.cell_tasks.get(sandbox, cell).is_some() {
            return Ok(true);
        }
        let (container, _working) = self.registry.acquire(sandbox, "a look at its kernels").await?;
        let Some(link) = self.managers.existing(&container).await? else { return Ok(false) };
        let _turn = link.repeating.lock().await;
        Ok(follow_known(&link, cell).await?.is_some())
    }

    async fn begin_cell(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
        stream: bool,
    ) -> Result<CellFollow> {
        // Before the trail hears of it: a flood must not fill that.
        self.take_exec(caller)?;
        let id = request.id.unwrap_or_else(CellId::random);
        let audited = self.audited(caller, request.what(sandbox, id, stream)).await?;
        if let Some(cell_task) = self.cell_tasks.get(sandbox, id) {
            let allowed = audited.record().map(drop);
            audited.done(allowed).await?;
            return Ok(CellFollow::new(cell_task, None));
        }
        match self.send_cell(&audited, caller, id, request, stream).await {
            Ok(Sent { context, cell, leash }) => {
                let cell_task = self.tend(context, cell, audited.follow());
                Ok(CellFollow::new(cell_task, leash))
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    /// Sees a cell to its end, whoever waits for it.
    pub(super) fn tend(&self, context: CellContext, cell: Arc<Cell>, trail: OutputAudit) -> Arc<CellTask> {
        let cell_task = Arc::new(CellTask::new(cell));
        self.cell_tasks.add(context.sandbox, &cell_task);
        let (core, there) = (self.clone(), Arc::clone(&cell_task));
        tokio::spawn(async move {
            let sandbox = context.sandbox;
            let outcome = core.see_to_its_end(context, &there, trail).await;
            core.cell_tasks.remove(sandbox, &there);
            there.outcome.send_replace(Some(outcome));
        });
        cell_task
    }

    async fn see_to_its_end(
        &self,
        context: CellContext,
        cell_task: &CellTask,
        trail: OutputAudit,
    ) -> Result<CellOutcome> {
        let CellContext { sandbox, container, link, activity_guard, entered, shown, joined, anew } = context;
        let report = match cell_task.cell.ended().await {
            Ok(report) => Arc::unwrap_or_clone(report),
            Err(error) => return trail.failed(error).await,
        };
        drop(entered);
        let mut report = settled(report, &link).await;
        report.state_lost |= anew;
        report.restarted |= anew;
        let changed: Option<Changed> = match joined {
            true => None,
            false => self.take_changes(sandbox, &container).await,
        };
        let note = (!joined).then(|| activity(sandbox, shown, &report));
        let (cell, redactor) = (cell_task.cell.id, trail.redactor());
        let told =
            CellAudit { cell, report: &report, cancelled: cell_task.cancelled.load(Ordering::Relaxed) };
        if let Err(error) = trail.end_cell(told, changed.as_ref(), note).await {
            tracing::error!(%error, "the end of a cell waits to be written");
        }
        drop(activity_guard);
        Ok(CellOutcome { cell, report, changed, redactor })
    }
}

/// What is noted of a cell that ended.
fn activity(sandbox: SandboxId, detail: String, report: &CellReport) -> Activity {
    Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at: now_ms(),
        detail,
        exit_code: Some(i32::from(!report.success)),
        duration_ms: Some(report.duration_us / 1000),
        bytes: None,
    }
}

/// A report whose death is what it really was: whether memory was the reason, PID 1 knows.
async fn settled(mut report: CellReport, link: &Link) -> CellReport {
    let Some(death) = &mut report.death else { return report };
    let told = death.reason();
    let memory = death.signal == Some(9) && link.ran_out_of_memory().await;
    *death = Death::from_wait(death.exit_status, death.signal, memory);
    if death.kind == DeathKind::OutOfMemory
        && let Some(error) = &mut report.error
    {
        let reason = death.reason();
        error.message = match error.message.contains(&told) {
            true => error.message.replace(&told, &reason),
            false => format!("the kernel died: {reason}"),
        };
    }
    report
}
