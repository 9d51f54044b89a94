//! Changing a sandbox: its limits, the environment of its commands, its name and labels, and its egress
//! policy. The request was validated before.

use super::{SandboxActor, must_allow};
use crate::runtime_settings::Quota;
use atoll_egress::{Mode, Policy};
use atoll_store::{Change, SandboxRecord, Sealed, Status};
use atoll_types::{AutoSnapshot, Error, ErrorCode, LegalStates, Limits, Operation, Profile, Result};
use std::collections::BTreeMap;

/// A validated change.
#[derive(Default)]
pub(crate) struct Patch {
    /// Whether the change is allowed only while nothing runs.
    pub(crate) at_rest_only: bool,
    pub(crate) limits: Option<Limits>,
    /// The plan of the sandbox's owner, where the caller is bound by it.
    pub(crate) quota: Option<Quota>,
    pub(crate) environment: Option<Sealed>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) idle_timeout_seconds: Option<u32>,
    pub(crate) auto_snapshot: Option<AutoSnapshot>,
    /// The egress policy.
    pub(crate) egress: Option<Policy>,
    /// With other volumes.
    pub(crate) profile: Option<Profile>,
}

impl SandboxActor {
    /// Changes the sandbox, where its state allows the operation.
    pub(super) async fn patch(&mut self, operation: Operation, patch: Patch) -> Result<SandboxRecord> {
        let Patch {
            at_rest_only,
            limits,
            quota,
            environment,
            labels,
            idle_timeout_seconds,
            auto_snapshot,
            egress,
            profile,
        } = patch;
        let record = self.whole_record().await?;
        must_allow(operation.states(), &record)?;
        let runs = matches!(record.status, Status::Provisioning | Status::Ready | Status::Paused);
        if at_rest_only && runs {
            let message = "memory_mb, cpu_cores, env_vars, network_enabled and volumes change only while the sandbox is stopped";
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        if profile.is_some() {
            // Its file container has the volumes of before.
            self.end_files().await?;
        }
        let text = egress.as_ref().map(serde_json::to_string).transpose();
        let text = text.map_err(|e| Error::internal(e.to_string()))?;
        let change = Change {
            limits,
            profile,
            environment,
            labels,
            idle_timeout_seconds,
            auto_snapshot,
            network_enabled: egress.as_ref().map(|policy| policy.mode != Mode::None),
            egress: text,
            ..Change::default()
        };
        let disk = limits.map(|limits| limits.disk_bytes).filter(|bytes| *bytes != record.limits.disk_bytes);
        if let Some(bytes) = disk {
            self.resize_disk(&record, bytes, quota.as_ref()).await?;
        }
        let record = match self.change(&record, change).await {
            Ok(record) => record,
            Err(error) => {
                // Should this fail too, the next start applies what the record says.
                if disk.is_some() {
                    let _ = self.resize_disk(&record, record.limits.disk_bytes, None).await;
                }
                return Err(error);
            }
        };
        // Recorded before it is obeyed: a server that dies in between applies it at its next start.
        if let Some(policy) = egress {
            self.shared.egress_sessions.change(self.id, &policy);
        }
        Ok(record)
    }

    /// Gives a sandbox that runs other volumes and path rules, and therefore another container. Where that does not start the
    /// sandbox is stopped.
    pub(super) async fn reattach(&mut self, profile: Profile) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        must_allow(LegalStates::Running, &record)?;
        self.end_container(&record).await?;
        let change =
            Change { container: Some(None), profile: Some(profile), ..Change::status(Status::Provisioning) };
        self.change(&record, change).await?;
        self.start_again().await
    }

    /// Gives the volume another limit, whether the sandbox runs or not: within its owner's plan, and never
    /// below what it holds. A paused sandbox stays paused.
    async fn resize_disk(&mut self, record: &SandboxRecord, bytes: u64, quota: Option<&Quota>) -> Result<()> {
        self.shared.admission.resize_disk(self.id, bytes, quota)?;
        let limits = Limits { disk_bytes: bytes, ..record.limits };
        let resized = match record.status {
            Status::Ready | Status::Paused => self.resize_live(limits).await,
            _ => self.resize_volume(record, bytes).await,
        };
        resized.map_err(|error| {
            // The former limit was allowed before, so it cannot be refused.
            let _ = self.shared.admission.resize_disk(self.id, record.limits.disk_bytes, None);
            match error.code {
                ErrorCode::DiskFull => no_disk(error, bytes),
                ErrorCode::Conflict => Error { field: Some("disk_mb".into()), ..error },
                _ => error,
            }
        })
    }

    async fn resize_live(&mut self, limits: Limits) -> Result<()> {
        let unable =
            || Error::new(ErrorCode::Unsupported, "disk_mb changes only while the sandbox is stopped");
        let container = self.attached().await?;
        container.live_limits().ok_or_else(unable)?.set_limits(limits).await
    }
}

/// The error where the machine's disk is full, rather than the sandbox's own.
pub(crate) fn no_disk(error: Error, asked: u64) -> Error {
    let error = Error { code: ErrorCode::LimitExceeded, field: Some("disk_mb".into()), ..error };
    error.fact("resource", "disk_mb").fact("asked", asked >> 20)
}
