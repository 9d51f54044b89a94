//! The making of an image, in a sandbox of its own. Sandbox and volume belong to an owner that no key has ([`BUILD_OWNER`]): only
//! admins see them, so that a key of the caller's owner without that scope cannot change what every owner will run. The volume that
//! becomes the image is at `/image` of the sandbox, or is its root filesystem. Nothing that an image holds is read or
//! unpacked by this process.
//!
//! The build is recorded with everything that it makes before it makes any of it. Sandbox and volume are removed before the image
//! is recorded, which also ends the build; until then a failure, or the next start of the server, removes everything.

use super::{
    Images,
    build_log::BuildLog,
    builds::{RunningBuild, RunningBuildGuard},
    event, taken,
};
use crate::{
    AttachVolume, Caller, CreateSandbox, NewVolume, Policy, PoolBounds, PoolChange, idempotency::derived_id,
    operation::AuditedOperation, run_to_end::run_to_end,
};
use atoll_provider::Container;
use atoll_store::{NewEvent, SandboxId, Scope};
use atoll_types::{
    BuildId, BuildRecord, BuildState, Error, ErrorCode, EventKind, ImageConfig, ImageDefaults, ImageId,
    ImageName, ImageOrigin, ImageRecord, ImageTag, InstalledPackage, Millis, Result, VolumeRecord,
    time::now_ms,
};
use futures_util::future::BoxFuture;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Where the volume that becomes the image is, in the sandbox of a build.
pub(super) const TARGET: &str = "/image";
/// The label of a sandbox that builds an image: the build's id.
const BUILD_LABEL: &str = "atoll.build";
/// The owner of sandboxes and volumes that build images. The owner of a key is a UUID.
pub(super) const BUILD_OWNER: &str = "atoll.build";
/// How long the work of a build may take.
const LONGEST_BUILD: Duration = Duration::from_secs(6 * 3600);
/// The longest error that is kept of a build.
const LONGEST_ERROR: usize = 500;

/// The sandbox that a build runs in.
#[derive(Debug, Clone, Default)]
pub(super) struct BuildSandbox {
    /// The image whose files the volume begins with.
    pub(super) base: Option<ImageId>,
    /// Whether the volume is the sandbox's own root filesystem, for steps that run as in the image. Else it is at [`TARGET`] of
    /// a sandbox of `host`.
    pub(super) as_root: bool,
    /// Where its steps may connect to; nowhere where there is no policy.
    pub(super) egress: Option<Policy>,
    /// What the sandbox may hold beside the volume.
    pub(super) disk_mb: u64,
    pub(super) memory_mb: Option<u64>,
    pub(super) cpu_cores: Option<f64>,
    pub(super) processes: Option<u32>,
}

/// What to make.
pub(super) struct NewBuild {
    pub(super) tag: ImageTag,
    pub(super) origin: ImageOrigin,
    pub(super) source: String,
    /// What the image may hold.
    pub(super) disk_mb: u64,
    /// Whether the tag may be another image's until now.
    pub(super) replace: bool,
    pub(super) sandbox: BuildSandbox,
    /// What is done in another sandbox first.
    pub(super) first: Option<FirstStage>,
    /// How many containers of it are kept ready.
    pub(super) pool: PoolBounds,
    /// How many builds the owner that asks may have running, this one included; not bounded for admins.
    pub(super) most_of_owner: Option<usize>,
}

/// Work in a sandbox of its own that comes before the other on the same volume.
pub(super) struct FirstStage {
    pub(super) sandbox: BuildSandbox,
    pub(super) work: Box<dyn FnOnce(BuildContext) -> BoxFuture<'static, Result<()>> + Send>,
}

/// What the work of a build has.
pub(super) struct BuildContext {
    pub(super) container: Arc<dyn Container>,
    /// Lines for people, and how far it is.
    pub(super) log: BuildLog,
    /// The volume that becomes the image.
    pub(super) volume: VolumeRecord,
}

/// Fills the volume in the sandbox. Dropped, where the build is cancelled.
pub(super) type Work = Box<dyn FnOnce(BuildContext) -> BoxFuture<'static, Result<Built>> + Send>;

/// What the work in the sandbox made.
pub(super) struct Built {
    pub(super) digest: String,
    pub(super) source: String,
    pub(super) config: ImageConfig,
    /// The limits of sandboxes that name none.
    pub(super) defaults: ImageDefaults,
    pub(super) about: AboutImage,
}

/// What else is known of an image.
#[derive(Debug, Default)]
pub(super) struct AboutImage {
    pub(super) display_name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) packages: Vec<InstalledPackage>,
}

/// A build that is recorded and not begun.
struct Prepared {
    record: BuildRecord,
    /// The owner of sandbox and volume.
    builder: Caller,
    new: NewBuild,
    running: RunningBuildGuard,
}

/// The sandbox of a build's first stage.
fn first_sandbox(build: BuildId) -> SandboxId {
    SandboxId::from_uuid(derived_id([&b"atoll first stage"[..], build.uuid().as_bytes()]))
}

fn cancelled() -> Error {
    Error::new(ErrorCode::Conflict, "the build was cancelled")
}

impl Images {
    /// Makes an image: `work` fills the volume in the sandbox. Of a build that fails nothing is left but its record.
    pub(super) async fn build(
        &self,
        caller: &Caller,
        new: NewBuild,
        work: Work,
    ) -> Result<(ImageRecord, NewEvent)> {
        let prepared = self.prepare(caller, new).await?;
        self.carry_out(caller, prepared, work).await
    }

    /// The same in the background: the build runs to its end even if its caller disconnects. The operation ends with the build.
    pub(super) async fn start_build(
        &self,
        caller: &Caller,
        mut audited: AuditedOperation,
        new: NewBuild,
        work: Work,
    ) -> Result<BuildRecord> {
        let (images, caller) = (self.clone(), caller.clone());
        // A build that is recorded has a task that ends it, also where the caller leaves now.
        run_to_end("the start of the build", async move {
            let prepared = match images.prepare(&caller, new).await {
                Ok(prepared) => prepared,
                Err(error) => return audited.done(Err(error)).await,
            };
            let record = prepared.record.clone();
            tokio::spawn(async move {
                let result = images.carry_out(&caller, prepared, work).await.map(|(_, created)| {
                    audited.add_event(created);
                });
                if let Err(error) = audited.done(result).await {
                    tracing::debug!(%error, "a build failed");
                }
            });
            Ok(record)
        })
        .await
    }

    /// Records a build with everything that it is going to make.
    async fn prepare(&self, caller: &Caller, new: NewBuild) -> Result<Prepared> {
        let provider = self.providers.default_name();
        self.power(provider)?;
        let tag = &new.tag;
        let there = self.catalogue.find(&tag.to_string()).and_then(|found| found.record);
        if let Some(there) = there.filter(|_| !new.replace) {
            return Err(taken(&tag.name, &there));
        }
        // Whether the caller may have this built was decided before; its tier is no limit of what all owners use.
        let builder = Caller {
            owner: BUILD_OWNER.into(),
            owner_name: BUILD_OWNER.into(),
            scope: Scope::Admin,
            tier: None,
            ..caller.clone()
        };
        let id = BuildId::random();
        let volume = format!("build-{id}").parse().map_err(|_| Error::internal("a build has no name"))?;
        let record = BuildRecord {
            id,
            image: ImageId::random(),
            tag: tag.clone(),
            origin: new.origin,
            source: new.source.clone(),
            owner: builder.owner.clone(),
            asked_by: caller.owner.clone(),
            sandbox: SandboxId::random(),
            volume,
            state: BuildState::Running,
            error: None,
            created_at: now_ms(),
            ended_at: None,
        };
        let running = self.builds.enter(id, &caller.owner, new.most_of_owner)?;
        if let Err(error) = self.store.insert_build(record.clone()).await {
            drop(running);
            self.builds.logs.remove(id);
            return Err(error.into());
        }
        self.told(caller, &record, EventKind::ImageBuildStarted, None).await;
        Ok(Prepared { record, builder, new, running })
    }

    /// Makes the image, or removes everything that was made for it.
    async fn carry_out(
        &self,
        caller: &Caller,
        prepared: Prepared,
        work: Work,
    ) -> Result<(ImageRecord, NewEvent)> {
        let Prepared { record, builder, new, running: guard } = prepared;
        let running = &guard.build;
        let (id, log, pool) = (record.id, running.log.clone(), new.pool);
        let replaced = self.catalogue.find(&record.tag.to_string()).and_then(|found| found.name.id());
        let result = self.make(&builder, &record, new, running, work).await;
        if let Err(error) = &result {
            log.line(format!("failed: {}", error.message));
            let (state, event) = match running.is_cancelled() {
                true => (BuildState::Cancelled, EventKind::ImageBuildCancelled),
                false => (BuildState::Failed, EventKind::ImageBuildFailed),
            };
            match self.clean_up(&record).await {
                Ok(()) => self.end_build(&record, state, &error.message).await,
                // It is still running for the next start, and for a request that cancels it: they try again.
                Err(left) => tracing::warn!(build = %id, error = %left, "a build is not cleaned up"),
            }
            self.free_layers(&record, state, error.code).await;
            self.told(caller, &record, event, Some(error.message.clone())).await;
        } else if let Ok(image) = &result {
            // It is recorded: nothing may undo it. The next change of an image, or start of the server, loads it too.
            if let Err(error) = self.catalogue.load(&*self.store).await {
                tracing::warn!(build = %id, %error, "the catalogue of images was not loaded");
            }
            self.learn_indexes(image).await;
            if let Err(error) = self.warm(image, replaced, pool).await {
                log.line(format!("no containers of it are kept ready: {}", error.message));
            }
            // Last, so that a reader of the log who creates a sandbox at this line finds the image.
            log.line(format!("{} is ready", record.tag));
        }
        drop(guard);
        self.keep_logs().await;
        result.map(|image| {
            let created = event(caller, &image, EventKind::ImageCreated);
            (image, created)
        })
    }

    /// Of a pull that was cancelled no half-fetched layer is kept. Where the disk was full neither layers nor steps of builds
    /// are.
    async fn free_layers(&self, build: &BuildRecord, state: BuildState, code: ErrorCode) {
        let freed = match (build.origin, state, code) {
            (_, _, ErrorCode::DiskFull) => {
                let steps = self.forget_old_steps(Millis::MAX).await;
                self.layers.collect(Duration::ZERO).await.and(steps)
            }
            (ImageOrigin::Pull, BuildState::Cancelled, _) => self.layers.drop_partial().await,
            _ => Ok(()),
        };
        if let Err(error) = freed {
            tracing::warn!(build = %build.id, %error, "layers are not removed");
        }
    }

    async fn make(
        &self,
        builder: &Caller,
        build: &BuildRecord,
        new: NewBuild,
        running: &RunningBuild,
        work: Work,
    ) -> Result<ImageRecord> {
        let NewBuild { disk_mb, replace, sandbox, first, .. } = new;
        let volume = NewVolume { name: build.volume.to_string(), disk_mb: Some(disk_mb) };
        let volume = self.volumes.create_from(builder, volume, sandbox.base).await?;
        let context = |container| {
            let (log, volume) = (running.log.clone(), volume.clone());
            BuildContext { container, log, volume }
        };
        if let Some(FirstStage { sandbox, work }) = first {
            let id = first_sandbox(build.id);
            let container = self.start_sandbox(builder, build, id, &volume, sandbox).await?;
            bounded(running, work(context(container))).await?;
            self.sandboxes.end(id, "its stage of the build is complete").await?;
        }
        let container = self.start_sandbox(builder, build, build.sandbox, &volume, sandbox).await?;
        let built = bounded(running, work(context(container))).await?;
        // Nothing writes to the volume any more.
        self.sandboxes.end(build.sandbox, "the image is complete").await?;
        if running.is_cancelled() {
            return Err(cancelled());
        }
        self.record(build, &volume, built, replace).await
    }

    async fn start_sandbox(
        &self,
        builder: &Caller,
        build: &BuildRecord,
        id: SandboxId,
        volume: &VolumeRecord,
        sandbox: BuildSandbox,
    ) -> Result<Arc<dyn Container>> {
        let BuildSandbox { base: _, as_root, egress, disk_mb, memory_mb, cpu_cores, processes } = sandbox;
        let target =
            || AttachVolume { name: build.volume.to_string(), path: TARGET.into(), read_only: false };
        let request = CreateSandbox {
            image: Some(super::HOST.into()),
            profile: Some("build".into()),
            disk_mb: Some(disk_mb),
            memory_mb,
            cpu_cores,
            processes,
            network_enabled: egress.is_none().then_some(false),
            egress,
            labels: [(BUILD_LABEL.to_owned(), build.id.to_string())].into(),
            volumes: (!as_root).then(target).into_iter().collect(),
            ..CreateSandbox::default()
        };
        let root = as_root.then_some(volume.id);
        self.sandboxes.create_build(builder, id, request, root).await?;
        self.registry.container(id, "a build").await
    }

    /// Seals the volume, removes it and records the image.
    async fn record(
        &self,
        build: &BuildRecord,
        volume: &VolumeRecord,
        built: Built,
        replace: bool,
    ) -> Result<ImageRecord> {
        let Built { digest, source, config, defaults, about } = built;
        let AboutImage { display_name, description, packages } = about;
        let power = self.power(&volume.provider)?;
        power.seal(volume.id, build.image).await?;
        let sizes = power.list_images().await?;
        let record = ImageRecord {
            id: build.image,
            name: build.tag.name.clone(),
            tags: vec![build.tag.tag.clone()],
            display_name,
            description,
            digest,
            size_bytes: sizes.iter().find(|image| image.id == build.image).map_or(0, |image| image.bytes),
            origin: build.origin,
            source,
            provider: volume.provider.clone(),
            config,
            defaults,
            packages,
            package_indexes: None,
            approved: false,
            created_at: now_ms(),
            last_used_at: None,
            deleting: false,
        };
        self.volumes.end(volume).await?;
        match self.store.insert_image(record.clone(), build.id, replace).await? {
            Some(there) => Err(taken(&record.name, &there)),
            None => Ok(record),
        }
    }

    /// Sets how many containers of a new image are kept ready: as asked for, or as of the image whose tag it took.
    async fn warm(&self, image: &ImageRecord, replaced: Option<ImageId>, pool: PoolBounds) -> Result<()> {
        let old = replaced.map(ImageName::of);
        let settings = self.live_settings.now();
        let size = old.as_ref().and_then(|old| settings.pool_images.get(old.as_str()));
        let bounds = match (pool == PoolBounds::default(), size) {
            (true, Some(size)) => PoolBounds { min: Some(size.min), max: Some(size.max) },
            _ => pool,
        };
        let removed = old.filter(|_| size.is_some()).map(|old| (old.to_string(), None));
        let set =
            (bounds != PoolBounds::default()).then(|| (ImageName::of(image.id).to_string(), Some(bounds)));
        let images: BTreeMap<_, _> = removed.into_iter().chain(set).collect();
        if images.is_empty() {
            return Ok(());
        }
        let change = PoolChange { enabled: None, images };
        self.live_settings.change_by(&*self.store, |settings| change.settings(settings)).await.map(drop)
    }

    /// Removes everything that a build made whose image is not recorded; may be repeated.
    pub(super) async fn clean_up(&self, build: &BuildRecord) -> Result<()> {
        for sandbox in [first_sandbox(build.id), build.sandbox] {
            self.sandboxes.end(sandbox, "its build has ended").await?;
        }
        if let Some(volume) = self.store.volume(&build.owner, build.volume.as_str()).await? {
            self.volumes.end(&volume).await?;
        }
        self.power(self.providers.default_name())?.remove_image(build.image).await
    }

    /// Ends the record of a build of which nothing is left. Where that fails, the next start does it.
    pub(super) async fn end_build(&self, build: &BuildRecord, state: BuildState, why: &str) {
        let why = atoll_types::text::cut(why, LONGEST_ERROR).to_owned();
        if let Err(error) = self.store.end_build(build.id, state, Some(why), now_ms()).await {
            tracing::warn!(build = %build.id, %error, "the end of a build is not recorded");
        }
    }

    /// Fails the builds that a former server left running, and removes what they made.
    pub(super) async fn repair_builds(&self) -> Result<()> {
        for build in self.store.running_builds().await? {
            match self.clean_up(&build).await {
                Ok(()) => self.end_build(&build, BuildState::Failed, "the server ended meanwhile").await,
                Err(error) => tracing::warn!(build = %build.id, %error, "a build is not cleaned up"),
            }
        }
        self.keep_logs().await;
        Ok(())
    }
}

/// Waits for the work of a build. Only that is cut short: what makes and removes sandboxes and volumes is bounded, and is waited for.
async fn bounded<T>(running: &RunningBuild, work: BoxFuture<'static, Result<T>>) -> Result<T> {
    let late = || {
        let hours = LONGEST_BUILD.as_secs() / 3600;
        Error::new(ErrorCode::Timeout, format!("the build took more than {hours} hours"))
    };
    tokio::select! {
        biased;
        () = running.cancelled() => Err(cancelled()),
        done = tokio::time::timeout(LONGEST_BUILD, work) => done.map_err(|_| late())?,
    }
}

/// Refuses a name that no image can have, and adds the usual tag.
pub(super) fn tag_of(field: &str, text: &str) -> Result<ImageTag> {
    let wrong = || {
        let message =
            format!("{text:?} is no name of an image: expected NAME or NAME:TAG, such as python:3.12");
        Error::new(ErrorCode::InvalidArgument, message).at(field)
    };
    let tag = ImageTag::parse(text).ok_or_else(wrong)?;
    super::check_name(field, &tag.name)?;
    Ok(tag)
}
