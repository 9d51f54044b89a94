//! Images made here: their configuration and manifest, and an OCI layout as one archive. Of the same layers and
//! configuration it is always the same bytes.

use crate::{Blobs, Descriptor, ImageConfig, Index, Layer, Manifest, blobs::failed, media};
use atoll_types::{Error, Result};
use std::{collections::BTreeMap, io};
use tar::{EntryType, Header};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

const BLOCK: u64 = 512;

/// An image whose blobs are all there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BuiltImage {
    pub manifest: Descriptor,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

fn document(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal(e.to_string()))
}

/// Adds configuration and manifest of an image with these layers, the lowest first.
pub async fn build_image(blobs: &Blobs, layers: &[Layer], config: &ImageConfig) -> Result<BuiltImage> {
    let diff_ids = layers.iter().map(|layer| layer.diff_id.clone()).collect();
    let config = ImageConfig { diff_ids, ..config.clone() };
    config.check()?;
    let bytes = config.to_document()?;
    let config = Descriptor::new(media::CONFIG, blobs.put(&bytes).await?, bytes.len() as u64);
    let layers: Vec<Descriptor> = layers.iter().map(|layer| layer.descriptor.clone()).collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::MANIFEST.into()),
        config: config.clone(),
        layers: layers.clone(),
    };
    let bytes = document(&manifest)?;
    let manifest = Descriptor::new(media::MANIFEST, blobs.put(&bytes).await?, bytes.len() as u64);
    Ok(BuiltImage { manifest, config, layers })
}

/// Writes an OCI layout with one image as a tar archive. `tag` is its name there.
pub async fn write_layout(
    blobs: &Blobs,
    image: &BuiltImage,
    tag: Option<&str>,
    out: &mut (impl AsyncWrite + Unpin + Send),
) -> Result<()> {
    let mut manifest = image.manifest.clone();
    manifest.annotations =
        tag.map(|tag| BTreeMap::from([("org.opencontainers.image.ref.name".to_owned(), tag.to_owned())]));
    let index = Index { schema_version: 2, media_type: Some(media::INDEX.into()), manifests: vec![manifest] };
    let gone = |e: io::Error| {
        Error::new(atoll_types::ErrorCode::Unavailable, format!("the archive cannot be written: {e}"))
    };
    for (name, body) in
        [("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()), ("index.json", document(&index)?)]
    {
        out.write_all(&header(name, EntryType::Regular, body.len() as u64)).await.map_err(gone)?;
        out.write_all(&body).await.map_err(gone)?;
        out.write_all(&padding(body.len() as u64)).await.map_err(gone)?;
    }
    for name in ["blobs/", "blobs/sha256/"] {
        out.write_all(&header(name, EntryType::Directory, 0)).await.map_err(gone)?;
    }
    let mut all: Vec<&Descriptor> =
        [&image.manifest, &image.config].into_iter().chain(&image.layers).collect();
    all.sort_by(|a, b| a.digest.cmp(&b.digest));
    all.dedup_by(|a, b| a.digest == b.digest);
    for blob in all {
        let name = format!("blobs/sha256/{}", blob.digest.hex());
        out.write_all(&header(&name, EntryType::Regular, blob.size)).await.map_err(gone)?;
        let file = tokio::fs::File::open(blobs.path(&blob.digest)).await.map_err(|e| failed(&e))?;
        let copied = tokio::io::copy(&mut file.take(blob.size), out).await.map_err(gone)?;
        if copied != blob.size {
            return Err(Error::internal(format!(
                "{} has {copied} bytes, and not {}",
                blob.digest, blob.size
            )));
        }
        out.write_all(&padding(blob.size)).await.map_err(gone)?;
    }
    out.write_all(&[0; 2 * BLOCK as usize]).await.map_err(gone)?;
    out.flush().await.map_err(gone)
}

fn header(name: &str, kind: EntryType, size: u64) -> [u8; BLOCK as usize] {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    if let Some(fields) = header.as_gnu_mut() {
        let length = name.len().min(fields.name.len());
        fields.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    }
    header.set_cksum();
    *header.as_bytes()
}

fn padding(size: u64) -> Vec<u8> {
    vec![0; usize::try_from((BLOCK - size % BLOCK) % BLOCK).unwrap_or(0)]
}
