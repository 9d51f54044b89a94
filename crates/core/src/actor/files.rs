//! Files of a sandbox that has no container. Its volume is reached through a container that is made for file
//! requests alone: PID 1 and nothing else, no environment, and its egress sockets are not served. It is not
//! in the sandbox's record: the status stays, and neither the owner's plan nor the idle time is touched. It
//! ends a few seconds after the last request, and before the sandbox is started, changed or destroyed.

use super::{SandboxActor, Shared, claim::is_taken, must_allow};
use crate::lifecycle::{ActiveContainer, Quiet};
use atoll_provider::{Container, ContainerSpec, Provider, State};
use atoll_store::SandboxRecord;
use atoll_types::{
    ContainerId, Error, ErrorCode, ImageRecord, LegalStates, Limits, Profile, ProviderName, Result,
    SnapshotId, Storage, VolumeId, VolumeMount,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::JoinHandle,
};

/// How many file containers the whole machine may have at a time, and as many on copies: no plan counts them.
const MOST: usize = 8;
/// How many of those on copies may be one owner's: clients of one owner that read slowly leave places for the others.
const MOST_COPIES: usize = 2;
/// How long one on a copy may live: in an hour 100 GiB are read at 30 MB/s, and a client that does not go on reading
/// keeps a place of the machine's no longer.
pub(crate) const LONGEST_EXPORT: Duration = Duration::from_secs(60 * 60);
/// How long a request waits for one of these.
const WAIT: Duration = Duration::from_secs(10);
/// How long one lives after the last request.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// The file containers of all sandboxes.
pub(crate) struct FileContainers {
    places: Arc<Semaphore>,
    made: Mutex<HashSet<ContainerId>>,
    /// Of those on copies of volumes: an export lasts as long as its client reads, and must not be in the way of
    /// the others.
    copy_places: Arc<Semaphore>,
    /// The places of each owner that uses or waits for one.
    owners: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// The copies of volumes that some of them are on.
    copies: Mutex<HashSet<VolumeId>>,
}

impl Default for FileContainers {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MOST));
        let (places, copy_places) = (places(), places());
        let (made, owners, copies) = Default::default();
        Self { places, made, copy_places, owners, copies }
    }
}

async fn permit(places: &Arc<Semaphore>, message: &str) -> Result<OwnedSemaphorePermit> {
    let late = || Error::new(ErrorCode::LimitExceeded, message).retry_after(5);
    let place = tokio::time::timeout(WAIT, Arc::clone(places).acquire_owned()).await;
    place.map_err(|_| late())?.map_err(|_| late())
}

impl FileContainers {
    /// A permit for one more, as soon as there is one.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit> {
        permit(&self.places, "files of too many stopped sandboxes are in use; ask again, or resume this one")
            .await
    }

    /// The same for one on a copy: a permit of the owner's, and one of the machine's.
    async fn copy_place(&self, owner: &str) -> Result<[OwnedSemaphorePermit; 2]> {
        let own = format!(
            "{MOST_COPIES} exports of this owner are under way; ask again when one of them has ended"
        );
        let own = permit(&self.places_of(owner), &own).await?;
        let all =
            permit(&self.copy_places, "too many exports are under way on this machine; ask again").await?;
        Ok([own, all])
    }

    fn places_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|_, places| places.strong_count() > 0);
        owners.get(owner).and_then(Weak::upgrade).unwrap_or_else(|| {
            let places = Arc::new(Semaphore::new(MOST_COPIES));
            owners.insert(owner.to_owned(), Arc::downgrade(&places));
            places
        })
    }

    fn made(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copies(&self) -> MutexGuard<'_, HashSet<VolumeId>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of all of them.
    pub(super) fn all(&self) -> Vec<ContainerId> {
        self.made().iter().copied().collect()
    }

    /// The copies of volumes that are in use.
    pub(super) fn volumes(&self) -> Vec<VolumeId> {
        self.copies().iter().copied().collect()
    }
}

/// What the container of an exported image has beside it.
const IMAGE_SLACK: u64 = 64 << 20;
/// The folder in a file container that has the volumes of snapshots, each by its number.
pub(crate) const SNAPSHOTS: &str = "/atoll-snapshots";

/// A file container on a copy of a sandbox's volume, which shares what it holds with it: the files as they were at one
/// moment, whatever becomes of the sandbox meanwhile. Copies of snapshots are attached to it, to be read. It has neither the volumes of its owner nor path rules: what is
/// in the copy is the sandbox's own, and all of it can be read. Dropped, it ends and the copy goes; after
/// [`LONGEST_EXPORT`] both go by themselves.
pub(crate) struct ExportCopy {
    in_use: oneshot::Sender<()>,
    removal: JoinHandle<()>,
}

impl ExportCopy {
    /// Makes the copy and starts the container; none where the provider makes no copies, or where the files are in
    /// memory.
    pub(super) async fn make(
        shared: &Arc<Shared>,
        record: &SandboxRecord,
        snapshots: &[SnapshotId],
    ) -> Result<Option<(Self, Arc<dyn Container>)>> {
        let provider = Arc::clone(shared.providers.of(record)?);
        let on_disk = matches!(record.profile.storage, Storage::Volume);
        let Some(copies) = provider.snapshots().filter(|_| on_disk && provider.volumes().is_some()) else {
            return Ok(None);
        };
        let places = shared.file_containers.copy_place(&record.owner).await?;
        let (id, volume) = (ContainerId::random(), VolumeId::random());
        let mounts: Vec<VolumeMount> = (1..).zip(snapshots).map(|(n, _)| mount(n)).collect::<Result<_>>()?;
        let volumes: Vec<VolumeId> = mounts.iter().map(|mount| mount.volume).chain([volume]).collect();
        shared.file_containers.made().insert(id);
        shared.file_containers.copies().extend(&volumes);
        // From here on what was made is removed when this is dropped.
        let removal = remove_copies(Arc::clone(shared), Arc::clone(&provider), id, volumes);
        let copy = Self::keep(LONGEST_EXPORT, removal, places);
        // A full volume is copied as any other, and the tool's own files have room beside it.
        let disk_bytes = record.limits.disk_bytes.saturating_mul(2);
        copies.fork(record.volume, None, volume, disk_bytes).await?;
        for (mount, snapshot) in mounts.iter().zip(snapshots) {
            copies.fork(record.volume, Some(*snapshot), mount.volume, disk_bytes).await?;
        }
        let profile = Profile { volumes: mounts, ..record.profile.without_attachments() };
        let limits = Limits { disk_bytes, ..record.limits };
        let spec = ContainerSpec { id, profile, limits, volume: Some(volume), environment: BTreeMap::new() };
        let container = provider.create(spec).await?;
        Ok(Some((copy, container)))
    }

    /// Makes a copy of an image, and starts a container of the machine's own image that has it at `path` and may only read it.
    /// Nothing of the image is run.
    pub(super) async fn of_image(
        shared: &Arc<Shared>,
        owner: &str,
        image: &ImageRecord,
        path: &str,
    ) -> Result<(Self, Arc<dyn Container>)> {
        let provider = Arc::clone(shared.providers.get(&image.provider)?);
        let unsupported = || Error::new(ErrorCode::Unsupported, "this server keeps no images");
        let images = provider.images().ok_or_else(unsupported)?;
        let profile = Profile::builtin("build").ok_or_else(unsupported)?;
        let places = shared.file_containers.copy_place(owner).await?;
        let files = VolumeId::random();
        let (copy, mut spec) = Self::prepare(shared, &provider, places, profile, Some(files));
        let room = image.size_bytes.saturating_mul(2).saturating_add(IMAGE_SLACK);
        images.volume_from_image(image.id, files, room).await?;
        let name = "image".parse().map_err(|_| Error::internal("a copy has no name"))?;
        let mount = VolumeMount { name, volume: files, path: path.to_owned(), read_only: true, whole: false };
        spec.profile.volumes.push(mount);
        Ok((copy, provider.create(spec).await?))
    }

    /// Starts a container of an image, for its files alone.
    pub(super) async fn container_of_image(
        shared: &Arc<Shared>,
        provider: &ProviderName,
        profile: Profile,
    ) -> Result<(Self, Arc<dyn Container>)> {
        let provider = Arc::clone(shared.providers.get(provider)?);
        let place = shared.file_containers.place().await?;
        let (copy, spec) = Self::prepare(shared, &provider, place, profile, None);
        Ok((copy, provider.create(spec).await?))
    }

    /// A container that is about no sandbox. From here on it is removed, with its volumes, when this is dropped.
    fn prepare(
        shared: &Arc<Shared>,
        provider: &Arc<dyn Provider>,
        places: impl Send + 'static,
        profile: Profile,
        more: Option<VolumeId>,
    ) -> (Self, ContainerSpec) {
        let (id, own) = (ContainerId::random(), VolumeId::random());
        let volumes: Vec<VolumeId> = more.into_iter().chain([own]).collect();
        shared.file_containers.made().insert(id);
        shared.file_containers.copies().extend(&volumes);
        let removal = remove_copies(Arc::clone(shared), Arc::clone(provider), id, volumes);
        let limits = Limits { disk_bytes: IMAGE_SLACK, ..Limits::default() };
        let spec = ContainerSpec { id, profile, limits, volume: Some(own), environment: BTreeMap::new() };
        (Self::keep(LONGEST_EXPORT, removal, places), spec)
    }

    /// Keeps what a copy takes until this is dropped, and not longer than `longest`: a client that reads slowly, or not at
    /// all, does not drop its export.
    fn keep(
        longest: Duration,
        removal: impl Future<Output = ()> + Send + 'static,
        places: impl Send + 'static,
    ) -> Self {
        let (in_use, ended) = oneshot::channel();
        let removal = tokio::spawn(async move {
            let _ = tokio::time::timeout(longest, ended).await;
            removal.await;
            drop(places);
        });
        Self { in_use, removal }
    }

    /// Ends it, and waits until the container and the copy are gone.
    pub(crate) async fn end(self) {
        drop(self.in_use);
        let _ = self.removal.await;
    }
}

/// Where the copy of a snapshot is attached.
fn mount(number: u32) -> Result<VolumeMount> {
    let name = format!("s{number}").parse().map_err(|_| Error::internal("no name of a volume"))?;
    let path = format!("{SNAPSHOTS}/{number:06}");
    Ok(VolumeMount { name, volume: VolumeId::random(), path, read_only: true, whole: true })
}

async fn remove_copies(
    shared: Arc<Shared>,
    provider: Arc<dyn Provider>,
    id: ContainerId,
    volumes: Vec<VolumeId>,
) {
    let mut removed = provider.destroy(id).await;
    if let Some(power) = provider.volumes() {
        for volume in &volumes {
            removed = removed.and(power.remove_volume(*volume).await);
        }
    }
    // What is left is an orphan from now on, which the reconciler removes.
    if let Err(error) = removed {
        tracing::warn!(container = %id, %error, "the copy of an export cannot be removed");
    }
    shared.file_containers.made().remove(&id);
    shared.file_containers.copies().retain(|copy| !volumes.contains(copy));
}

/// The file container of one sandbox.
pub(super) struct FileContainer {
    provider: Arc<dyn Provider>,
    container: Arc<dyn Container>,
    _place: OwnedSemaphorePermit,
}

impl SandboxActor {
    /// The container for a file request, whether the sandbox runs or is stopped.
    pub(super) async fn acquire_files(
        &mut self,
        states: LegalStates,
        place: OwnedSemaphorePermit,
    ) -> Result<ActiveContainer> {
        let record = self.whole_record().await?;
        must_allow(states, &record)?;
        if LegalStates::Running.allow(record.status) {
            return self.acquire(states, "a file operation").await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_places_of_a_copy_come_back_with_it_and_at_the_latest_after_its_time() {
        let containers = FileContainers::default();
        let copy = async |owner, longest| {
            ExportCopy::keep(longest, async {}, containers.copy_place(owner).await.unwrap())
        };
        let kept = [copy("ann", LONGEST_EXPORT).await, copy("ann", Duration::ZERO).await];
        // The second has had its time, although it is still held.
        let third = copy("ann", LONGEST_EXPORT).await;
        assert_eq!(containers.places_of("ann").available_permits(), 0);
        assert_eq!(containers.places_of("bob").available_permits(), MOST_COPIES);
        drop(third);
        drop(copy("ann", LONGEST_EXPORT).await);
        drop(kept);
    }
}
