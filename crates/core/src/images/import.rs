//! Images from archives: of `docker save`, an OCI layout, or a root filesystem. The archive is spooled into the sandbox of a build
//! and unpacked there, by a tool that refuses what is hostile.

use super::{
    ImageView, Images,
    build::{AboutImage, BuildContext, BuildSandbox, Built, NewBuild, TARGET, Work, tag_of},
    build_log::BuildLog,
    config::image_config,
    hidden::{name_hidden, name_left_out},
};
use crate::{
    Caller, PoolBounds,
    bounds::DISK_MB,
    files::{Tool, ToolOptions, answer_of},
    operation::OperationSpec,
    run_to_end::run_to_end,
};
use atoll_guest_tools::{ArchiveKind, ImageLimits, LONGEST_IMAGE_ANSWER, UnpackImage, UnpackedImage};
use atoll_provider::{Container, WriteOptions};
use atoll_types::{Error, ErrorCode, ImageDefaults, ImageOrigin, Operation, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const ARCHIVE: &str = "/workspace/archive";
const MIB: u64 = 1 << 20;
/// What the sandbox of a build has beside the archive.
const SLACK_MB: u64 = 64;

type Body = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// An archive that is to become an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportImage {
    /// NAME or NAME:TAG.
    pub name: String,
    /// Which of several images in the archive: its tag there.
    pub reference: Option<String>,
    /// Whether the tag may be another image's until now.
    pub replace: bool,
    /// What the image may hold; as the setting `images.max_mb` says where it is left out.
    pub disk_mb: Option<u64>,
    /// How long the archive is, where that is known.
    pub length: Option<u64>,
}

impl Images {
    /// Makes an image from an archive. Of an import that fails, or whose client goes away, nothing is left.
    pub async fn import(
        &self,
        caller: &Caller,
        request: ImportImage,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<ImageView> {
        let what = OperationSpec::new(Operation::ImageImport).with(&request.name);
        let audited = self.operations.audited(caller, what).await?;
        let (images, asker) = (self.clone(), caller.clone());
        // From here on it completes, or cleans up, whether the caller waits for it or not.
        let id = run_to_end("the import", async move {
            let mut audited = audited;
            let count = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&count);
            let body = body.inspect(move |piece| {
                counter.fetch_add(piece.as_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
            });
            let result = images.import_as(&asker, request, Box::pin(body)).await;
            audited.moved(count.load(Ordering::Relaxed));
            let result = result.map(|(record, event)| {
                audited.add_event(event);
                record.id
            });
            audited.done(result).await
        })
        .await?;
        self.get(caller, &id.to_string()).await
    }

    async fn import_as(
        &self,
        caller: &Caller,
        request: ImportImage,
        body: Body,
    ) -> Result<(atoll_types::ImageRecord, atoll_store::NewEvent)> {
        let ImportImage { name, reference, replace, disk_mb, length } = request;
        let disk_mb =
            super::within("disk_mb", disk_mb, &DISK_MB)?.unwrap_or(self.live_settings.now().images_max_mb);
        // A compressed archive lies beside what it unpacks to.
        let archive_mb = length.map_or(disk_mb, |bytes| bytes.div_ceil(MIB));
        let spool_mb = archive_mb.saturating_add(disk_mb).saturating_add(SLACK_MB);
        let new = NewBuild {
            tag: tag_of("name", &name)?,
            origin: ImageOrigin::Import,
            source: "an archive".into(),
            disk_mb,
            replace,
            sandbox: BuildSandbox { disk_mb: spool_mb.min(*DISK_MB.end()), ..BuildSandbox::default() },
            first: None,
            pool: PoolBounds::default(),
            most_of_owner: None,
        };
        let limits = ImageLimits { bytes: disk_mb.saturating_mul(MIB), ..ImageLimits::default() };
        let work: Work =
            Box::new(move |context| Box::pin(spool_and_unpack(context, body, reference, limits)));
        self.build(caller, new, work).await
    }
}

async fn spool_and_unpack(
    context: BuildContext,
    body: Body,
    reference: Option<String>,
    limits: ImageLimits,
) -> Result<Built> {
    let BuildContext { container, log, .. } = context;
    let written = container.guest().write_file(ARCHIVE, WriteOptions::default(), body).await;
    written.map_err(|e| match e.code {
        ErrorCode::DiskFull => Error::new(e.code, "the archive does not fit into the sandbox of the build"),
        _ => e,
    })?;
    log.line("unpacking the archive");
    unpack(&container, &log, reference, limits).await
}

/// Unpacks the archive in the sandbox of a build.
async fn unpack(
    container: &Arc<dyn Container>,
    log: &BuildLog,
    reference: Option<String>,
    limits: ImageLimits,
) -> Result<Built> {
    let request = UnpackImage { archive: ARCHIVE.into(), target: TARGET.into(), reference, limits };
    request.check()?;
    let tool = Tool::start(container, "unpack-image", &request, ToolOptions::default()).await?;
    let unpacked: UnpackedImage = answer_of(tool, LONGEST_IMAGE_ANSWER).await?;
    let UnpackedImage { kind, manifest_digest, config_digest, config, tags: _, layers } = unpacked;
    name_left_out(log, layers.iter().map(|layer| layer.left_out));
    let digest =
        manifest_digest.or(config_digest).or_else(|| layers.into_iter().next().map(|layer| layer.diff_id));
    let digest = digest.ok_or_else(|| Error::invalid("body", "the archive has no layer"))?;
    let source = match kind {
        ArchiveKind::DockerSave => "docker_save",
        ArchiveKind::OciLayout => "oci_layout",
        ArchiveKind::RootFilesystem => "root_filesystem",
    };
    let config = image_config(container, config.as_deref(), log).await?;
    name_hidden(container, log, TARGET).await;
    let (digest, defaults) = (digest.as_str().to_owned(), ImageDefaults::default());
    Ok(Built { digest, source: source.into(), config, defaults, about: AboutImage::default() })
}
