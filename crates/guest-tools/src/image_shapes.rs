//! Requests and answers of the tools that write and read images' root filesystems. They run in a build sandbox, as its
//! root, on the volume that becomes the image. An answer is one line of JSON, which the host trusts no more than any other.
//!
//! A refused layer or archive leaves what was written before it; the caller discards the volume.

use crate::checked_path;
use atoll_oci::Digest;
use atoll_types::{Error, Result};
use serde::{Deserialize, Serialize};

/// Most bytes of an image's layers, uncompressed and together.
pub const MOST_IMAGE_BYTES: u64 = 256 << 30;
/// Most entries of an image's layers, together.
pub const MOST_IMAGE_ENTRIES: u64 = 4_000_000;
/// Most layers of an image.
pub const MOST_LAYERS: u32 = atoll_oci::MOST_LAYERS as u32;
/// Folders on the way to an entry.
pub const DEEPEST_ENTRY: usize = 128;
/// The longest path of an entry; the kernel takes no longer one.
pub const LONGEST_ENTRY: usize = 4095;
/// The longest name in a path.
pub const LONGEST_NAME: usize = 255;
/// How many times larger than its compressed bytes a layer may become. gzip cannot reach it, so this stops zstd's
/// bombs; those of gzip meet the limit of bytes.
pub const MOST_RATIO: u64 = 1100;
/// Bytes of a layer that the ratio is not asked of.
pub const RATIO_FREE: u64 = 16 << 20;
/// Ids of files are below it.
pub const ID_LIMIT: u64 = 65_536;
/// The longest answer of [`UnpackImage`]: a configuration with every character escaped, and its layers.
pub const LONGEST_IMAGE_ANSWER: usize = 8 << 20;

/// How the bytes of a layer or an archive are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// What the first bytes say.
    #[default]
    Detect,
    /// A tar archive as it is.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// What layers may hold. A value above the constant of its name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageLimits {
    /// Uncompressed bytes of all layers.
    pub bytes: u64,
    /// Entries of all layers.
    pub entries: u64,
    /// Layers.
    pub layers: u32,
    /// Uncompressed bytes for each compressed one.
    pub ratio: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: MOST_IMAGE_ENTRIES, layers: MOST_LAYERS, ratio: MOST_RATIO }
    }
}

/// The tool `apply-layer`: one layer from stdin onto a folder that has the layers below it. Its answer is
/// [`AppliedLayer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyLayer {
    /// The folder.
    pub target: String,
    /// How the layer is compressed.
    #[serde(default)]
    pub compression: Compression,
    /// The digest that the layer's bytes must have as they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The digest that the uncompressed layer must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_id: Option<Digest>,
    /// What is left for this layer.
    #[serde(default)]
    pub limits: ImageLimits,
    /// Whether it is an ordinary archive and no layer: a name that begins with `.wh.` is then a name like any other.
    #[serde(default)]
    pub plain: bool,
}

/// The tool `unpack-image`: an archive that lies as a file in the sandbox, into an empty folder. Its answer is [`UnpackedImage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnpackImage {
    /// An archive of `docker save`, an OCI layout as a tar archive, or the tar archive of a root filesystem; each also
    /// compressed.
    pub archive: String,
    /// The folder.
    pub target: String,
    /// Which of several images: its tag in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What the image may hold.
    #[serde(default)]
    pub limits: ImageLimits,
}

/// The tool `pack-image`: a folder as the tar archive of one layer on stdout, in the order of names, with ids, hard
/// links, FIFOs and extended attributes. Of the same files it is always the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackImage {
    /// The folder.
    pub path: String,
    /// Whether the layer is compressed with gzip.
    #[serde(default)]
    pub gzip: bool,
    /// Answer with [`PackedLayer`] in the place of the bytes: a header in front of them needs to know it.
    #[serde(default)]
    pub measure: bool,
}

/// What a folder is as a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedLayer {
    /// Of the bytes, which are compressed where that was asked for.
    pub digest: Digest,
    /// Of the uncompressed archive.
    pub diff_id: Digest,
    /// How many bytes.
    pub size: u64,
}

/// What a layer holds that was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeftOut {
    /// Devices below `dev/`: a container has its own.
    pub devices: u64,
    /// Extended attributes that are neither `user.*` nor `security.capability`, or that the file system does not keep.
    pub xattrs: u64,
    /// Notes that AUFS made for itself (`.wh..wh.*`).
    pub notes: u64,
}

/// What was made of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedLayer {
    /// Of the bytes as they came.
    pub digest: Digest,
    /// Of the uncompressed layer.
    pub diff_id: Digest,
    /// How it was compressed.
    pub compression: Compression,
    /// Entries, whiteouts among them.
    pub entries: u64,
    /// Bytes of the uncompressed layer.
    pub bytes: u64,
    /// What was not written.
    #[serde(default)]
    pub left_out: LeftOut,
}

/// What an archive turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveKind {
    DockerSave,
    OciLayout,
    RootFilesystem,
}

/// What was made of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnpackedImage {
    /// What it was.
    pub kind: ArchiveKind,
    /// The digest of its manifest; an old `docker save` and a root filesystem have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<Digest>,
    /// The digest of its configuration; a root filesystem has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<Digest>,
    /// The configuration, as the JSON text that the digest is of. `atoll_oci::ImageConfig` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The names that the archive gives to the image.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Its layers, the lowest first.
    pub layers: Vec<AppliedLayer>,
}

impl ImageLimits {
    fn check(&self) -> Result<()> {
        let Self { bytes, entries, layers, ratio } = *self;
        let most = [
            ("bytes", bytes, MOST_IMAGE_BYTES),
            ("entries", entries, MOST_IMAGE_ENTRIES),
            ("layers", layers.into(), MOST_LAYERS.into()),
            ("ratio", ratio, MOST_RATIO),
        ];
        match most.into_iter().find(|(_, value, most)| value > most) {
            Some((name, _, most)) => {
                Err(Error::invalid(format!("limits.{name}"), format!("limits.{name} must be at most {most}")))
            }
            None => Ok(()),
        }
    }
}

impl ApplyLayer {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("target", &self.target)?;
        self.limits.check()
    }
}

impl UnpackImage {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("archive", &self.archive)?;
        checked_path("target", &self.target)?;
        self.limits.check()
    }
}

impl PackImage {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)
    }
}
