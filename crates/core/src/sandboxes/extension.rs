//! What libraries over the core need beyond its operations: operations of their own in the audit trail,
//! sandboxes with other defaults, and an end for a reason of theirs. The library decides; the core only
//! carries out.

use crate::{
    Caller, CreateSandbox, Created, Sandboxes, SessionNetwork,
    actor::{Step, StepTarget},
    lifecycle::{ActivityGuard, Quiet},
    operation::{OperationSpec, Operations},
};
use atoll_store::SandboxId;
use atoll_types::{ErrorCode, Limits, Operation, Result};

const MIB: u64 = 1 << 20;

/// An operation of a library over the core, as the audit trail records it.
#[derive(Debug, Clone)]
pub struct ExtensionOperation(OperationSpec);

impl ExtensionOperation {
    /// Something that changes what there is.
    #[must_use]
    pub fn new(kind: Operation) -> Self {
        Self(OperationSpec::new(kind))
    }

    /// Something that changes what is known of a sandbox.
    #[must_use]
    pub fn to(kind: Operation, sandbox: SandboxId) -> Self {
        Self(OperationSpec::to(kind, sandbox))
    }

    /// What it is about: a path, a name.
    #[must_use]
    pub fn with(self, detail: impl Into<String>) -> Self {
        Self(self.0.with(detail))
    }

    /// One more thing worth knowing.
    #[must_use]
    pub fn and(self, name: &str, value: impl ToString) -> Self {
        Self(self.0.and(name, value))
    }
}

impl Operations {
    /// Carries something out between its two audit rows. A caller that may not do it is refused before.
    pub async fn carry_out<T>(
        &self,
        caller: &Caller,
        operation: ExtensionOperation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let audited = self.audited(caller, operation.0).await?;
        let result = async {
            audited.allowed()?;
            work.await
        }
        .await;
        audited.done(result).await
    }
}

impl Sandboxes {
    /// Makes a sandbox as [`Sandboxes::create`] does, under an id that the library chose. Limits that are left out
    /// of the request are as given here, as far as the caller's tier allows it; the network is that of a
    /// session.
    pub async fn create_usual(
        &self,
        caller: &Caller,
        id: SandboxId,
        mut request: CreateSandbox,
        usual: Limits,
        network: SessionNetwork,
    ) -> Result<Created> {
        let Limits { memory_bytes, cpu_millis, processes, disk_bytes, .. } =
            self.limits.ceiling(caller).clamp(usual);
        request.memory_mb.get_or_insert(memory_bytes / MIB);
        request.disk_mb.get_or_insert(disk_bytes / MIB);
        request.cpu_cores.get_or_insert(f64::from(cpu_millis) / 1000.0);
        request.processes.get_or_insert(processes);
        let image = request.image.as_deref().unwrap_or(&self.settings.default_image);
        (request.network_enabled, request.egress) =
            self.egress_sessions.for_session(caller, image, network)?;
        self.create_with_id(caller, id, request).await
    }

    /// Keeps a sandbox active until the guard is dropped: between two operations as well, and before the
    /// sandbox is made.
    #[must_use]
    pub fn keep_active(&self, sandbox: SandboxId) -> ActivityGuard {
        self.activity_tracker.begin(sandbox)
    }

    /// Whether work is in flight in a sandbox.
    #[must_use]
    pub fn is_active(&self, sandbox: SandboxId) -> bool {
        self.activity_tracker.quiet_for(sandbox) == Quiet::Busy
    }

    /// Ends a sandbox for good though no caller asked, for a reason that its event and its audit rows name.
    /// Fine when it is gone.
    pub async fn end(&self, id: SandboxId, reason: &str) -> Result<()> {
        let Some(record) = self.store.sandbox(id).await? else { return Ok(()) };
        if record.destroyed_at.is_some() {
            return Ok(());
        }
        let step = Step { to: StepTarget::Destroyed, reason: reason.to_owned(), revision: None, idle: None };
        match self.step(&record, step).await {
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Conflict) => Ok(()),
            result => result,
        }
    }

    /// The sandboxes of all owners that carry a label, the oldest first. For reconcilers, which have no
    /// caller.
    pub async fn labelled(&self, name: &str) -> Result<Vec<atoll_store::SandboxRecord>> {
        let all = atoll_store::ListQuery { limit: u32::MAX, ..atoll_store::ListQuery::default() };
        let page = self.store.list_sandboxes(&all).await?;
        let lives = |record: &atoll_store::SandboxRecord| record.destroyed_at.is_none();
        Ok(page.items.into_iter().filter(|r| r.labels.contains_key(name) && lives(r)).collect())
    }
}
