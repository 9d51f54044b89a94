//! Running cells. Each has a task of its own, which counts as activity until the cell has ended, takes the
//! files that it changed, and writes its end into the audit trail; callers only receive. So there is one path
//! whether a caller waits for the whole cell, follows it, joined it, or the server was killed meanwhile.

use super::{
    cell::{Cell, CellBudget},
    follow::CellFollow,
    link::Link,
    request::{CellOutcome, CellRequest},
    send::{CellContext, Sent, follow_known},
};
use crate::{
    Caller, Kernels,
    actor::rolled_back,
    execution::{EndSignal, Ended, Execution, unless_panicked},
    idempotency::repeatable,
    output_audit::OutputAudit,
};
use atoll_audit::Redactor;
use atoll_kernels::{CellError, CellErrorKind, CellReport};
use atoll_store::SandboxId;
use atoll_types::{CellId, Death, DeathKind, Error, ErrorCode, Result};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A cell and its task.
pub(crate) struct CellTask {
    pub(super) cell: Arc<Cell>,
    outcome: EndSignal<CellOutcome>,
    /// The caller to whom the cell is tied went away.
    pub(super) cancelled: AtomicBool,
}

impl CellTask {
    pub(super) fn new(cell: Arc<Cell>) -> Self {
        Self { cell, outcome: EndSignal::default(), cancelled: AtomicBool::new(false) }
    }

    /// The cell's outcome, once it is written.
    pub(super) async fn outcome(&self) -> Result<CellOutcome> {
        self.outcome.wait().await
    }
}

/// How long a look at a cell waits for the sandbox to report its end.
const LOOK: Duration = Duration::from_secs(5);

/// A cell that was begun earlier.
#[derive(Debug, Clone)]
pub enum FoundCell {
    /// It runs or waits.
    Running,
    /// It has ended so.
    Ended(Box<CellReport>),
}

/// The task of every cell, so that a repeated request joins it.
#[derive(Default)]
pub(crate) struct CellTasks(Mutex<HashMap<(SandboxId, CellId), Arc<CellTask>>>);

impl CellTasks {
    fn get(&self, sandbox: SandboxId, cell: CellId) -> Option<Arc<CellTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(sandbox, cell)).cloned()
    }

    fn any(&self, sandbox: SandboxId) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.keys().any(|(of, _)| *of == sandbox)
    }

    fn enter(self: &Arc<Self>, sandbox: SandboxId, cell_task: &Arc<CellTask>) -> CellEntry {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((sandbox, cell_task.cell.id), Arc::clone(cell_task));
        CellEntry { tasks: Arc::clone(self), sandbox, cell_task: Arc::clone(cell_task) }
    }
}

/// A cell's entry among all tasks. It leaves when dropped, and callers that still wait then, because the task
/// panicked, get an error.
struct CellEntry {
    tasks: Arc<CellTasks>,
    sandbox: SandboxId,
    cell_task: Arc<CellTask>,
}

impl Drop for CellEntry {
    fn drop(&mut self) {
        let mut all = self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.sandbox, self.cell_task.cell.id);
        if all.get(&key).is_some_and(|there| Arc::ptr_eq(there, &self.cell_task)) {
            all.remove(&key);
        }
        drop(all);
        self.cell_task.outcome.set(Err(Error::internal("the task of the cell ended without its end")));
    }
}

impl Kernels {
    /// The id of a cell whose request may be repeated.
    #[must_use]
    pub fn repeatable_id(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> CellId {
        CellId::from_uuid(repeatable("cell", caller, sandbox, key, request))
    }

    /// Runs a cell to its end. A caller that goes away ends it, unless the request may be repeated.
    pub async fn execute(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellOutcome> {
        self.begin_cell(caller, sandbox, request, false).await?.outcome().await
    }

    /// Runs a cell and sends what it prints and shows as it comes.
    pub async fn execute_stream(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellFollow> {
        self.begin_cell(caller, sandbox, request, true).await
    }

    /// Begins a cell that runs to its end whether the caller waits or not; its id has to be given.
    pub async fn begin(&self, caller: &Caller, sandbox: SandboxId, request: &CellRequest) -> Result<()> {
        self.begin_cell(caller, sandbox, request, false).await.map(drop)
    }

    /// How a cell of a sandbox went that was begun earlier. The sandbox remembers the last that have ended, as long as its
    /// container lives.
    pub async fn find_cell(&self, caller: &Caller, sandbox: SandboxId, id: CellId) -> Result<FoundCell> {
        self.operations.visible(caller, sandbox).await?;
        if self.cell_tasks.get(sandbox, id).is_some() {
            return Ok(FoundCell::Running);
        }
        let unknown = || Error::new(ErrorCode::NotFound, "the sandbox knows no run with this id");
        let container = self.registry.acquire(sandbox, "a look at its kernels").await?;
        let link = self.managers.existing(container.inner()).await?.ok_or_else(unknown)?;
        let turn = link.repeating.lock().await;
        let cell = follow_known(&link, id, None).await?.ok_or_else(unknown)?;
        drop(turn);
        // A cell without a task has ended, except for one that a former server left behind.
        match tokio::time::timeout(LOOK, cell.ended()).await {
            Ok(report) => {
                let report = settled(Arc::unwrap_or_clone(report?), &link, false).await;
                Ok(FoundCell::Ended(Box::new(report)))
            }
            Err(_) => Ok(FoundCell::Running),
        }
    }

    /// Whether a cell runs or waits in a sandbox.
    #[must_use]
    pub fn is_executing(&self, sandbox: SandboxId) -> bool {
        self.cell_tasks.any(sandbox)
    }

    /// Whether a cell with this id runs, waits, or is still remembered.
    pub async fn knows_cell(&self, caller: &Caller, sandbox: SandboxId, cell: CellId) -> Result<bool> {
        self.operations.visible(caller, sandbox).await?;
        if self.cell_tasks.get(sandbox, cell).is_some() {
            return Ok(true);
        }
        let container = self.registry.acquire(sandbox, "a look at its kernels").await?;
        let Some(link) = self.managers.existing(container.inner()).await? else { return Ok(false) };
        let _turn = link.repeating.lock().await;
        let budget = CellBudget { answers: self.answers.clone(), owner: caller.owner.clone() };
        Ok(follow_known(&link, cell, Some(&budget)).await?.is_some())
    }

    async fn begin_cell(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
        stream: bool,
    ) -> Result<CellFollow> {
        // Before the first audit row is written: a flood of requests must not fill the audit trail.
        self.limits.take_exec(caller)?;
        let id = request.id.unwrap_or_else(CellId::random);
        let audited = self.operations.audited(caller, request.what(sandbox, id, stream)).await?;
        if let Some(cell_task) = self.cell_tasks.get(sandbox, id) {
            let allowed = audited.record().map(drop);
            audited.done(allowed).await?;
            return Ok(CellFollow::new(cell_task, None));
        }
        match self.send_cell(&audited, caller, id, request, stream).await {
            Ok(Sent { context, cell, interrupt_on_drop }) => {
                let cell_task = self.tend(context, cell, audited.follow());
                Ok(CellFollow::new(cell_task, interrupt_on_drop))
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    /// Spawns the task that sees a cell to its end, whether a caller waits for it or not.
    pub(super) fn tend(&self, context: CellContext, cell: Arc<Cell>, audit: OutputAudit) -> Arc<CellTask> {
        let cell_task = Arc::new(CellTask::new(cell));
        let CellContext { sandbox, container, link, entered, shown, joined, budget: _, anew } = context;
        let entry = self.cell_tasks.enter(sandbox, &cell_task);
        // The task of the request that began a cell takes its changes and writes its activity.
        let shown = (!joined).then_some(shown);
        let (redactor, container_id) = (audit.redactor(), container.inner().id());
        // The request that began the cell sends the event of its end.
        let audit = if joined { audit.without_event() } else { audit };
        let execution =
            Execution::new(&self.end_writer, sandbox, Arc::new(container), Some(audit), shown, !joined);
        let (there, registry) = (Arc::clone(&cell_task), Arc::clone(&self.registry));
        tokio::spawn(async move {
            let seen = async {
                let ended = there.cell.ended().await;
                drop(entered);
                match ended {
                    Ok(_) if registry.was_rolled_back(there.cell.id.uuid()) => Err(rolled_back()),
                    // The kernel's own death, where it is reported, is of the same cause.
                    Ok(report) if report.death.is_some() && registry.was_rolled_back(container_id.uuid()) => {
                        Err(rolled_back())
                    }
                    Ok(report) => Ok(settled(Arc::unwrap_or_clone(report), &link, anew).await),
                    Err(error) => Err(registry.why_lost(sandbox, container_id, "the cell ran", error).await),
                }
            };
            let outcome = unless_panicked("a cell", seen).await.and_then(|seen| seen);
            let outcome = outcome.map_err(|error| execution.redacted(error));
            let outcome = end_cell(execution, &there, outcome, redactor).await;
            there.outcome.set(outcome);
            drop(entry);
        });
        cell_task
    }
}

async fn end_cell(
    execution: Execution,
    cell_task: &CellTask,
    ended: Result<CellReport>,
    redactor: Redactor,
) -> Result<CellOutcome> {
    let (cell, cancelled) = (cell_task.cell.id, cell_task.cancelled.load(Ordering::Relaxed));
    match ended {
        Ok(report) => {
            let changed = execution.end(&Ended::Cell(cell, &report), cancelled).await;
            Ok(CellOutcome { cell, report, changed, redactor })
        }
        Err(error) => {
            execution.end(&Ended::LostCell(&error), false).await;
            Err(error)
        }
    }
}

/// A report with the true cause of a death: only PID 1 knows whether memory was the reason.
async fn settled(mut report: CellReport, link: &Link, anew: bool) -> CellReport {
    report.state_lost |= anew;
    report.restarted |= anew;
    let Some(death) = &mut report.death else { return report };
    let reported = death.kind;
    let memory = death.signal == Some(9) && link.ran_out_of_memory().await;
    *death = Death::from_wait(death.exit_status, death.signal, memory);
    // A timeout or an interrupt stays the reason of a cell that it ended.
    if death.kind == DeathKind::OutOfMemory
        && reported != DeathKind::OutOfMemory
        && let Some(error) = &mut report.error
        && error.kind == CellErrorKind::KernelDied
    {
        *error = CellError::kernel_died(&death.reason());
    }
    report
}
