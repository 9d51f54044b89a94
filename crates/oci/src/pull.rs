//! Pulls an image: its manifest for this machine, its configuration, and its layers into the blobs. A pull that is dropped
//! ends; the next one continues where it was.

use crate::{
    Blobs, Credentials, Descriptor, Digest, Document, Hasher, ImageConfig, Manifest, Platform, Reference,
    Registries,
    blobs::failed,
    media,
    registry::{ANSWER_TIMEOUT, Session, unusable},
};
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use hyper::{
    Method, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderMap, HeaderValue},
};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::sync::OwnedMutexGuard;

/// Layers that one pull fetches at a time.
const AT_ONCE: usize = 3;
/// Requests for one blob, one after another.
const MOST_REQUESTS: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// Bytes between two events.
const STEP: u64 = 1 << 20;
/// Indices that lead to a manifest.
const MOST_INDICES: usize = 3;

/// What an image in a registry may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullLimits {
    /// Bytes of its layers, as they come.
    pub bytes: u64,
    /// Layers.
    pub layers: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self { bytes: 32 << 30, layers: crate::MOST_LAYERS }
    }
}

/// How a pull goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullEvent {
    /// The manifest was read.
    Resolved {
        /// Its digest.
        manifest: Digest,
        /// The layers that it names.
        layers: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// Bytes of a layer came. The first event of one that has to be fetched says how many are there from before; that of one that
    /// is there already says all.
    Layer {
        /// Which.
        digest: Digest,
        /// Bytes that are there.
        done: u64,
        /// Bytes that it has.
        size: u64,
    },
}

/// A layer of a pulled image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledLayer {
    /// The blob.
    pub descriptor: Descriptor,
    /// The digest that its uncompressed bytes must have.
    pub diff_id: Digest,
}

/// An image whose blobs are all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledImage {
    /// The manifest for this machine.
    pub manifest_digest: Digest,
    /// The configuration.
    pub config_digest: Digest,
    /// What it says.
    pub config: ImageConfig,
    /// The layers, the lowest first.
    pub layers: Vec<PulledLayer>,
}

fn too_large(message: String) -> Error {
    Error::new(ErrorCode::TooLarge, message)
}

impl Registries {
    /// Pulls an image into the blobs. Dropping the future cancels the pull.
    pub async fn pull(
        &self,
        blobs: &Blobs,
        reference: &Reference,
        credentials: &Credentials,
        limits: &PullLimits,
        progress: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<PulledImage> {
        let session = self.session(reference, credentials, "pull")?;
        let (manifest_digest, manifest) = session.manifest(blobs, reference).await?;
        let Manifest { config, layers, .. } = &manifest;
        let bytes = manifest.layer_bytes();
        if layers.len() > limits.layers {
            return Err(too_large(format!(
                "the image has {} layers, and {} are allowed",
                layers.len(),
                limits.layers
            )));
        }
        if bytes > limits.bytes {
            return Err(too_large(format!(
                "the image's layers have {bytes} bytes, and {} are allowed",
                limits.bytes
            )));
        }
        progress(PullEvent::Resolved { manifest: manifest_digest.clone(), layers: layers.len(), bytes });
        let text = session.document(&format!("blobs/{}", config.digest), "*/*", Some(&config.digest)).await?;
        let image = ImageConfig::parse(&text)?;
        let here = Platform::this();
        if !here.runs(&image.platform) {
            let message = format!("the image is for {}, and this machine is {here}", image.platform);
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        if image.diff_ids.len() != layers.len() {
            let (is, said) = (layers.len(), image.diff_ids.len());
            let message = format!("the image has {is} layers, and its configuration says {said}");
            return Err(Error::invalid("manifest", message));
        }
        blobs.put(&text).await?;
        let fetches: Vec<_> = layers.iter().map(|layer| session.blob(blobs, layer, progress)).collect();
        stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        let layers = layers.iter().cloned().zip(image.diff_ids.iter().cloned());
        let layers = layers.map(|(descriptor, diff_id)| PulledLayer { descriptor, diff_id }).collect();
        Ok(PulledImage { manifest_digest, config_digest: config.digest.clone(), config: image, layers })
    }
}

impl Session<'_> {
    /// The manifest for this machine.
    async fn manifest(&self, blobs: &Blobs, reference: &Reference) -> Result<(Digest, Manifest)> {
        let accept = [media::MANIFEST, media::INDEX, media::DOCKER_MANIFEST, media::DOCKER_INDEX].join(", ");
        let mut wanted = reference.digest().cloned();
        for _ in 0..MOST_INDICES {
            let name = match &wanted {
                Some(digest) => digest.as_str(),
                None => reference.tag().unwrap_or("latest"),
            };
            let bytes = self.document(&format!("manifests/{name}"), &accept, wanted.as_ref()).await?;
            match Document::parse(&bytes)? {
                Document::Manifest(manifest) => return Ok((blobs.put(&bytes).await?, manifest)),
                Document::Index(index) => wanted = Some(index.select(&Platform::this())?.digest.clone()),
            }
        }
        Err(unusable(self.authority(), "an index in an index in an index"))
    }

    /// Fetches a blob, unless it is there; one that another pull fetches is waited for.
    async fn blob(
        &self,
        blobs: &Blobs,
        layer: &Descriptor,
        progress: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<()> {
        let Descriptor { digest, size, .. } = layer;
        let told = |done| progress(PullEvent::Layer { digest: digest.clone(), done, size: *size });
        let alone = blobs.lock(digest).await;
        match blobs.size(digest).await? {
            Some(there) if there == *size => {
                blobs.touch(digest).await;
                told(*size);
                return Ok(());
            }
            // The disk has damaged it since it was fetched.
            Some(_) if blobs.remove_damaged(digest).await? => {}
            Some(there) => return Err(self.wrong_size(digest, there, *size)),
            None => {}
        }
        let mut partial = Partial::open(blobs, digest, *size, alone).await?;
        told(partial.done);
        let mut wait = FIRST_WAIT;
        let mut last = None;
        for request in 0..MOST_REQUESTS {
            if partial.done == *size {
                break;
            }
            if request > 0 {
                tokio::time::sleep(wait).await;
                wait = (2 * wait).min(LONGEST_WAIT);
            }
            match self.fetch(&mut partial, layer, &told).await {
                Ok(()) => {}
                Err(error) if error.code == ErrorCode::Unavailable => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        if partial.done < *size {
            return Err(last.unwrap_or_else(|| self.wrong_size(digest, partial.done, *size)));
        }
        partial
            .finish(blobs, digest)
            .await?
            .then_some(())
            .ok_or_else(|| unusable(self.authority(), &format!("other bytes than those of {digest}")))
    }

    fn wrong_size(&self, digest: &Digest, is: u64, said: u64) -> Error {
        unusable(self.authority(), &format!("{is} bytes for {digest}, and its manifest says {said}"))
    }

    /// One request for what is missing of a blob.
    async fn fetch(
        &self,
        partial: &mut Partial,
        layer: &Descriptor,
        told: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<()> {
        let mut headers = HeaderMap::new();
        if partial.done > 0 {
            let range = HeaderValue::try_from(format!("bytes={}-", partial.done));
            headers.insert(header::RANGE, range.map_err(|e| Error::internal(e.to_string()))?);
        }
        let url = self.url(&format!("blobs/{}", layer.digest))?;
        let response = self.send(Method::GET, url, &headers).await?;
        match response.status() {
            StatusCode::OK => partial.restart().await?,
            StatusCode::PARTIAL_CONTENT if begins(&response) == Some(partial.done) => {}
            // What is here is of no use to this registry; the next request is for all of it.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                return partial.restart().await;
            }
            _ => return Err(self.failure(response, "a layer").await),
        }
        let mut body = response.into_body();
        let mut next = partial.done + STEP;
        loop {
            let silent =
                || Error::new(ErrorCode::Unavailable, format!("{} sends nothing more", self.authority()));
            let frame = tokio::time::timeout(ANSWER_TIMEOUT, body.frame()).await.map_err(|_| silent())?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|e| {
                Error::new(ErrorCode::Unavailable, format!("{} broke off: {e}", self.authority()))
            })?;
            let Ok(bytes) = frame.into_data() else { continue };
            if partial.done + bytes.len() as u64 > layer.size {
                partial.restart().await?;
                return Err(self.wrong_size(&layer.digest, layer.size + 1, layer.size));
            }
            partial.write(bytes).await?;
            if partial.done >= next {
                told(partial.done);
                next = partial.done + STEP;
            }
        }
        told(partial.done);
        Ok(())
    }
}

/// Where a part of a blob begins.
fn begins(response: &Response<Incoming>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// A blob that is not whole yet, in its file. Dropped, it stays for the next pull.
struct Partial {
    path: PathBuf,
    file: Arc<Locked>,
    hasher: Hasher,
    done: u64,
}

/// The file of a blob that this pull alone writes. A write that a cancelled pull left behind holds it until it is done, so
/// that it never meets the next pull's.
struct Locked {
    file: File,
    _alone: OwnedMutexGuard<()>,
}

/// Does something that waits for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal(e.to_string()))?.map_err(|e| failed(&e))
}

impl Partial {
    async fn open(blobs: &Blobs, digest: &Digest, size: u64, alone: OwnedMutexGuard<()>) -> Result<Self> {
        let path = blobs.partial(digest);
        let mut partial = blocking(move || {
            let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            let (mut hasher, mut done, mut buffer) = (Hasher::default(), 0, vec![0; 128 << 10]);
            loop {
                let got = file.read(&mut buffer)?;
                if got == 0 {
                    break;
                }
                hasher.update(&buffer[..got]);
                done += got as u64;
            }
            Ok(Self { path, file: Arc::new(Locked { file, _alone: alone }), hasher, done })
        })
        .await?;
        // All of it and yet no blob: it is not this one.
        if partial.done >= size {
            partial.restart().await?;
        }
        Ok(partial)
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let (locked, at) = (Arc::clone(&self.file), self.done);
        self.hasher.update(&bytes);
        self.done += bytes.len() as u64;
        blocking(move || locked.file.write_all_at(&bytes, at)).await
    }

    async fn restart(&mut self) -> Result<()> {
        let locked = Arc::clone(&self.file);
        (self.hasher, self.done) = (Hasher::default(), 0);
        blocking(move || locked.file.set_len(0)).await
    }

    /// Makes it a blob; false, and no file, where the digest is another.
    async fn finish(self, blobs: &Blobs, digest: &Digest) -> Result<bool> {
        let Self { path, file: locked, hasher, .. } = self;
        let (same, blob) = (hasher.finish() == *digest, blobs.path(digest));
        blocking(move || match same {
            true => locked.file.sync_all().and_then(|()| fs::rename(&path, blob)),
            false => fs::remove_file(&path),
        })
        .await?;
        Ok(same)
    }
}
