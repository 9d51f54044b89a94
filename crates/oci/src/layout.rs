//! The documents of an image that is made here. Of the same layers and configuration they are always the same bytes.

use crate::{Descriptor, Digest, ImageConfig, Index, Manifest, media};
use atoll_types::{Error, Result};
use std::collections::BTreeMap;

/// A layer of an image that is made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The blob.
    pub descriptor: Descriptor,
    /// The digest of its uncompressed bytes.
    pub diff_id: Digest,
}

/// The documents of an image, as they are written into a layout and pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDocuments {
    pub manifest: Vec<u8>,
    pub config: Vec<u8>,
    pub layers: Vec<Descriptor>,
}

fn document(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal(e.to_string()))
}

fn described(media_type: &str, bytes: &[u8]) -> Descriptor {
    Descriptor::new(media_type, Digest::of(bytes), bytes.len() as u64)
}

impl ImageDocuments {
    /// Those of an image with these layers, the lowest first.
    pub fn new(layers: &[Layer], config: &ImageConfig) -> Result<Self> {
        let diff_ids = layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let config = ImageConfig { diff_ids, ..config.clone() };
        config.check()?;
        let config = config.to_document()?;
        let layers: Vec<Descriptor> = layers.iter().map(|layer| layer.descriptor.clone()).collect();
        let manifest = document(&Manifest {
            schema_version: 2,
            media_type: Some(media::MANIFEST.into()),
            config: described(media::CONFIG, &config),
            layers: layers.clone(),
        })?;
        Ok(Self { manifest, config, layers })
    }

    /// The manifest's blob.
    #[must_use]
    pub fn manifest_descriptor(&self) -> Descriptor {
        described(media::MANIFEST, &self.manifest)
    }

    /// The configuration's blob.
    #[must_use]
    pub fn config_descriptor(&self) -> Descriptor {
        described(media::CONFIG, &self.config)
    }

    /// The `index.json` of a layout that has this image alone. `tag` is its name there.
    pub fn index(&self, tag: &str) -> Result<Vec<u8>> {
        let name = ("org.opencontainers.image.ref.name".to_owned(), tag.to_owned());
        let manifest = Descriptor { annotations: Some(BTreeMap::from([name])), ..self.manifest_descriptor() };
        document(&Index {
            schema_version: 2,
            media_type: Some(media::INDEX.into()),
            manifests: vec![manifest],
        })
    }
}
