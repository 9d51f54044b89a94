//! Files. Bodies are streams in both directions; a download that breaks off is an error, never an end.

use crate::{
    Client, Error, Result, ServerReply,
    client::{empty, root_cause},
    encode::{path as escaped, query},
    sandboxes::at,
    transport::{Body, BoxError},
};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Method,
    body::{Body as _, Frame, Incoming},
};
use serde::{Deserialize, Serialize};
use std::io;
use uuid::Uuid;

/// A file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileItem {
    pub name: String,
    /// Absolute.
    #[serde(default)]
    pub path: String,
    /// file, directory, symlink or other.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub is_directory: bool,
    /// In octal.
    #[serde(default)]
    pub mode: String,
    #[serde(default)]
    pub modified_at: String,
    #[serde(default)]
    pub target: Option<String>,
}

/// Some changes of a file, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileHistory {
    #[serde(default)]
    pub path: String,
    pub entries: Vec<FileHistoryEntry>,
    /// The next page's `before`.
    #[serde(default)]
    pub next_before: Option<u64>,
    /// Some operation changed more files than are named, and this one may be among them.
    #[serde(default)]
    pub truncated: bool,
}

/// A change of a file, and the operation that made it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileHistoryEntry {
    #[serde(default)]
    pub at: String,
    /// created, modified, deleted or unknown.
    pub action: String,
    #[serde(default)]
    pub size: Option<u64>,
    #[serde(default)]
    pub operation_id: Option<Uuid>,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub exec_id: Option<String>,
    #[serde(default)]
    pub cell_id: Option<String>,
    #[serde(default)]
    pub detail: Option<String>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub key_id: Option<Uuid>,
    #[serde(default)]
    pub owner: Option<String>,
}

/// A file that is being downloaded.
#[derive(Debug)]
pub struct Download {
    pub(crate) body: Incoming,
}

impl Download {
    /// How many bytes are still to come, where the server says so.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let broke =
                |e: &hyper::Error| Error::Unexpected(format!("the file broke off ({})", root_cause(e)));
            if let Ok(data) = frame.map_err(|e| broke(&e))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

#[derive(Serialize)]
struct Mkdir<'a> {
    path: &'a str,
    parents: bool,
}

#[derive(Serialize)]
struct Move<'a> {
    from: &'a str,
    to: &'a str,
    overwrite: bool,
}

#[derive(Serialize)]
struct Remove<'a> {
    path: &'a str,
    recursive: bool,
}

/// Absolute paths keep their slash, so two are in a row.
fn file_at(id: Uuid, path: &str) -> String {
    at(id, &format!("/files/{}", escaped(path)))
}

/// A body that is streamed.
pub(crate) fn streamed(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    let frames = pieces.map_ok(Frame::data).map_err(BoxError::from);
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

impl Client {
    /// The entries of a folder.
    pub async fn list_files(&self, id: Uuid, path: &str) -> Result<ServerReply<Vec<FileItem>>> {
        let query = query(&[("path", Some(path.to_owned()))]);
        self.ask(Method::GET, &at(id, &format!("/files{query}"))).await
    }

    /// The metadata of a path.
    pub async fn stat(&self, id: Uuid, path: &str, follow: bool) -> Result<ServerReply<FileItem>> {
        let query = query(&[("path", Some(path.to_owned())), ("follow", Some(follow.to_string()))]);
        self.ask(Method::GET, &at(id, &format!("/fs/stat{query}"))).await
    }

    /// The changes of a file, the latest first.
    pub async fn file_history(
        &self,
        id: Uuid,
        path: &str,
        before: Option<u64>,
        limit: Option<u32>,
    ) -> Result<ServerReply<FileHistory>> {
        let query = query(&[
            ("path", Some(path.to_owned())),
            ("before", before.map(|row| row.to_string())),
            ("limit", limit.map(|count| count.to_string())),
        ]);
        self.ask(Method::GET, &at(id, &format!("/fs/history{query}"))).await
    }

    /// Reads a file.
    pub async fn download(&self, id: Uuid, path: &str) -> Result<Download> {
        let response = self.send(Method::GET, &file_at(id, path), None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Writes a file, whole or not at all: a body that ends in an error leaves what was there.
    pub async fn upload(
        &self,
        id: Uuid,
        path: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        self.put_file(&file_at(id, path), body).await
    }

    /// The same, also over a file that the sandbox's user may not write.
    pub async fn upload_by_force(
        &self,
        id: Uuid,
        path: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        self.put_file(&format!("{}?overwrite=force", file_at(id, path)), body).await
    }

    async fn put_file(
        &self,
        place: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let content = Some("application/octet-stream");
        self.send(Method::PUT, place, content, streamed(body)).await.map(drop)
    }

    /// Makes a folder.
    pub async fn make_dir(&self, id: Uuid, path: &str, parents: bool) -> Result<ServerReply<FileItem>> {
        self.tell(Method::POST, &at(id, "/fs/mkdir"), &Mkdir { path, parents }).await
    }

    /// Gives a file or folder another name.
    pub async fn move_file(
        &self,
        id: Uuid,
        from: &str,
        to: &str,
        overwrite: bool,
    ) -> Result<ServerReply<FileItem>> {
        self.tell(Method::POST, &at(id, "/fs/move"), &Move { from, to, overwrite }).await
    }

    /// Deletes a file or folder.
    pub async fn remove_file(&self, id: Uuid, path: &str, recursive: bool) -> Result<()> {
        self.send_json(Method::POST, &at(id, "/fs/remove"), &Remove { path, recursive }).await.map(drop)
    }
}
