//! Images as the Open Container Initiative describes them: references, manifests and configurations, pulled from
//! registries into a folder of blobs, and pushed.
//!
//! Layers are bytes with a digest here: nothing in this crate looks into one. They are unpacked inside a build sandbox.
//! Everything that a registry sends is hostile: each document has a length limit, each blob has the digest and the size
//! that its manifest says or does not exist, and each address that a registry leads to is asked of [`Network`].

#[cfg(feature = "registry")]
mod auth_file;
#[cfg(feature = "registry")]
mod blobs;
mod config;
mod digest;
mod layout;
mod manifest;
#[cfg(feature = "registry")]
mod network;
#[cfg(feature = "registry")]
mod pull;
#[cfg(feature = "registry")]
mod push;
mod reference;
#[cfg(feature = "registry")]
mod registry;

#[cfg(feature = "registry")]
pub use blobs::{BlobUsage, Blobs};
pub use config::ImageConfig;
pub use digest::{Digest, Hasher};
pub use layout::{ImageDocuments, Layer};
pub use manifest::{Descriptor, Document, Index, Manifest, Platform, media};
#[cfg(feature = "registry")]
pub use network::Network;
#[cfg(feature = "registry")]
pub use pull::{PullEvent, PullLimits, PulledImage, PulledLayer};
#[cfg(feature = "registry")]
pub use push::LayerSource;
pub use reference::Reference;
#[cfg(feature = "registry")]
pub use registry::{Credentials, Registries};

/// The largest manifest, index, configuration or token. Its reader holds it in memory.
pub const LARGEST_DOCUMENT: u64 = 1 << 20;
/// Most layers of an image.
pub const MOST_LAYERS: usize = 512;
