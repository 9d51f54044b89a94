//! Manifests and indices, of the Open Container Initiative and of Docker's registry, version 2.

use crate::{Digest, LARGEST_DOCUMENT, MOST_LAYERS};
use atoll_types::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Media types.
pub mod media {
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    pub const DOCKER_LAYER_PLAIN: &str = "application/vnd.docker.image.rootfs.diff.tar";
    pub const DOCKER_LAYER_ZSTD: &str = "application/vnd.docker.image.rootfs.diff.tar.zstd";
}

/// What a manifest is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Linux on this machine's architecture.
    #[must_use]
    pub fn this() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.into(), os: "linux".into(), variant: None }
    }

    /// Whether what is for `other` runs here. A variant of amd64 may need instructions that are not here, one of arm64 is
    /// always v8.
    #[must_use]
    pub fn runs(&self, other: &Self) -> bool {
        let variant = match other.variant.as_deref() {
            None | Some("" | "v1") => true,
            Some("v8") => self.architecture == "arm64",
            Some(variant) => self.variant.as_deref() == Some(variant),
        };
        self.os == other.os && self.architecture == other.architecture && variant
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

/// A blob, as another document names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// A blob without platform and annotations.
    #[must_use]
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self { media_type: media_type.into(), digest, size, platform: None, annotations: None }
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether it is an index rather than a manifest.
    #[must_use]
    pub fn is_index(&self) -> bool {
        matches!(self.media_type.as_str(), media::INDEX | media::DOCKER_INDEX)
    }
}

/// One image: a configuration and layers, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// Images, usually one for each platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub manifests: Vec<Descriptor>,
}

/// What a reference leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Manifest(Manifest),
    Index(Index),
}

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("manifest", message)
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unsupported, message)
}

impl Document {
    /// Reads a manifest or an index. One that could be read as either is refused, whatever media type it comes with.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            #[serde(default)]
            schema_version: u32,
            config: Option<serde_json::Value>,
            layers: Option<serde_json::Value>,
            manifests: Option<serde_json::Value>,
        }
        if bytes.len() as u64 > LARGEST_DOCUMENT {
            return Err(wrong(format!("a manifest has more than {LARGEST_DOCUMENT} bytes")));
        }
        let broken = |e: serde_json::Error| wrong(format!("the manifest cannot be read: {e}"));
        let shape: Shape = serde_json::from_slice(bytes).map_err(broken)?;
        if shape.schema_version != 2 {
            return Err(unsupported(format!(
                "the manifest has version {}, and only 2 is read",
                shape.schema_version
            )));
        }
        match (shape.manifests.is_some(), shape.layers.is_some() || shape.config.is_some()) {
            (true, false) => Ok(Self::Index(serde_json::from_slice(bytes).map_err(broken)?)),
            (false, true) => {
                let manifest: Manifest = serde_json::from_slice(bytes).map_err(broken)?;
                manifest.check()?;
                Ok(Self::Manifest(manifest))
            }
            (true, true) => Err(wrong("the manifest is an index as well")),
            (false, false) => Err(wrong("the manifest has neither layers nor manifests")),
        }
    }
}

impl Manifest {
    fn check(&self) -> Result<()> {
        if self.layers.len() > MOST_LAYERS {
            return Err(wrong(format!(
                "the image has {} layers, and at most {MOST_LAYERS} are read",
                self.layers.len()
            )));
        }
        if self.config.size > LARGEST_DOCUMENT {
            return Err(wrong(format!("the image's configuration has more than {LARGEST_DOCUMENT} bytes")));
        }
        match self.layers.iter().find(|layer| !is_layer(&layer.media_type)) {
            Some(layer) => Err(unsupported(format!(
                "layer {} is of type {:?}, which is not supported",
                layer.digest, layer.media_type
            ))),
            None => Ok(()),
        }
    }

    /// Bytes of all layers as they are in the registry.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

fn is_layer(media_type: &str) -> bool {
    use media::{DOCKER_LAYER, DOCKER_LAYER_PLAIN, DOCKER_LAYER_ZSTD, LAYER, LAYER_GZIP, LAYER_ZSTD};
    [LAYER, LAYER_GZIP, LAYER_ZSTD, DOCKER_LAYER, DOCKER_LAYER_PLAIN, DOCKER_LAYER_ZSTD].contains(&media_type)
}

impl Index {
    /// The manifest for a platform; of an index without platforms the only one.
    pub fn select(&self, platform: &Platform) -> Result<&Descriptor> {
        let runs = |d: &&Descriptor| d.platform.as_ref().is_some_and(|other| platform.runs(other));
        if let Some(found) = self.manifests.iter().find(runs) {
            return Ok(found);
        }
        match self.manifests.as_slice() {
            [one] if one.platform.is_none() => Ok(one),
            [] => Err(wrong("the index names no image")),
            all => {
                let names: Vec<String> = all
                    .iter()
                    .filter_map(|d| d.platform.as_ref().map(ToString::to_string))
                    .filter(|name| name != "unknown/unknown")
                    .take(20)
                    .collect();
                Err(unsupported(format!("the image is not for {platform}, but for {}", names.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(media_type: &str, platform: &str) -> serde_json::Value {
        let mut value = serde_json::json!({"mediaType": media_type, "digest": Digest::of(b""), "size": 1});
        if let Some((os, architecture)) = platform.split_once('/') {
            value["platform"] = serde_json::json!({"os": os, "architecture": architecture});
        }
        value
    }

    #[test]
    fn the_platform_decides_and_what_there_is_is_said() {
        let index = |platforms: &[&str]| {
            let manifests: Vec<_> = platforms.iter().map(|p| descriptor(media::MANIFEST, p)).collect();
            let text = serde_json::json!({"schemaVersion": 2, "manifests": manifests}).to_string();
            match Document::parse(text.as_bytes()).unwrap() {
                Document::Index(index) => index,
                Document::Manifest(_) => panic!("a manifest"),
            }
        };
        let amd64 = Platform { architecture: "amd64".into(), os: "linux".into(), variant: None };
        let many = index(&["linux/arm64", "windows/amd64", "linux/amd64", "unknown/unknown"]);
        assert_eq!(many.select(&amd64).unwrap(), &many.manifests[2]);
        assert!(index(&[""]).select(&amd64).is_ok());
        let error = index(&["linux/arm64", "unknown/unknown"]).select(&amd64).unwrap_err();
        assert_eq!(error.message, "the image is not for linux/amd64, but for linux/arm64");
        assert!(index(&[]).select(&amd64).is_err());
        let v3 = Platform { variant: Some("v3".into()), ..amd64.clone() };
        assert!(!amd64.runs(&v3));
    }

    #[test]
    fn what_could_be_two_things_or_is_none_is_refused() {
        let layer = |media_type: &str| {
            serde_json::json!({"schemaVersion": 2, "config": descriptor(media::CONFIG, ""),
                "layers": [descriptor(media_type, "")]})
        };
        let refused =
            |value: &serde_json::Value| Document::parse(value.to_string().as_bytes()).unwrap_err().message;
        assert!(Document::parse(layer(media::LAYER_ZSTD).to_string().as_bytes()).is_ok());
        let mut both = layer(media::LAYER);
        both["manifests"] = serde_json::json!([]);
        assert_eq!(refused(&both), "the manifest is an index as well");
        assert!(
            refused(&layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"))
                .contains("not supported")
        );
        assert!(refused(&serde_json::json!({"schemaVersion": 1, "fsLayers": []})).contains("version 1"));
        assert!(refused(&serde_json::json!({"schemaVersion": 2})).contains("neither"));
        let mut vast = layer(media::LAYER);
        vast["config"]["size"] = (LARGEST_DOCUMENT + 1).into();
        assert!(refused(&vast).contains("configuration"));
    }
}
