//! Images on their way out: an OCI layout as a tar archive, which other tools read and which an import takes back.
//!
//! The files are one layer, packed in a container that has a copy of the image and nothing else of it; this process writes the
//! documents around it. The name of a layer's file is its digest, so the tool packs twice: to measure, and to send. Nothing
//! is kept on the way.

use super::{Images, build::TARGET, unknown};
use crate::{
    Caller,
    actor::{ExportCopy, LONGEST_EXPORT},
    files::{Outgoing, Tool, ToolOptions, answer_of},
    operation::OperationSpec,
};
use atoll_guest_tools::{
    LONGEST_LINE, PackImage, PackedLayer,
    archive::{END_MARK, file_head, small_file},
};
use atoll_oci::{Descriptor, Digest, Hasher, ImageDocuments, Layer, media};
use atoll_provider::Container;
use atoll_types::{Error, ErrorCode, ImageConfig, ImageRecord, ImageTag, Operation, Result};
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// An image as an archive. The audit row is written when it is dropped.
pub struct ImageExport {
    layer: LayerStream,
    /// What is before the layer, and behind it.
    front: Option<Bytes>,
    behind: Option<Bytes>,
    length: u64,
    note: Outgoing,
}

impl ImageExport {
    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = match self.front.take() {
            Some(front) => Ok(Some(front)),
            None => self.layer.next().await.map(|piece| piece.or_else(|| self.behind.take())),
        };
        self.note.count(&piece);
        piece
    }
}

/// The layer of an image, from the container that packs it.
pub(super) struct LayerStream {
    tool: Tool,
    /// The digest that all of it must have, and that of what came; none behind the end.
    digest: Digest,
    hasher: Option<Hasher>,
    left: u64,
    until: Instant,
    /// Behind the tool, which runs there.
    _copy: Arc<ExportCopy>,
}

impl LayerStream {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(hasher) = &mut self.hasher else { return Ok(None) };
        let late = |_| {
            let message = format!("the export took longer than {} minutes", LONGEST_EXPORT.as_secs() / 60);
            Error::new(ErrorCode::Timeout, message)
        };
        let piece = timeout_at(self.until, self.tool.next()).await.map_err(late)??;
        let other =
            || Error::new(ErrorCode::Unavailable, "the container packed other bytes than it measured");
        match &piece {
            Some(bytes) => {
                self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(other)?;
                hasher.update(bytes);
            }
            None => {
                let is = self.hasher.take().map(Hasher::finish);
                if self.left > 0 || is.as_ref() != Some(&self.digest) {
                    return Err(other());
                }
            }
        }
        Ok(piece)
    }
}

/// A container that has a copy of an image.
pub(super) struct ImageCopy {
    container: Arc<dyn Container>,
    copy: Arc<ExportCopy>,
    until: Instant,
}

impl ImageCopy {
    /// What the layer is going to be.
    pub(super) async fn measure(&self, gzip: bool) -> Result<PackedLayer> {
        let request = PackImage { path: TARGET.into(), gzip, measure: true };
        let tool = Tool::start(&self.container, "pack-image", &request, ToolOptions::default()).await?;
        answer_of(tool, LONGEST_LINE).await
    }

    /// The layer that was measured.
    pub(super) async fn pack(&self, layer: &PackedLayer, gzip: bool) -> Result<LayerStream> {
        let request = PackImage { path: TARGET.into(), gzip, measure: false };
        let tool = Tool::start(&self.container, "pack-image", &request, ToolOptions::default()).await?;
        let (digest, hasher) = (layer.digest.clone(), Some(Hasher::default()));
        Ok(LayerStream {
            tool,
            digest,
            hasher,
            left: layer.size,
            until: self.until,
            _copy: Arc::clone(&self.copy),
        })
    }
}

/// The documents of an image with this layer.
pub(super) fn documents(config: &ImageConfig, layer: &PackedLayer, gzip: bool) -> Result<ImageDocuments> {
    let ImageConfig { environment, user, ids: _, working_directory, entrypoint, command, labels, ports } =
        config.clone();
    let config = atoll_oci::ImageConfig {
        user: user.unwrap_or_default(),
        env: environment.into_iter().collect(),
        entrypoint,
        cmd: command,
        working_dir: working_directory.unwrap_or_default(),
        labels,
        exposed_ports: ports,
        ..atoll_oci::ImageConfig::default()
    };
    let PackedLayer { digest, diff_id, size } = layer.clone();
    let kind = if gzip { media::LAYER_GZIP } else { media::LAYER };
    let descriptor = Descriptor::new(kind, digest, size);
    ImageDocuments::new(&[Layer { descriptor, diff_id }], &config)
}

/// What an archive has before and behind its layer.
fn frame(documents: &ImageDocuments, layer: &PackedLayer, tag: &str) -> Result<(Vec<u8>, Vec<u8>)> {
    let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
    let mut front = small_file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    front.extend(small_file("index.json", &documents.index(tag)?));
    front.extend(small_file(&blob(&documents.manifest_descriptor().digest), &documents.manifest));
    front.extend(small_file(&blob(&documents.config_descriptor().digest), &documents.config));
    front.extend(file_head(&blob(&layer.digest), 0o644, 0, layer.size));
    let block = END_MARK.len() as u64 / 2;
    let padding = layer.size.next_multiple_of(block) - layer.size;
    let mut behind = vec![0; usize::try_from(padding).unwrap_or_default()];
    behind.extend(END_MARK);
    Ok((front, behind))
}

/// The tag that an image has in a layout: the one that a request names, or its first.
fn tag_in_layout(asked: &str, record: &ImageRecord) -> String {
    let own = ImageTag::parse(asked).filter(|tag| tag.name == record.name && record.tags.contains(&tag.tag));
    own.map(|tag| tag.tag).or_else(|| record.tags.first().cloned()).unwrap_or_else(|| "latest".into())
}

impl Images {
    /// An image as an OCI layout in a tar archive. An error is reported before the first byte.
    pub async fn export(&self, caller: &Caller, image: &str) -> Result<ImageExport> {
        let what = OperationSpec::new(Operation::ImageExport).with(image);
        let audited = self.operations.audited(caller, what).await?;
        match self.open_export(caller, image).await {
            Ok((layer, front, behind, length)) => {
                let (front, behind) = (Some(front.into()), Some(behind.into()));
                Ok(ImageExport { layer, front, behind, length, note: Outgoing::of_server(audited) })
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    async fn open_export(
        &self,
        caller: &Caller,
        image: &str,
    ) -> Result<(LayerStream, Vec<u8>, Vec<u8>, u64)> {
        let record = self.exportable(image).await?;
        let copy = self.copy_of(caller, &record).await?;
        let layer = copy.measure(false).await?;
        let documents = documents(&record.config, &layer, false)?;
        let (front, behind) = frame(&documents, &layer, &tag_in_layout(image, &record))?;
        let length = layer.size.saturating_add((front.len() + behind.len()) as u64);
        Ok((copy.pack(&layer, false).await?, front, behind, length))
    }

    /// The record of an image that is kept here.
    pub(super) async fn exportable(&self, image: &str) -> Result<ImageRecord> {
        let found = self.catalogue.find(image).ok_or_else(|| unknown(image))?;
        let own = || {
            let message = "the image host is the machine's own, whose files are not exported";
            Error::new(ErrorCode::Conflict, message)
        };
        let id = found.name.id().ok_or_else(own)?;
        self.store.image(id).await?.ok_or_else(|| unknown(image))
    }

    pub(super) async fn copy_of(&self, caller: &Caller, record: &ImageRecord) -> Result<ImageCopy> {
        let until = Instant::now() + LONGEST_EXPORT;
        let (copy, container) = self.registry.image_copy(&caller.owner, record, TARGET).await?;
        Ok(ImageCopy { container, copy: Arc::new(copy), until })
    }
}
