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
pub struct Imported {
    pub sandbox: Sandbox,
    #[serde(default)]
    pub files: u64,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub missing_secrets: Vec<String>,
    #[serde(default)]
    pub snapshots: u64,
    #[serde(default)]
    pub missing_kernels: Vec<Uuid>,
    #[serde(default)]
    pub left_out: Vec<String>,
}

impl Client {
    /// Reads a sandbox as an archive, with its snapshots or without.
    pub async fn export(&self, id: Uuid, snapshots: bool) -> Result<Download> {
        let path = if snapshots { "/export" } else { "/export?snapshots=false" };
        let response = self.send(Method::GET, &at(id, path), None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Makes a sandbox from an archive, with its snapshots or without, and with the volumes of this owner that it names or without.
    pub async fn import(
        &self,
        snapshots: bool,
        volumes: bool,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ServerReply<Imported>> {
        let content = Some("application/x-tar");
        // An older server knows none of them, or only the first.
        let asked = [(!snapshots).then_some("snapshots=false"), volumes.then_some("volumes=true")];
        let query = asked.into_iter().flatten().collect::<Vec<_>>().join("&");
        let path = format!("/api/v1/sandboxes/import?{query}");
        let response = self.send(Method::POST, &path, content, streamed(body)).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }
}
