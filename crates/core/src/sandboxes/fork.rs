//! Making a sandbox of another one, or of a snapshot of it. Tier, plan and machine are checked as for a create; the pool
//! is not asked, because its containers have volumes of their own.
//!
//! The volume is made before the record that names it: a record without its volume would be started with an empty one.
//! A server that dies in between leaves a volume without a record, which the lifecycle removes.

use super::checks::{check_idle, check_labels, check_lifetime, limits, own_labels};
use crate::{
    Caller, Environment, Sandboxes,
    admission::{Need, Reservation},
    ceiling::ExplicitFields,
    events::new_event,
    operation::{AuditedOperation, OperationSpec},
    run_to_end::run_to_end,
    sandboxes::start::CreateOutcome,
    snapshots::{missing, snapshots_for},
};
use atoll_egress::{Mode, Policy};
use atoll_store::{NewSandbox, SandboxId, SandboxRecord, Status};
use atoll_types::{
    AutoSnapshot, Error, ErrorCode, EventKind, InstalledSkill, Operation, Result, SnapshotId, VolumeId,
    time::now_ms,
};
use std::collections::BTreeMap;

/// A request for a fork; what is left out is as in the sandbox that it is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForkSandbox {
    /// The snapshot that it is made of; the sandbox as it is now where there is none.
    pub snapshot: Option<SnapshotId>,
    pub idle_timeout_seconds: Option<u32>,
    pub max_lifetime_seconds: Option<u32>,
    pub memory_mb: Option<u64>,
    pub cpu_cores: Option<f64>,
    pub disk_mb: Option<u64>,
    pub processes: Option<u32>,
    pub env_vars: Option<BTreeMap<String, String>>,
    pub secrets: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    pub auto_snapshot: Option<AutoSnapshot>,
}

impl Sandboxes {
    /// Makes a sandbox whose files are those of another one, now or at a snapshot, and starts it.
    pub async fn fork(
        &self,
        caller: &Caller,
        source: SandboxId,
        request: ForkSandbox,
    ) -> Result<SandboxRecord> {
        self.fork_with_id(caller, source, SandboxId::random(), request).await
    }

    /// The same with an id that the caller chose.
    pub async fn fork_with_id(
        &self,
        caller: &Caller,
        source: SandboxId,
        id: SandboxId,
        request: ForkSandbox,
    ) -> Result<SandboxRecord> {
        // The detail can be searched for: that is how the origin of a fork is found.
        let fork = id.uuid().to_string();
        let mut what = OperationSpec::to(Operation::SandboxFork, source).with(&fork).and("fork", fork);
        if let Some(snapshot) = request.snapshot {
            what = what.and("snapshot_id", snapshot);
        }
        let names = request.env_vars.iter().chain(&request.secrets).flat_map(BTreeMap::keys);
        what.variables = names.cloned().collect();
        what.secrets = request.secrets.iter().flat_map(BTreeMap::values).cloned().collect();
        let mut audited = self.operations.audited(caller, what).await?;
        let result = self.fork_as(&audited, caller, id, request).await;
        if let (Ok(fork), Ok(source)) = (&result, audited.record()) {
            let event = new_event(
                &source.owner,
                Some(source.id),
                EventKind::Forked,
                None,
                &serde_json::json!({ "fork": fork.id.uuid() }),
            );
            audited.add_event(event);
        }
        audited.done(result).await
    }

    async fn fork_as(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: SandboxId,
        request: ForkSandbox,
    ) -> Result<SandboxRecord> {
        let source = audited.record()?.id;
        let source = self.registry.check_state(source, Operation::SandboxFork).await?;
        snapshots_for(&**self.providers.of(&source)?, &source.profile)?;
        let snapshot = request.snapshot;
        let skills = match snapshot {
            Some(id) => {
                let found = self.store.snapshot(source.id, id).await?.ok_or_else(|| missing(id))?;
                found.skills_of(&source.skills)
            }
            None => source.skills.clone(),
        };
        let new = self.forked_record(caller, id, &source, skills, request)?;
        let _request_in_flight = self.pool.request();
        let quota = self.limits.quota(caller, &new.owner, &new.owner_name);
        let reservation = self.admission.place(id, &new.owner, new.limits.disk_bytes, quota.as_ref())?;
        reservation.wait(Need::of(&new.limits), self.admission.deadline()).await?;
        // From here on it completes, whether the caller waits for it or not.
        let sandboxes = self.clone();
        let work = async move {
            let fork = sandboxes.make_fork(&source, snapshot, new, reservation).await?;
            sandboxes.start_again(fork).await
        };
        run_to_end("the fork", work).await
    }

    fn forked_record(
        &self,
        caller: &Caller,
        id: SandboxId,
        source: &SandboxRecord,
        skills: Vec<InstalledSkill>,
        request: ForkSandbox,
    ) -> Result<NewSandbox> {
        let ForkSandbox {
            snapshot: _,
            idle_timeout_seconds,
            max_lifetime_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            env_vars,
            secrets,
            labels,
            auto_snapshot,
        } = request;
        check_idle(idle_timeout_seconds)?;
        let max_lifetime_seconds = max_lifetime_seconds.or(source.max_lifetime_seconds);
        check_lifetime(max_lifetime_seconds, self.live_settings.now().lifecycle_max_lifetime_seconds)?;
        env_vars.as_ref().map_or(Ok(()), |e| self.check_variables("env_vars", e))?;
        secrets.as_ref().map_or(Ok(()), |e| self.check_variables("secrets", e))?;
        let labels = labels.unwrap_or_else(|| own_labels(&source.labels));
        check_labels(&labels)?;
        let limits = limits(source.limits, memory_mb, cpu_cores, disk_mb, processes)?;
        let all = ExplicitFields { memory: true, cores: true, disk: true, processes: true };
        let most = self.limits.ceiling(caller);
        most.check(&limits, all)?;
        most.check_profile(&source.profile.name)?;
        let image = &source.profile.image;
        let image = image.id().map_or_else(|| image.to_string(), |id| id.to_string());
        self.catalogue.usable(caller, &image)?;
        let policy: Policy = serde_json::from_str(&source.egress)
            .map_err(|e| Error::internal(format!("the egress policy of the sandbox cannot be read: {e}")))?;
        let policy = self.egress_sessions.asked(caller, source.profile.image.as_str(), None, Some(policy))?;
        Ok(NewSandbox {
            id,
            owner: source.owner.clone(),
            owner_name: source.owner_name.clone(),
            status: Status::Provisioning,
            image: source.image.clone(),
            provider: source.provider.clone(),
            profile: source.profile.clone(),
            container: None,
            volume: VolumeId::random(),
            limits,
            idle_timeout_seconds: idle_timeout_seconds.unwrap_or(source.idle_timeout_seconds),
            max_lifetime_seconds,
            network_enabled: policy.mode != Mode::None,
            egress: serde_json::to_string(&policy).map_err(|e| Error::internal(e.to_string()))?,
            session_key: None,
            auto_snapshot: auto_snapshot.unwrap_or(source.auto_snapshot),
            labels,
            skills,
            environment: {
                let environment: Environment = self.changed_environment(source, env_vars, secrets)?;
                self.vault.seal(&id.to_string(), &environment)?
            },
            created_at: now_ms(),
        })
    }

    async fn make_fork(
        &self,
        source: &SandboxRecord,
        snapshot: Option<SnapshotId>,
        new: NewSandbox,
        reservation: Reservation,
    ) -> Result<SandboxRecord> {
        let provider = self.providers.of(source)?;
        let power = snapshots_for(&**provider, &source.profile)?;
        let (id, volume) = (new.id, new.volume);
        let forked = power.fork(source.volume, snapshot, volume, new.limits.disk_bytes).await;
        let made = match forked {
            Ok(()) => self.make(new, reservation, None).await,
            Err(error) => Err(match (error.code, error.field.as_deref()) {
                (ErrorCode::Conflict, Some("disk_bytes")) => error.at("disk_mb"),
                _ => error,
            }),
        };
        match made {
            Ok(CreateOutcome::New(record)) => Ok(*record),
            Ok(CreateOutcome::Existing(_)) => Err(Error::internal("a fork has no session key")),
            Err(error) => {
                // A sandbox that could not be started was destroyed with its volume.
                if self.store.sandbox(id).await?.is_none()
                    && let Some(volumes) = provider.volumes()
                    && let Err(error) = volumes.remove_volume(volume).await
                {
                    tracing::warn!(%volume, %error, "the volume of a fork that failed is removed later");
                }
                Err(error)
            }
        }
    }
}
