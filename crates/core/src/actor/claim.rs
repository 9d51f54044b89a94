//! A new sandbox in a container of the pool. Its record names the container from the beginning, so after any
//! failure here an ordinary start ends that container and makes another one on the same volume.

use super::{PoolClaim, RunOutcome, SandboxActor};
use crate::pool::{PooledContainer, ShelfKey};
use atoll_provider::{Container, ContainerSpec};
use atoll_store::{ActivityKind, SandboxRecord};
use atoll_types::{Error, ErrorCode, Result};
use std::sync::Arc;

/// Whether the provider refused because a container uses the volume.
pub(super) fn is_taken(error: &Error) -> bool {
    error.code == ErrorCode::Conflict && error.field.as_deref() == Some("volume")
}

impl SandboxActor {
    /// Starts a new sandbox in the container of the pool that its record names, or else in another.
    pub(super) async fn claim(&mut self, claim: PoolClaim) -> Result<RunOutcome> {
        let PoolClaim { record, warm, handed, reservation } = claim;
        match self.take_over(&record, &warm, handed).await {
            Ok(record) => {
                reservation.keep();
                Ok(RunOutcome::Runs(Box::new(record)))
            }
            Err(error) => {
                tracing::warn!(sandbox = %self.id, %error, "a container of the pool could not be claimed");
                if error.code == ErrorCode::Conflict && error.field.as_deref() == Some("container") {
                    self.shared.pool.outdated(&ShelfKey::of(&record));
                }
                self.detach();
                self.shared.egress_sessions.close(self.id).await;
                self.run(true, "", Some(reservation)).await
            }
        }
    }

    async fn take_over(
        &mut self,
        record: &SandboxRecord,
        warm: &PooledContainer,
        handed: Result<()>,
    ) -> Result<SandboxRecord> {
        handed?;
        let container = warm.container();
        let secrets = self.environment(record)?.secret_values().collect();
        // Its egress sockets were not served until now, so nothing got out.
        self.shared.egress_sessions.open(record, container, secrets, true).await?;
        self.start_process_api(record, container).await?;
        (self.container, self.dying) = (Some(Arc::clone(container)), Some(warm.dying()));
        self.runs(record, ActivityKind::Start).await
    }

    /// Makes a container. Where the disk has no room, the pool's containers are destroyed first; where
    /// another container uses the volume, that one is.
    pub(super) async fn create(
        &self,
        record: &SandboxRecord,
        spec: ContainerSpec,
    ) -> Result<Arc<dyn Container>> {
        let provider = self.provider(record)?;
        match provider.create(spec.clone()).await {
            Err(error) if error.code == ErrorCode::DiskFull && self.shared.pool.make_room().await => {
                provider.create(spec).await
            }
            Err(error) if is_taken(&error) => {
                self.free_volume(record).await?;
                provider.create(spec).await
            }
            made => made,
        }
    }

    /// Ends any container that uses a volume of this sandbox. Its record names none, so a former server, or
    /// one whose launcher died, requested that container and gave up before it was made.
    pub(super) async fn free_volume(&self, record: &SandboxRecord) -> Result<()> {
        let provider = self.provider(record)?;
        for listed in provider.list().await? {
            if listed.volume == Some(record.volume) {
                tracing::warn!(sandbox = %self.id, container = %listed.id, "ending a container that was given up");
                provider.destroy(listed.id).await?;
            }
        }
        Ok(())
    }
}
