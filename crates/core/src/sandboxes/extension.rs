//! What libraries over the core need beyond its operations: operations of their own in the audit trail,
//! sandboxes with other defaults, and an end for a reason of theirs. The library decides; the core only
//! carries out.

use crate::{
    Caller, CreateSandbox, Created, Sandboxes, SessionNetwork,
    actor::{Patch, Step, StepTarget},
    idempotency::derived_id,
    lifecycle::{ActivityGuard, Quiet},
    operation::{OperationSpec, Operations},
};
use atoll_egress::{Entry, Policy};
use atoll_store::{ListQuery, SandboxId, SandboxRecord, Sealed};
use atoll_types::{Error, ErrorCode, Limits, Operation, PathRules, Profile, Result};

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
    /// Seals bytes of a library for one context: they open in no other.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Result<Sealed> {
        self.vault.seal_bytes(context, plain)
    }

    /// Opens what was sealed for this context.
    pub fn unseal(&self, context: &str, sealed: &Sealed) -> Result<Vec<u8>> {
        self.vault.open_bytes(context, sealed)
    }

    /// Carries something out between its two audit rows. A caller that may not do it is refused before.
    pub async fn carry_out<T>(
        &self,
        caller: &Caller,
        operation: ExtensionOperation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let audited = self.audited(caller, operation.0).await?;
        audited.done(work.await).await
    }
}

/// The id that belongs to these texts: the same at every time and on every server. What a library begins under such an id
/// is joined and not begun again.
#[must_use]
pub fn repeatable_uuid(parts: &[&str]) -> uuid::Uuid {
    let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
    derived_id(lengths.iter().zip(parts).flat_map(|(length, part)| [&length[..], part.as_bytes()]))
}

impl Sandboxes {
    /// Makes a sandbox as [`Sandboxes::create`] does, under an id that the library chose. Limits that are left out
    /// of the request are as given here, as far as the caller's tier allows it; the network is that of a
    /// session, unless the request has a policy of its own.
    pub async fn create_usual(
        &self,
        caller: &Caller,
        id: SandboxId,
        mut request: CreateSandbox,
        usual: Limits,
        network: SessionNetwork,
    ) -> Result<Created> {
        self.fill_limits(caller, &mut request, usual);
        if request.egress.is_none() {
            let image = self.image_of(request.image.as_deref());
            (request.network_enabled, request.egress) =
                self.egress_sessions.for_session(caller, &image, network)?;
        }
        self.create_with_id(caller, id, request).await
    }

    /// Whether the caller's tier has this profile.
    #[must_use]
    pub fn allows_profile(&self, caller: &Caller, name: &str) -> bool {
        self.limits.ceiling(caller).check_profile(name).is_ok()
    }

    /// Gives a request the limits that it leaves out, as far as the caller's tier allows them.
    pub(crate) fn fill_limits(&self, caller: &Caller, request: &mut CreateSandbox, usual: Limits) {
        let Limits { memory_bytes, cpu_millis, processes, disk_bytes, .. } =
            self.limits.ceiling(caller).clamp(usual);
        request.memory_mb.get_or_insert(memory_bytes / MIB);
        request.disk_mb.get_or_insert(disk_bytes / MIB);
        request.cpu_cores.get_or_insert(f64::from(cpu_millis) / 1000.0);
        request.processes.get_or_insert(processes);
    }

    /// What a sandbox reaches by its owner's wish, as far as the caller's tier allows a network at all.
    pub(crate) fn usual_network(
        &self,
        caller: &Caller,
        image: Option<&str>,
        enabled: bool,
        allowed: Vec<Entry>,
        blocked: Vec<Entry>,
    ) -> Result<(Option<bool>, Option<Policy>)> {
        match enabled {
            false => Ok((Some(false), None)),
            true => self.egress_sessions.by_default(caller, &self.image_of(image), allowed, blocked),
        }
    }

    /// The image of a request as its presets are found. One that does not exist is refused by the create.
    fn image_of(&self, asked: Option<&str>) -> String {
        let runtime_settings = self.live_settings.now();
        let usual = runtime_settings.db_default_image.as_ref().unwrap_or(&self.settings.default_image);
        let image = asked.unwrap_or(usual);
        self.catalogue.find(image).map_or_else(|| image.to_owned(), |found| found.name.to_string())
    }

    /// A lifetime of sandboxes whose create names none, as far as this server's setting allows it, in seconds.
    #[must_use]
    pub fn usual_lifetime(&self, seconds: u32) -> u32 {
        match self.live_settings.now().lifecycle_max_lifetime_seconds {
            0 => seconds,
            most => seconds.min(most),
        }
    }

    /// Whether new sandboxes can have volumes and path rules.
    #[must_use]
    pub fn has_attachments(&self) -> bool {
        let provider = self.providers.get(self.providers.default_name());
        provider.is_ok_and(|provider| provider.attachments().is_some())
    }

    /// The sandbox of the usual image that the caller's owner has under this session key.
    pub(crate) async fn of_session_key(&self, caller: &Caller, key: &str) -> Result<Option<SandboxRecord>> {
        let image = self.live_settings.now().db_default_image.clone();
        let query = ListQuery {
            owner: Some(caller.owner.clone()),
            session_key: Some(key.to_owned()),
            images: vec![image.unwrap_or_else(|| self.settings.default_image.clone())],
            limit: 1,
            ..ListQuery::default()
        };
        let found = self.store.list_sandboxes(&query).await?.items.pop();
        Ok(found.filter(|record| record.destroyed_at.is_none()))
    }

    /// Gives a sandbox other rules for its paths. One that runs is stopped for it: mounts are made when a container starts.
    pub(crate) async fn change_paths(
        &self,
        caller: &Caller,
        record: &SandboxRecord,
        paths: PathRules,
    ) -> Result<()> {
        let profile = Profile { paths, ..record.profile.clone() };
        profile.validate()?;
        self.stop(caller, record.id).await?;
        let rules = serde_json::to_string(&profile.paths).map_err(|e| Error::internal(e.to_string()))?;
        let what = OperationSpec::to(Operation::SandboxPatch, record.id).and("filesystem", rules);
        let audited = self.operations.audited(caller, what).await?;
        let patch = Patch { at_rest_only: true, profile: Some(profile), ..Patch::default() };
        let result = self.registry.patch(record.id, Operation::SandboxPatch, patch).await;
        audited.done(result).await.map(drop)
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
    pub async fn labelled(&self, name: &str) -> Result<Vec<SandboxRecord>> {
        let query = ListQuery {
            label: Some(name.to_owned()),
            limit: u32::MAX,
            descending: false,
            ..ListQuery::default()
        };
        let mut items = self.store.list_sandboxes(&query).await?.items;
        // One that is being destroyed has its status of before.
        items.retain(|record| record.destroyed_at.is_none());
        Ok(items)
    }
}
