//! Work on whole folders: finding files and lines, archives in both directions, and watching.

use crate::{
    Client, Download, Result, ServerReply,
    client::{collect, empty},
    encode::query,
    sandboxes::at,
    sse::Events,
    transport::BoxError,
};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Method, body::Frame};
use serde::{Deserialize, Serialize};
use std::io;
use uuid::Uuid;

/// Which entries to find; without a field, the server decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FindRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// file, directory, symlink or any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Found {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub size: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FindResult {
    pub entries: Vec<Found>,
    #[serde(default)]
    pub truncated: bool,
    #[serde(default)]
    pub skipped: u64,
}

/// Which lines to find; without a field, the server decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GrepRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub pattern: String,
    pub literal: bool,
    pub ignore_case: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<u32>,
}

/// A line that was found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Match {
    pub path: String,
    pub line: u64,
    #[serde(default)]
    pub column: u64,
    pub text: String,
    #[serde(default)]
    pub before: Vec<String>,
    #[serde(default)]
    pub after: Vec<String>,
}

/// Lines that were found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrepResult {
    pub matches: Vec<Match>,
    #[serde(default)]
    pub truncated: bool,
    #[serde(default)]
    pub skipped: u64,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Unpacked {
    pub files: u64,
    pub bytes: u64,
}

/// A change in a watched folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WatchEvent {
    /// ready, created, modified, deleted, renamed, overflow, limit or error.
    pub event: String,
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub to: Option<String>,
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

/// Far more than any event needs.
const LARGEST_EVENT: usize = 256 << 10;

/// Changes as they happen. Dropping it ends the watch.
#[derive(Debug)]
pub struct WatchStream(Events);

impl WatchStream {
    /// The next event; none when the server ends the stream.
    pub async fn next(&mut self) -> Result<Option<ServerReply<WatchEvent>>> {
        self.0.next_data().await?.map(|json| ServerReply::parse(200, json.into_bytes())).transpose()
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

impl Client {
    /// Finds entries below a folder.
    pub async fn find(&self, id: Uuid, request: &FindRequest) -> Result<ServerReply<FindResult>> {
        self.tell(Method::POST, &at(id, "/fs/find"), request).await
    }

    /// Finds lines in files.
    pub async fn grep(&self, id: Uuid, request: &GrepRequest) -> Result<ServerReply<GrepResult>> {
        self.tell(Method::POST, &at(id, "/fs/grep"), request).await
    }

    /// Reads a folder as a tar archive with names relative to it.
    pub async fn pack(&self, id: Uuid, path: &str) -> Result<Download> {
        let path = at(id, &format!("/fs/tar{}", query(&[("path", some(path))])));
        let response = self.send(Method::GET, &path, None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Unpacks a tar archive into a folder.
    pub async fn unpack(
        &self,
        id: Uuid,
        path: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ServerReply<Unpacked>> {
        let path = at(id, &format!("/fs/tar{}", query(&[("path", some(path))])));
        let frames = body.map_ok(Frame::data).map_err(BoxError::from);
        let body = BodyExt::boxed_unsync(StreamBody::new(frames));
        let response = self.send(Method::PUT, &path, Some("application/x-tar"), body).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }

    /// Watches a folder for changes.
    pub async fn watch(&self, id: Uuid, path: &str, recursive: bool) -> Result<WatchStream> {
        let query = query(&[("path", some(path)), ("recursive", Some(recursive.to_string()))]);
        let response = self.send(Method::GET, &at(id, &format!("/fs/watch{query}")), None, empty()).await?;
        Ok(WatchStream(Events::new(response.into_body(), LARGEST_EVENT)))
    }
}
