//! Sandboxes as archives, in both directions.

use crate::{
    Client, Download, Result, Sandbox, ServerReply,
    client::{collect, empty},
    files::streamed,
    sandboxes::at,
};
use bytes::Bytes;
use futures_util::Stream;
use hyper::Method;
use serde::Deserialize;
use std::io;
use uuid::Uuid;

/// A sandbox that was imported.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Imported {
    pub sandbox: Sandbox,
    #[serde(default)]
    pub files: u64,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub missing_secrets: Vec<String>,
}

impl Client {
    /// Reads a sandbox as an archive.
    pub async fn export(&self, id: Uuid) -> Result<Download> {
        let response = self.send(Method::GET, &at(id, "/export"), None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Makes a sandbox from an archive.
    pub async fn import(
        &self,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ServerReply<Imported>> {
        let content = Some("application/x-tar");
        let response = self.send(Method::POST, "/api/v1/sandboxes/import", content, streamed(body)).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }
}
