//! The making of an image, in a sandbox of its own. Sandbox and volume belong to an owner that no key has ([`BUILD_OWNER`]): only
//! admins see them, so that a key of the caller's owner without that scope cannot change what every owner will run. The sandbox
//! has the volume that becomes the image at `/image`. Nothing that an image holds is read or unpacked by this process.
//!
//! The build is recorded with everything that it makes before it makes any of it. Sandbox and volume are removed before the image
//! is recorded, which also ends the build; until then a failure, or the next start of the server, removes everything.

use super::{Images, event, taken};
use crate::{AttachVolume, Caller, CreateSandbox, NewVolume};
use atoll_provider::Container;
use atoll_store::{NewEvent, SandboxId};
use atoll_types::{
    BuildId, BuildRecord, BuildState, Error, ErrorCode, ImageConfig, ImageDefaults, ImageId, ImageOrigin,
    ImageRecord, ImageTag, Result, VolumeName, VolumeRecord, time::now_ms,
};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Where the volume that becomes the image is, in the sandbox of a build.
pub(super) const TARGET: &str = "/image";
/// The label of a sandbox that builds an image: the build's id.
pub const BUILD_LABEL: &str = "atoll.build";
/// The owner of sandboxes and volumes that build images. The owner of a key is a UUID.
pub(super) const BUILD_OWNER: &str = "atoll.build";
/// The longest error that is kept of a build.
const LONGEST_ERROR: usize = 500;

/// What to make.
pub(super) struct NewBuild {
    pub(super) tag: ImageTag,
    pub(super) origin: ImageOrigin,
    pub(super) source: String,
    /// What the image may hold.
    pub(super) disk_mb: u64,
    /// What the sandbox may hold beside it.
    pub(super) spool_mb: u64,
    /// Whether the tag may be another image's until now.
    pub(super) replace: bool,
}

/// Fills the volume in the sandbox.
pub(super) type Work = Box<dyn FnOnce(Arc<dyn Container>) -> BoxFuture<'static, Result<Built>> + Send>;

/// What the work in the sandbox made.
pub(super) struct Built {
    pub(super) digest: String,
    pub(super) source: String,
    pub(super) config: ImageConfig,
}

impl Images {
    /// Makes an image: `work` fills the volume in the sandbox. Of a build that fails nothing is left but its record.
    pub(super) async fn build(
        &self,
        caller: &Caller,
        new: NewBuild,
        work: Work,
    ) -> Result<(ImageRecord, NewEvent)> {
        let NewBuild { tag, origin, source, disk_mb, spool_mb, replace } = new;
        let provider = self.providers.default_name().clone();
        self.power(&provider)?;
        if !replace && let Some(there) = self.catalogue.find(&tag.to_string()).and_then(|found| found.record)
        {
            return Err(taken(&tag.name, &there));
        }
        let builder = &Caller { owner: BUILD_OWNER.into(), owner_name: BUILD_OWNER.into(), ..caller.clone() };
        let id = BuildId::random();
        let name: VolumeName =
            format!("build-{id}").parse().map_err(|_| Error::internal("a build has no name"))?;
        let build = BuildRecord {
            id,
            image: ImageId::random(),
            tag: tag.clone(),
            origin,
            source,
            owner: builder.owner.clone(),
            sandbox: SandboxId::random(),
            volume: name.clone(),
            state: BuildState::Running,
            error: None,
            created_at: now_ms(),
            ended_at: None,
        };
        self.store.insert_build(build.clone()).await?;
        let made = async {
            let volume = self
                .volumes
                .create(builder, NewVolume { name: name.to_string(), disk_mb: Some(disk_mb) })
                .await?;
            let built = self.fill(builder, &build, spool_mb, work).await?;
            // Nothing writes to the volume any more.
            self.sandboxes.end(build.sandbox, "the image is complete").await?;
            self.record(&build, &volume, built, replace).await
        };
        match made.await {
            Ok(record) => {
                // It is recorded: nothing may undo it. The next change of an image, or start of the server, loads it too.
                if let Err(error) = self.catalogue.load(&*self.store).await {
                    tracing::warn!(build = %id, %error, "the catalogue of images was not loaded");
                }
                let created = event(caller, &record, "image.created");
                Ok((record, created))
            }
            Err(error) => {
                match self.clean_up(&build).await {
                    Ok(()) => self.end_build(&build, BuildState::Failed, &error.message).await?,
                    // It is still running for the next start, which tries again.
                    Err(left) => tracing::warn!(build = %id, error = %left, "a build is not cleaned up"),
                }
                Err(error)
            }
        }
    }

    async fn fill(&self, caller: &Caller, build: &BuildRecord, spool_mb: u64, work: Work) -> Result<Built> {
        let volume = AttachVolume { name: build.volume.to_string(), path: TARGET.into(), read_only: false };
        let request = CreateSandbox {
            image: Some(super::HOST.into()),
            profile: Some("build".into()),
            disk_mb: Some(spool_mb),
            labels: [(BUILD_LABEL.to_owned(), build.id.to_string())].into(),
            volumes: vec![volume],
            ..CreateSandbox::default()
        };
        self.sandboxes.create_with_id(caller, build.sandbox, request).await?;
        work(self.registry.container(build.sandbox, "a build").await?).await
    }

    /// Seals the volume, removes it and records the image.
    async fn record(
        &self,
        build: &BuildRecord,
        volume: &VolumeRecord,
        built: Built,
        replace: bool,
    ) -> Result<ImageRecord> {
        let Built { digest, source, config } = built;
        let power = self.power(&volume.provider)?;
        power.seal(volume.id, build.image).await?;
        let sizes = power.list_images().await?;
        let record = ImageRecord {
            id: build.image,
            name: build.tag.name.clone(),
            tags: vec![build.tag.tag.clone()],
            display_name: None,
            description: None,
            digest,
            size_bytes: sizes.iter().find(|image| image.id == build.image).map_or(0, |image| image.bytes),
            origin: build.origin,
            source,
            provider: volume.provider.clone(),
            config,
            defaults: ImageDefaults::default(),
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

    /// Removes everything that a build made whose image is not recorded; may be repeated.
    async fn clean_up(&self, build: &BuildRecord) -> Result<()> {
        self.sandboxes.end(build.sandbox, "its build has ended").await?;
        if let Some(volume) = self.store.volume(&build.owner, build.volume.as_str()).await? {
            self.volumes.end(&volume).await?;
        }
        self.power(self.providers.default_name())?.remove_image(build.image).await
    }

    async fn end_build(&self, build: &BuildRecord, state: BuildState, why: &str) -> Result<()> {
        let why = atoll_types::text::cut(why, LONGEST_ERROR).to_owned();
        Ok(self.store.end_build(build.id, state, Some(why), now_ms()).await?)
    }

    /// Fails the builds that a former server left running, and removes what they made.
    pub(super) async fn repair_builds(&self) -> Result<()> {
        for build in self.store.running_builds().await? {
            match self.clean_up(&build).await {
                Ok(()) => self.end_build(&build, BuildState::Failed, "the server ended meanwhile").await?,
                Err(error) => tracing::warn!(build = %build.id, %error, "a build is not cleaned up"),
            }
        }
        Ok(())
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
