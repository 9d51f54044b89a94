//! Pushes an image: each blob that the registry lacks, then the manifest.

use crate::{
    Blobs, Credentials, Descriptor, ImageDocuments, Reference, Registries,
    registry::{Body, Session, empty},
};
use atoll_types::{Error, Result};
use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Method, StatusCode,
    body::Frame,
    header::{self, HeaderMap, HeaderValue},
};
use std::io;
use url::Url;

/// Where the bytes of an image's layers come from. Only those that a registry lacks are asked for.
pub trait LayerSource: Sync {
    /// All bytes of a layer.
    fn open<'a>(&'a self, layer: &'a Descriptor) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes>>>>;
}

impl LayerSource for Blobs {
    fn open<'a>(&'a self, layer: &'a Descriptor) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes>>>> {
        Box::pin(async { Ok(self.stream(&layer.digest).await?.boxed()) })
    }
}

fn full(bytes: &[u8]) -> Body {
    Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed_unsync()
}

impl Registries {
    /// Pushes an image under a reference's tag.
    pub async fn push(
        &self,
        image: &ImageDocuments,
        layers: &dyn LayerSource,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<()> {
        let tag = reference.tag().filter(|_| reference.digest().is_none()).ok_or_else(|| {
            Error::invalid("reference", "an image is pushed under a tag, and not under a digest")
        })?;
        let session = self.session(reference, credentials, "pull,push")?;
        for layer in &image.layers {
            if let Some(location) = session.begin_upload(layer).await? {
                let body = match layer.size {
                    0 => empty(),
                    _ => {
                        let pieces = layers.open(layer).await?;
                        let frames = pieces.map(|piece| piece.map(Frame::data).map_err(io::Error::other));
                        StreamBody::new(frames).boxed_unsync()
                    }
                };
                session.upload(location, layer, body).await?;
            }
        }
        let config = image.config_descriptor();
        if let Some(location) = session.begin_upload(&config).await? {
            session.upload(location, &config, full(&image.config)).await?;
        }
        let manifest = image.manifest_descriptor();
        let headers = described(&manifest.media_type, manifest.size)?;
        let url = session.url(&format!("manifests/{tag}"))?;
        let response = session.send_body(Method::PUT, url, &headers, full(&image.manifest)).await?;
        match response.status() {
            StatusCode::CREATED | StatusCode::OK => Ok(()),
            _ => Err(session.failure(response, "a manifest").await),
        }
    }
}

fn described(media_type: &str, size: u64) -> Result<HeaderMap> {
    let value = HeaderValue::try_from(media_type).map_err(|e| Error::internal(e.to_string()))?;
    Ok(HeaderMap::from_iter([(header::CONTENT_TYPE, value), (header::CONTENT_LENGTH, size.into())]))
}

impl Session<'_> {
    /// The address that a blob is uploaded to; none where the registry has it.
    async fn begin_upload(&self, blob: &Descriptor) -> Result<Option<Url>> {
        let there = self.url(&format!("blobs/{}", blob.digest))?;
        if self.send(Method::HEAD, there, &HeaderMap::new()).await?.status() == StatusCode::OK {
            return Ok(None);
        }
        let url = self.url("blobs/uploads/")?;
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, 0.into())]);
        let response = self.send(Method::POST, url.clone(), &headers).await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(self.failure(response, "an upload").await);
        }
        let mut location = self.location(&url, &response)?;
        location.query_pairs_mut().append_pair("digest", blob.digest.as_str());
        Ok(Some(location))
    }

    async fn upload(&self, location: Url, blob: &Descriptor, body: Body) -> Result<()> {
        let headers = described("application/octet-stream", blob.size)?;
        let response = self.send_body(Method::PUT, location, &headers, body).await?;
        match response.status() {
            StatusCode::CREATED => Ok(()),
            _ => Err(self.failure(response, "an upload").await),
        }
    }
}
