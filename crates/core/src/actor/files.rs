//! Files of a sandbox that has no container. Its volume is reached through a container that is made for file
//! requests alone: PID 1 and nothing else, no environment, and its egress sockets are not served. It is not
//! in the sandbox's record: the status stays, and neither the owner's plan nor the idle time is touched. It
//! ends a few seconds after the last request, and before the sandbox is started, changed or destroyed.

use super::{SandboxActor, claim::is_taken, must_allow};
use crate::lifecycle::{ActiveContainer, Quiet};
use atoll_provider::{Container, ContainerSpec, Provider, State};
use atoll_store::SandboxRecord;
use atoll_types::{ContainerId, Error, ErrorCode, LegalStates, Operation, Result};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many file containers the whole machine may have at a time: no plan counts them.
const MOST: usize = 8;
/// How long a request waits for one of these.
const WAIT: Duration = Duration::from_secs(10);
/// How long one lives after the last request.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// The file containers of all sandboxes.
pub(super) struct FileContainers {
    places: Arc<Semaphore>,
    made: Mutex<HashSet<ContainerId>>,
}

impl Default for FileContainers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), made: Mutex::default() }
    }
}

impl FileContainers {
    /// A permit for one more, as soon as there is one.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit> {
        let late = || {
            let message = "files of too many stopped sandboxes are in use; ask again, or resume this one";
            Error::new(ErrorCode::LimitExceeded, message).retry_after(5)
        };
        let place = tokio::time::timeout(WAIT, Arc::clone(&self.places).acquire_owned()).await;
        place.map_err(|_| late())?.map_err(|_| late())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of all of them.
    pub(super) fn all(&self) -> Vec<ContainerId> {
        self.made().iter().copied().collect()
    }
}

/// The file container of one sandbox.
pub(super) struct FileContainer {
    provider: Arc<dyn Provider>,
    container: Arc<dyn Container>,
    _place: OwnedSemaphorePermit,
}

impl SandboxActor {
    /// The container for a file request, whether the sandbox runs or is stopped.
    pub(super) async fn lend_files(&mut self, place: OwnedSemaphorePermit) -> Result<ActiveContainer> {
        let record = self.whole_record().await?;
        must_allow(Operation::FileRead.states(), &record)?;
        if LegalStates::Running.allow(record.status) {
            return self.acquire("a file operation").await;
        }
        let activity_guard = self.shared.activity_tracker.begin(self.id);
        if let Some(files) = &self.files {
            if matches!(files.container.state().await, Ok(State::Running)) {
                return Ok(ActiveContainer::new(Arc::clone(&files.container), activity_guard));
            }
            self.end_files().await?;
        }
        let container = self.make_for_files(&record).await?;
        let provider = Arc::clone(self.provider(&record)?);
        self.files = Some(FileContainer { provider, container: Arc::clone(&container), _place: place });
        Ok(ActiveContainer::new(container, activity_guard))
    }

    async fn make_for_files(&self, record: &SandboxRecord) -> Result<Arc<dyn Container>> {
        let id = ContainerId::random();
        let spec = ContainerSpec {
            id,
            profile: record.profile.clone(),
            limits: record.limits,
            volume: Some(record.volume),
            environment: BTreeMap::new(),
        };
        self.shared.file_containers.made().insert(id);
        let made = self.create(record, spec).await;
        if made.is_err() {
            self.shared.file_containers.made().remove(&id);
        }
        made
    }

    /// Ends the file container, if there is one. File requests that are under way fail.
    pub(super) async fn end_files(&mut self) -> Result<()> {
        let Some(FileContainer { provider, container, _place }) = self.files.take() else { return Ok(()) };
        let ended = provider.destroy(container.id()).await;
        // One that could not be ended is an orphan from now on, which the reconciler removes.
        self.shared.file_containers.made().remove(&container.id());
        ended
    }

    /// Ends it when no file request has needed it for a while.
    pub(super) async fn end_unused_files(&mut self) {
        let unused = match self.shared.activity_tracker.quiet_for(self.id) {
            Quiet::Busy => false,
            Quiet::For(quiet) => quiet >= LINGER,
            Quiet::Unknown => true,
        };
        if unused && let Err(error) = self.end_files().await {
            tracing::warn!(sandbox = %self.id, %error, "a container for files cannot be ended");
        }
    }

    /// Gives the volume of a sandbox without a container another limit.
    pub(super) async fn resize_volume(&mut self, record: &SandboxRecord, bytes: u64) -> Result<()> {
        self.end_files().await?;
        let Some(volumes) = self.provider(record)?.volumes() else { return Ok(()) };
        match volumes.resize_volume(record.volume, bytes).await {
            Err(error) if is_taken(&error) => {
                self.free_volume(record).await?;
                volumes.resize_volume(record.volume, bytes).await
            }
            resized => resized,
        }
    }
}
