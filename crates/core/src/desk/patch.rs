//! Changing a sandbox: what it may use, what its commands start with, what it is found by, and what it may
//! reach. What is asked was checked before.

use super::Desk;
use atoll_egress::{Mode, Policy};
use atoll_store::{Change, SandboxRecord, Sealed, Status};
use atoll_types::{Error, ErrorCode, Limits, Result};
use std::collections::BTreeMap;

/// A change that was checked already.
pub(crate) struct Patch {
    /// Whether it may be made only while nothing runs.
    pub(crate) at_rest_only: bool,
    pub(crate) limits: Option<Limits>,
    pub(crate) environment: Option<Sealed>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) idle_timeout_seconds: Option<u32>,
    /// What it may reach.
    pub(crate) egress: Option<Policy>,
}

impl Desk {
    pub(super) async fn patch(&mut self, patch: Patch) -> Result<SandboxRecord> {
        let Patch { at_rest_only, limits, environment, labels, idle_timeout_seconds, egress } = patch;
        let record = self.whole_record().await?;
        let runs =
            matches!(record.status, Status::Provisioning | Status::Ready | Status::Running | Status::Paused);
        if at_rest_only && runs {
            let message =
                "memory_mb, cpu_cores, env_vars and network_enabled change only while the sandbox is stopped";
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let text = egress.as_ref().map(serde_json::to_string).transpose();
        let text = text.map_err(|e| Error::internal(e.to_string()))?;
        let change = Change {
            limits,
            environment,
            labels,
            idle_timeout_seconds,
            network_enabled: egress.as_ref().map(|policy| policy.mode != Mode::None),
            egress: text,
            ..Change::default()
        };
        let record = self.change(&record, change).await?;
        // Only what is written down is obeyed: a server that dies in between knows it the next time.
        if let Some(policy) = egress {
            self.shared.gates.change(self.id, &policy);
        }
        Ok(record)
    }
}
