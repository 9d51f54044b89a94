//! Cells that a former server left running get a task again: they count as activity, and their end is written
//! under the operation that began them.

use super::{
    cell::CellBudget,
    link::Link,
    send::{CellContext, follow_known},
    wire::other_answer,
};
use crate::{Kernels, lifecycle::ActiveContainer, output_audit::OutputAudit};
use atoll_audit::Redactor;
use atoll_kernels::{Answer, RequestKind};
use atoll_provider::Container;
use atoll_store::{OperationId, SandboxId, SandboxRecord};
use atoll_types::{CellId, Result};
use std::sync::Arc;

/// A cell whose operation was left open.
pub(crate) struct LeftCell {
    pub(crate) cell: CellId,
    pub(crate) operation: OperationId,
    /// The code as it may be kept.
    pub(crate) shown: String,
}

impl Kernels {
    /// Spawns tasks for those that the kernel manager still knows; `taken` is told each operation that goes on,
    /// also where the manager stops answering after it.
    pub(crate) async fn tend_again(
        &self,
        record: &SandboxRecord,
        container: &Arc<dyn Container>,
        redactor: &Redactor,
        left: Vec<LeftCell>,
        taken: impl Fn(OperationId),
    ) -> Result<()> {
        let Some(link) = self.managers.existing(container).await? else { return Ok(()) };
        for LeftCell { cell, operation, shown } in left {
            let turn = link.repeating.lock().await;
            let budget = CellBudget { answers: self.answers.clone(), owner: record.owner.clone() };
            let Some(cell) = follow_known(&link, cell, Some(&budget)).await? else { continue };
            drop(turn);
            let audit = OutputAudit::new(self.ledger.clone(), operation, redactor.clone(), Some(record));
            let context = CellContext {
                sandbox: record.id,
                container: ActiveContainer::new(
                    Arc::clone(container),
                    self.activity_tracker.begin(record.id),
                ),
                link: Arc::clone(&link),
                entered: Some(self.running.enter_cell(record.id, link.exec(), operation)),
                shown,
                joined: false,
                budget,
                anew: false,
            };
            self.tend(context, cell, audit);
            taken(operation);
        }
        self.wait_for_others(record.id, &link).await
    }

    /// Running cells without an open operation count as activity until their end too.
    async fn wait_for_others(&self, sandbox: SandboxId, link: &Arc<Link>) -> Result<()> {
        let Answer::Kernels(all) = link.ask(RequestKind::List).await? else { return other_answer() };
        for id in all.into_iter().filter_map(|kernel| kernel.running) {
            let turn = link.repeating.lock().await;
            let Some(cell) = follow_known(link, id, None).await? else { continue };
            drop(turn);
            let activity_guard = self.activity_tracker.begin(sandbox);
            tokio::spawn(async move {
                let _ = cell.ended().await;
                drop(activity_guard);
            });
        }
        Ok(())
    }
}
