//! Getting a cell to its kernel: the one that is named, or the default one of a language, which is started
//! where there is none and started anew where it is dead.

use super::{
    cell::{Cell, CellBudget},
    follow::InterruptOnDrop,
    link::Link,
    request::{CellRequest, CellTarget},
    wire::other_answer,
};
use crate::{Caller, Kernels, egress::EnteredCell, lifecycle::ActiveContainer, operation::AuditedOperation};
use atoll_kernels::{Answer, Execute, KernelStatus, Language, RequestKind, Start};
use atoll_store::SandboxId;
use atoll_types::{AutoSnapshot, CellId, Error, ErrorCode, KernelId, Result};
use std::{collections::BTreeMap, sync::Arc};

/// How often a default kernel that is gone or dead is looked for again.
const TRIES: usize = 3;

/// What a cell needs while it runs.
pub(super) struct CellContext {
    pub(super) sandbox: SandboxId,
    pub(super) container: ActiveContainer,
    pub(super) link: Arc<Link>,
    pub(super) entered: Option<EnteredCell>,
    /// As it may be noted.
    pub(super) shown: String,
    /// Another request began the cell, and its task, or the one after a restart, writes the activity.
    pub(super) joined: bool,
    /// Whom what is kept of the cell counts for.
    pub(super) budget: CellBudget,
    /// The default kernel was dead and had to be started anew for it.
    pub(super) anew: bool,
}

/// A cell on its way.
pub(super) struct Sent {
    pub(super) context: CellContext,
    pub(super) cell: Arc<Cell>,
    pub(super) interrupt_on_drop: Option<InterruptOnDrop>,
}

impl Kernels {
    pub(super) async fn send_cell(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: CellId,
        request: &CellRequest,
        stream: bool,
    ) -> Result<Sent> {
        request.check()?;
        let budget = CellBudget { answers: self.answers.clone(), owner: caller.owner.clone() };
        drop(self.answers.hold(&caller.owner)?);
        let timeout = request.timeout(self.limits.ceiling(caller))?;
        let record = audited.record()?;
        let sandbox = record.id;
        let directory = self.execs.catalogue.working_directory(&record.profile);
        let container = self.registry.acquire_in(audited, "a cell").await?;
        let link = self.managers.link(container.inner()).await?;
        let entered = self.running.enter_cell(sandbox, link.exec(), audited.operation());
        let mut context = CellContext {
            sandbox,
            container,
            link: Arc::clone(&link),
            entered: Some(entered),
            shown: audited.redacted(&request.code),
            joined: false,
            budget,
            anew: false,
        };
        // One that ran before, perhaps for a server that is dead, must not run again.
        let mut _turn = None;
        if request.id.is_some() {
            _turn = Some(link.repeating.lock().await);
            if let Some(cell) = follow_known(&link, id, Some(&context.budget)).await? {
                (context.joined, context.entered) = (true, None);
                return Ok(Sent { context, cell, interrupt_on_drop: None });
            }
        }
        self.snapshots.make_automatic(audited.record()?, AutoSnapshot::BeforeRun, id.to_string()).await?;
        let execute = Execute {
            kernel: KernelId::random(),
            cell: id,
            code: request.code.clone(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            stream,
            limits: request.limits(),
            result_variable: request.result_variable,
        };
        let tied = request.id.is_none();
        match request.target {
            CellTarget::Kernel(kernel) => send_to(context, Execute { kernel, ..execute }, tied).await,
            CellTarget::Default(language) => {
                send_to_default(context, execute, (language, &directory), tied).await
            }
        }
    }
}

/// Sends a cell to its kernel. A tied caller that goes away before the answer interrupts the cell.
async fn send_to(mut context: CellContext, execute: Execute, tied: bool) -> Result<Sent> {
    let mut interrupt_on_drop =
        tied.then(|| InterruptOnDrop::new(&context.link, execute.kernel, execute.cell));
    match send(&context.link, execute, &context.budget).await {
        Ok((cell, joined)) => {
            context.joined = joined;
            Ok(Sent { context, cell, interrupt_on_drop })
        }
        Err(error) => {
            interrupt_on_drop.iter_mut().for_each(InterruptOnDrop::disarm);
            Err(error)
        }
    }
}

/// The same to the default kernel of a language, which begins in this directory where it is started.
async fn send_to_default(
    mut context: CellContext,
    mut execute: Execute,
    (language, directory): (Language, &str),
    tied: bool,
) -> Result<Sent> {
    for _ in 1..TRIES {
        let kernel = default_kernel(&context.link, language, directory).await?;
        execute.kernel = kernel;
        let mut interrupt_on_drop = tied.then(|| InterruptOnDrop::new(&context.link, kernel, execute.cell));
        let error: Error = match send(&context.link, execute.clone(), &context.budget).await {
            Ok((cell, joined)) => {
                context.joined = joined;
                return Ok(Sent { context, cell, interrupt_on_drop });
            }
            Err(error) => error,
        };
        interrupt_on_drop.iter_mut().for_each(InterruptOnDrop::disarm);
        match error.code {
            // The kernel was deleted meanwhile.
            ErrorCode::NotFound => context.link.forget_default(kernel),
            ErrorCode::KernelDied if !context.link.is_over() => {
                context.anew |= revive(&context.link, kernel).await?;
            }
            _ => return Err(error),
        }
    }
    execute.kernel = default_kernel(&context.link, language, directory).await?;
    send_to(context, execute, tied).await
}

/// Sends a cell; its events are received from the first one on.
async fn send(link: &Link, execute: Execute, budget: &CellBudget) -> Result<(Arc<Cell>, bool)> {
    let id = execute.cell;
    let (cell, followed) = link.cell(Some(execute.kernel), id)?;
    if followed {
        return Ok((cell, true));
    }
    budget.charge(&cell);
    let forget = Forget { link, cell: Some(id) };
    let _sending = link.sending.read().await;
    match link.ask(RequestKind::Execute(execute)).await? {
        Answer::Queued { joined } => {
            forget.keep();
            Ok((cell, joined))
        }
        _ => other_answer(),
    }
}

/// A cell that the kernel manager knows already; none where it does not. Without a budget only its end is kept.
pub(super) async fn follow_known(
    link: &Link,
    id: CellId,
    budget: Option<&CellBudget>,
) -> Result<Option<Arc<Cell>>> {
    // Which kernel it ran in is known when it has ended.
    let (cell, followed) = link.cell(None, id)?;
    if followed {
        return Ok(Some(cell));
    }
    if let Some(budget) = budget {
        budget.charge(&cell);
    }
    let forget = Forget { link, cell: Some(id) };
    match link.ask(RequestKind::Follow { cell: id, end_only: false }).await {
        Ok(Answer::Queued { .. }) => {
            forget.keep();
            Ok(Some(cell))
        }
        Ok(_) => other_answer(),
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Unless kept, stops following the cell when dropped: the kernel manager did not take it.
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

/// The default kernel of a language, which is started in this directory where there is none.
pub(crate) async fn default_kernel(link: &Link, language: Language, directory: &str) -> Result<KernelId> {
    if let Some(kernel) = link.default_kernel(language) {
        return Ok(kernel);
    }
    let start = Start {
        kernel: KernelId::random(),
        language,
        default: true,
        working_directory: directory.to_owned(),
        variables: BTreeMap::new(),
    };
    match link.ask(RequestKind::Start(start)).await? {
        Answer::Kernel(info) => {
            link.remember_default(&info);
            Ok(info.kernel)
        }
        _ => other_answer(),
    }
}

/// Starts a dead kernel anew, and says whether that lost anything. Of several requests that find it dead one
/// does so.
async fn revive(link: &Link, kernel: KernelId) -> Result<bool> {
    let _turn = link.reviving.lock().await;
    let Answer::Kernels(all) = link.ask(RequestKind::List).await? else { return other_answer() };
    let Some(info) = all.iter().find(|info| info.kernel == kernel) else { return Ok(false) };
    if info.status != KernelStatus::Dead {
        return Ok(false);
    }
    let used = info.execution_count > 0;
    match link.ask(RequestKind::Restart { kernel }).await? {
        Answer::Kernel(_) => Ok(used),
        _ => other_answer(),
    }
}
