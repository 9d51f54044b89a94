//! Running cells. Each is tended by a task of its own, which is at work until the cell has ended, asks what
//! it changed, and writes its end into the trail; those who asked only listen. So it is one path whether
//! somebody waits for all of it, follows it, joined it, or the server was killed meanwhile.

use super::{
    cell::Cell,
    follow::{CellFollow, Leash},
    link::Link,
    request::{CellOutcome, CellRequest, CellTarget},
    wire::other_answer,
};
use crate::{
    Caller, Core,
    act::{Act, CellTold, Trail},
    egress::EnteredCell,
    lifecycle::Working,
    now,
};
use atoll_kernels::{Answer, Ask, CellReport, Execute, KernelStatus, Language, Start};
use atoll_provider::{Changed, Container};
use atoll_store::{Activity, ActivityKind, SandboxId};
use atoll_types::{CellId, Death, DeathKind, Error, ErrorCode, KernelId, Result};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;
use uuid::Uuid;

/// What came of a cell, once it is known.
type Known = Option<Result<CellOutcome>>;

/// A cell that somebody tends.
pub(crate) struct Tended {
    pub(super) cell: Arc<Cell>,
    outcome: watch::Sender<Known>,
    /// Nobody waits for it any more.
    pub(super) cancelled: AtomicBool,
}

impl Tended {
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
pub(crate) struct Tending(Mutex<HashMap<(SandboxId, CellId), Arc<Tended>>>);

impl Tending {
    fn get(&self, sandbox: SandboxId, cell: CellId) -> Option<Arc<Tended>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(sandbox, cell)).cloned()
    }

    fn add(&self, sandbox: SandboxId, tended: &Arc<Tended>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((sandbox, tended.cell.id), Arc::clone(tended));
    }

    fn remove(&self, sandbox: SandboxId, tended: &Arc<Tended>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sandbox, tended.cell.id);
        if all.get(&key).is_some_and(|there| Arc::ptr_eq(there, tended)) {
            all.remove(&key);
        }
    }
}

/// What a cell needs while it runs.
pub(super) struct Care {
    pub(super) sandbox: SandboxId,
    pub(super) container: Arc<dyn Container>,
    pub(super) link: Arc<Link>,
    pub(super) working: Working,
    pub(super) entered: Option<EnteredCell>,
    /// As it may be noted.
    pub(super) shown: String,
    /// It was begun before, and whoever did notes it; or the server's start does.
    pub(super) joined: bool,
    /// The default kernel was dead and had to be started anew for it.
    pub(super) anew: bool,
}

/// A cell on its way.
struct Sent {
    care: Care,
    cell: Arc<Cell>,
    leash: Option<Leash>,
}

impl Core {
    /// The id of a cell whose request may be repeated, as that of a command.
    #[must_use]
    pub fn repeatable_cell(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> CellId {
        let mut hash = Sha256::new();
        for part in
            [&b"cell"[..], caller.owner.as_bytes(), sandbox.uuid().as_bytes(), key.as_bytes(), request]
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        CellId::from_uuid(Uuid::from_bytes(bytes))
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
        if self.tending.get(sandbox, cell).is_some() {
            return Ok(true);
        }
        let (container, _working) = self.desks.lend(sandbox, "a look at its kernels").await?;
        let Some(link) = self.wardens.existing(&container).await? else { return Ok(false) };
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
        let act = self.act(caller, request.what(sandbox, id, stream)).await?;
        if let Some(tended) = self.tending.get(sandbox, id) {
            let allowed = act.record().map(drop);
            act.done(allowed).await?;
            return Ok(CellFollow::new(tended, None));
        }
        match self.send_cell(&act, caller, id, request, stream).await {
            Ok(Sent { care, cell, leash }) => {
                let tended = self.tend(care, cell, act.follow());
                Ok(CellFollow::new(tended, leash))
            }
            Err(error) => act.done(Err(error)).await,
        }
    }

    async fn send_cell(
        &self,
        act: &Act,
        caller: &Caller,
        id: CellId,
        request: &CellRequest,
        stream: bool,
    ) -> Result<Sent> {
        request.check()?;
        let timeout = request.timeout(self.most(caller))?;
        let sandbox = act.record()?.id;
        let (container, working) = self.desks.lend(sandbox, "a cell").await?;
        let link = self.wardens.link(&container).await?;
        let entered = self.running.enter_cell(sandbox, link.exec(), act.operation());
        let mut care = Care {
            sandbox,
            container,
            link,
            working,
            entered: Some(entered),
            shown: act.redacted(&request.code),
            joined: false,
            anew: false,
        };
        // One that ran before, perhaps for a server that is dead, must not run again.
        if request.id.is_some()
            && let Some(cell) = follow_known(&care.link, id).await?
        {
            (care.joined, care.entered) = (true, None);
            return Ok(Sent { care, cell, leash: None });
        }
        let mut kernel = match request.target {
            CellTarget::Kernel(kernel) => kernel,
            CellTarget::Default(language) => default_kernel(&care.link, language).await?,
        };
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let limits = request.limits();
        let mut tries = 0;
        loop {
            let code = request.code.clone();
            let execute = Execute { kernel, cell: id, code, timeout_ms, stream, limits };
            let leash = request.id.is_none().then(|| Leash::new(&care.link, kernel, id));
            let error = match send(&care.link, execute).await {
                Ok((cell, joined)) => {
                    care.joined = joined;
                    return Ok(Sent { care, cell, leash });
                }
                Err(error) => error,
            };
            if let Some(leash) = &leash {
                leash.release();
            }
            let CellTarget::Default(language) = request.target else { return Err(error) };
            tries += 1;
            match error.code {
                // Somebody ended it meanwhile.
                ErrorCode::NotFound if tries < 3 => care.link.forget_default(kernel),
                ErrorCode::KernelDied if tries < 3 && !care.link.is_over() => {
                    care.anew |= revive(&care.link, kernel).await?;
                }
                _ => return Err(error),
            }
            kernel = default_kernel(&care.link, language).await?;
        }
    }

    /// Sees a cell to its end, whoever waits for it.
    pub(super) fn tend(&self, care: Care, cell: Arc<Cell>, trail: Trail) -> Arc<Tended> {
        let tended = Arc::new(Tended::new(cell));
        self.tending.add(care.sandbox, &tended);
        let (core, there) = (self.clone(), Arc::clone(&tended));
        tokio::spawn(async move {
            let sandbox = care.sandbox;
            let outcome = core.see_to_its_end(care, &there, trail).await;
            core.tending.remove(sandbox, &there);
            there.outcome.send_replace(Some(outcome));
        });
        tended
    }

    async fn see_to_its_end(&self, care: Care, tended: &Tended, trail: Trail) -> Result<CellOutcome> {
        let Care { sandbox, container, link, working, entered, shown, joined, anew } = care;
        let report = match tended.cell.ended().await {
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
        let cell = tended.cell.id;
        let told = CellTold { cell, report: &report, cancelled: tended.cancelled.load(Ordering::Relaxed) };
        if let Err(error) = trail.end_cell(told, changed.as_ref(), note).await {
            tracing::error!(%error, "the end of a cell waits to be written");
        }
        drop(working);
        Ok(CellOutcome { cell, report, changed })
    }
}

/// What is noted of a cell that ended.
fn activity(sandbox: SandboxId, detail: String, report: &CellReport) -> Activity {
    Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at: now(),
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

/// Sends a cell; what it says is heard from its first word on.
async fn send(link: &Link, execute: Execute) -> Result<(Arc<Cell>, bool)> {
    let id = execute.cell;
    let (cell, followed) = link.cell(Some(execute.kernel), id)?;
    if followed {
        return Ok((cell, true));
    }
    let forget = Forget { link, cell: Some(id) };
    match link.ask(Ask::Execute(execute)).await? {
        Answer::Queued { joined } => {
            forget.keep();
            Ok((cell, joined))
        }
        _ => other_answer(),
    }
}

/// A cell that the warden knows already; none where it does not.
pub(super) async fn follow_known(link: &Link, id: CellId) -> Result<Option<Arc<Cell>>> {
    // Which kernel it ran in is known when it has ended.
    let (cell, followed) = link.cell(None, id)?;
    if followed {
        return Ok(Some(cell));
    }
    let forget = Forget { link, cell: Some(id) };
    match link.ask(Ask::Follow { cell: id }).await {
        Ok(Answer::Queued { .. }) => {
            forget.keep();
            Ok(Some(cell))
        }
        Ok(_) => other_answer(),
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nothing will be heard of a cell that was not taken.
struct Forget<'a> {
    link: &'a Link,
    cell: Option<CellId>,
}

impl Forget<'_> {
    fn keep(mut self) {
        self.cell = None;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell {
            self.link.forget(cell);
        }
    }
}

/// The default kernel of a language, which is started where there is none.
pub(crate) async fn default_kernel(link: &Link, language: Language) -> Result<KernelId> {
    if let Some(kernel) = link.default_kernel(language) {
        return Ok(kernel);
    }
    let start = Start {
        kernel: KernelId::random(),
        language,
        default: true,
        working_directory: String::new(),
        variables: BTreeMap::new(),
    };
    match link.ask(Ask::Start(start)).await? {
        Answer::Kernel(info) => {
            link.remember_default(&info);
            Ok(info.kernel)
        }
        _ => other_answer(),
    }
}

/// Starts a dead kernel anew, and says whether that lost anything. Of several who find it dead one does.
async fn revive(link: &Link, kernel: KernelId) -> Result<bool> {
    let _turn = link.reviving.lock().await;
    let Answer::Kernels(all) = link.ask(Ask::List).await? else { return other_answer() };
    let Some(info) = all.iter().find(|info| info.kernel == kernel) else { return Ok(false) };
    if info.status != KernelStatus::Dead {
        return Ok(false);
    }
    let used = info.execution_count > 0;
    match link.ask(Ask::Restart { kernel }).await? {
        Answer::Kernel(_) => Ok(used),
        _ => other_answer(),
    }
}
