//! A new sandbox in a container of the pool. Its record names the container from the beginning, so whatever
//! goes wrong here is put right by an ordinary start, which ends that container and makes another one on
//! the same volume.

use super::{Desk, Ran};
use crate::{admission::Seat, now, pool::Warm};
use atoll_provider::{Container, ContainerSpec};
use atoll_store::{ActivityKind, Change, SandboxRecord, Status};
use atoll_types::{Error, ErrorCode, Result};
use std::{collections::BTreeMap, sync::Arc};

impl Desk {
    /// Sees that a new sandbox runs: in the container of the pool that its record names, or else in another.
    pub(super) async fn claim(&mut self, record: SandboxRecord, warm: Warm, seat: Seat) -> Result<Ran> {
        match self.take_over(&record, &warm).await {
            Ok(record) => {
                seat.keep();
                self.note(ActivityKind::Start, "").await;
                Ok(Ran::Runs(Box::new(record)))
            }
            Err(error) => {
                tracing::warn!(sandbox = %self.id, %error, "a container of the pool could not be claimed");
                if error.code == ErrorCode::Conflict && error.field.as_deref() == Some("container") {
                    self.shared.pool.outdated(&record.profile);
                }
                self.let_go();
                self.shared.gates.close(self.id).await;
                self.run(true, "", Some(seat)).await
            }
        }
    }

    /// Sets live what was not known when the container was made.
    async fn take_over(&mut self, record: &SandboxRecord, warm: &Warm) -> Result<SandboxRecord> {
        let unable = || Error::internal("the container cannot be handed over");
        let container = warm.container();
        let power = container.claimable().ok_or_else(unable)?;
        let environment = self.environment(record)?;
        let secrets = environment.secret_values().collect();
        let variables: BTreeMap<_, _> = self.shared.gates.variables().chain(environment.variables).collect();
        power.claim(record.limits, variables.clone()).await?;
        self.shared.pool.configure(warm, variables).await?;
        // Nobody has served its gate until now, so nothing got out.
        self.shared.gates.open(record, container, secrets, true).await?;
        (self.container, self.dying) = (Some(Arc::clone(container)), Some(warm.dying()));
        self.change(record, Change { last_activity_at: Some(now()), ..Change::status(Status::Ready) }).await
    }

    /// Makes a container. Where the disk has no room, what the pool holds of it goes first.
    pub(super) async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>> {
        match self.shared.provider.create(spec.clone()).await {
            Err(error) if error.code == ErrorCode::DiskFull && self.shared.pool.make_room().await => {
                self.shared.provider.create(spec).await
            }
            made => made,
        }
    }
}
