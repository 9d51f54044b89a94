//! The kernels of a container, held while their variables and the sandbox's files are kept or rolled back together: no cell
//! is sent meanwhile.

use super::{link::Link, managers::KernelManagers, wire::other_answer};
use atoll_kernels::{Answer, KernelInfo, KernelStatus, Language, RequestKind};
use atoll_provider::Container;
use atoll_types::{CellId, CheckpointId, Error, ErrorCode, KernelCheckpoint, Result};
use std::{sync::Arc, time::Duration};
use tokio::sync::OwnedRwLockWriteGuard;

/// How long to wait for another request that holds them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kernels that are sent no cells until this is dropped.
pub(crate) struct HeldKernels {
    link: Arc<Link>,
    _alone: OwnedRwLockWriteGuard<()>,
}

/// Why variables cannot be rolled back.
pub(crate) fn kernels_gone() -> Error {
    let message = "the kernels of this snapshot have ended: they live as long as the container in which they were kept, and \
                   until they or their checkpoints are deleted; the files alone can be rolled back";
    Error::new(ErrorCode::Conflict, message).at("kernels")
}

impl KernelManagers {
    /// Holds the kernels of a container; none where it has no kernel manager.
    pub(crate) async fn hold(&self, container: &Arc<dyn Container>) -> Result<Option<HeldKernels>> {
        let Some(link) = self.existing(container).await? else { return Ok(None) };
        let alone = tokio::time::timeout(PATIENCE, Arc::clone(&link.sending).write_owned()).await;
        let late =
            |_| Error::new(ErrorCode::Unavailable, "the sandbox's kernels are held by another request");
        Ok(Some(HeldKernels { _alone: alone.map_err(late)?, link }))
    }

    /// Drops checkpoints, as far as they are there.
    pub(crate) async fn drop_checkpoints(
        &self,
        container: &Arc<dyn Container>,
        all: &[KernelCheckpoint],
    ) -> Result<()> {
        if let Some(link) = self.existing(container).await? {
            drop_from(&link, all).await;
        }
        Ok(())
    }
}

async fn drop_from(link: &Link, all: &[KernelCheckpoint]) {
    for KernelCheckpoint { kernel, checkpoint } in all.iter().copied() {
        if let Err(error) = link.ask(RequestKind::DropCheckpoint { kernel, checkpoint }).await {
            tracing::debug!(%error, "a checkpoint of a snapshot is not dropped");
        }
    }
}

impl HeldKernels {
    async fn list(&self) -> Result<Vec<KernelInfo>> {
        match self.link.ask(RequestKind::List).await? {
            Answer::Kernels(all) => Ok(all),
            _ => other_answer(),
        }
    }

    /// The cells that run or wait.
    pub(crate) fn cells(&self) -> Vec<CellId> {
        self.link.cells()
    }

    /// Keeps the variables of every Python kernel that lives, each after the cells that it was sent before. On failure
    /// nothing of it is kept.
    pub(crate) async fn checkpoint(&self, name: &str) -> Result<Vec<KernelCheckpoint>> {
        let mut made = Vec::new();
        let live = |info: &KernelInfo| info.language == Language::Python && info.status != KernelStatus::Dead;
        for info in self.list().await?.into_iter().filter(live) {
            let one = KernelCheckpoint { kernel: info.kernel, checkpoint: CheckpointId::random() };
            let KernelCheckpoint { kernel, checkpoint } = one;
            made.push(one);
            let name = name.to_owned();
            if let Err(error) = self.link.ask(RequestKind::Checkpoint { kernel, checkpoint, name }).await {
                self.drop_checkpoints(&made).await;
                return Err(error);
            }
        }
        Ok(made)
    }

    pub(crate) async fn drop_checkpoints(&self, all: &[KernelCheckpoint]) {
        drop_from(&self.link, all).await;
    }

    /// Refuses where a kernel or its checkpoint is gone.
    pub(crate) async fn check(&self, wanted: &[KernelCheckpoint]) -> Result<()> {
        let all = self.list().await?;
        let is_there = |one: &KernelCheckpoint| {
            let mut kept =
                all.iter().filter(|info| info.kernel == one.kernel).flat_map(|info| &info.checkpoints);
            kept.any(|kept| kept.checkpoint == one.checkpoint)
        };
        if wanted.iter().all(is_there) { Ok(()) } else { Err(kernels_gone()) }
    }

    /// Makes these kernels what they were, and ends all others.
    pub(crate) async fn roll_back(&self, wanted: &[KernelCheckpoint]) -> Result<()> {
        for KernelCheckpoint { kernel, checkpoint } in wanted.iter().copied() {
            self.link.ask(RequestKind::Rollback { kernel, checkpoint }).await?;
        }
        let others = self.list().await?.into_iter().map(|info| info.kernel);
        for kernel in others.filter(|kernel| wanted.iter().all(|one| one.kernel != *kernel)) {
            match self.link.ask(RequestKind::Delete { kernel }).await {
                Err(error) if error.code != ErrorCode::NotFound => return Err(error),
                _ => self.link.forget_default(kernel),
            }
        }
        Ok(())
    }
}
