//! Pushes an image that is among the blobs: each blob that the registry lacks, then the manifest.

use crate::{
    Blobs, BuiltImage, Credentials, Descriptor, Reference, Registries,
    registry::{Session, empty},
};
use atoll_types::{Error, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Method, StatusCode,
    body::Frame,
    header::{self, HeaderMap, HeaderValue},
};
use std::io;

impl Registries {
    /// Pushes an image under a reference's tag.
    pub async fn push(
        &self,
        blobs: &Blobs,
        image: &BuiltImage,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<()> {
        let tag = reference.tag().filter(|_| reference.digest().is_none()).ok_or_else(|| {
            Error::invalid("reference", "an image is pushed under a tag, and not under a digest")
        })?;
        let session = self.session(reference, credentials, "pull,push")?;
        for blob in image.layers.iter().chain([&image.config]) {
            session.upload(blobs, blob).await?;
        }
        let manifest = blobs.document(&image.manifest.digest).await?;
        let headers = described(&image.manifest.media_type, manifest.len() as u64)?;
        let url = session.url(&format!("manifests/{tag}"))?;
        let body = Full::new(Bytes::from(manifest)).map_err(|never| match never {}).boxed_unsync();
        let response = session.send_body(Method::PUT, url, &headers, body).await?;
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
    async fn upload(&self, blobs: &Blobs, blob: &Descriptor) -> Result<()> {
        let there = self.url(&format!("blobs/{}", blob.digest))?;
        if self.send(Method::HEAD, there, &HeaderMap::new()).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let url = self.url("blobs/uploads/")?;
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, 0.into())]);
        let response = self.send(Method::POST, url.clone(), &headers).await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(self.failure(response, "an upload").await);
        }
        let mut place = self.location(&url, &response)?;
        place.query_pairs_mut().append_pair("digest", blob.digest.as_str());
        let body = match blob.size {
            0 => empty(),
            _ => {
                let pieces = blobs.stream(&blob.digest).await?;
                StreamBody::new(pieces.map(|piece| piece.map(Frame::data).map_err(io::Error::other)))
                    .boxed_unsync()
            }
        };
        let headers = described("application/octet-stream", blob.size)?;
        let response = self.send_body(Method::PUT, place, &headers, body).await?;
        match response.status() {
            StatusCode::CREATED => Ok(()),
            _ => Err(self.failure(response, "an upload").await),
        }
    }
}
