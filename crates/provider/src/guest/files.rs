//! Files. A path is absolute or relative to /workspace; PID 1 has the kernel resolve it. Bodies are streams
//! in both directions and never whole in memory. They pass as descriptors where possible, and else through
//! PID 1.

use super::{Guest, descriptors::Reading, exec::hostile};
use atoll_guest_proto::v1;
use atoll_types::{
    Error, ErrorCode, Result,
    files::{Entry, EntryKind, OVERWRITE, WriteOptions},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

/// Characters of a path in a message.
const LONGEST_SHOWN: usize = 300;

/// What PID 1 says of a file.
pub(super) fn entry_of(entry: v1::FileEntry) -> Result<Entry> {
    let v1::FileEntry { name, kind, size, mode, uid, gid, modified_unix_ns, target } = entry;
    let kind = match v1::FileKind::try_from(kind) {
        Ok(v1::FileKind::File) => EntryKind::File,
        Ok(v1::FileKind::Directory) => EntryKind::Directory,
        Ok(v1::FileKind::Symlink) => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    // A name that is a path could lead a program that copies a folder out astray.
    if name.is_empty() || matches!(name.as_str(), "." | "..") || (name.contains('/') && name != "/") {
        return Err(hostile("a file name"));
    }
    let target = (kind == EntryKind::Symlink).then_some(target);
    Ok(Entry { name, kind, size, mode: mode & 0o7777, uid, gid, modified_unix_ns, target })
}

/// A file's bytes as they come.
pub struct FileReader {
    /// What is being read.
    pub entry: Entry,
    source: Source,
}

/// Where the bytes come from.
enum Source {
    Passed(Reading),
    Sent(Box<(Streaming<v1::FileChunk>, Guest)>),
}

impl FileReader {
    /// How many bytes are still to come, where that is known: then exactly so many come, or an error.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        match &self.source {
            Source::Passed(reading) => Some(reading.left()),
            Source::Sent(_) => None,
        }
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let (inner, guest) = match &mut self.source {
            Source::Passed(reading) => return reading.next().await,
            Source::Sent(sent) => (&mut sent.0, &sent.1),
        };
        let message = inner.message().await;
        match guest.check(message).await?.map(|m| m.part) {
            None => Ok(None),
            Some(Some(v1::file_chunk::Part::Data(data))) => Ok(Some(data)),
            Some(_) => Err(hostile("a piece of a file")),
        }
    }

    /// All of it, for small files; an error when there is more than `limit`.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(data) = self.next().await? {
            if all.len() + data.len() > limit {
                return Err(Error::new(ErrorCode::TooLarge, format!("the file has more than {limit} bytes")));
            }
            all.extend_from_slice(&data);
        }
        Ok(all)
    }
}

/// The error, naming the path where it is about one.
#[must_use]
pub fn about_path(error: Error, path: &str) -> Error {
    let about = matches!(error.field.as_deref(), Some("path" | "from" | "to" | OVERWRITE));
    if !(about || error.code == ErrorCode::DiskFull) || error.message.contains(path) {
        return error;
    }
    let shown: String = path.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect();
    error.context(shown)
}

impl Guest {
    /// The metadata of a path.
    pub async fn stat(&self, path: &str, follow: bool) -> Result<Entry> {
        let reply = self.client().stat(v1::StatRequest { path: path.into(), follow }).await;
        entry_of(self.check_at(path, reply).await?.into_inner())
    }

    /// The entries of a folder.
    pub async fn list_dir(&self, path: &str) -> Result<Vec<Entry>> {
        Ok(self.list_page(path, None, usize::MAX).await?.0)
    }

    /// The first entries by name after one, and whether there are more. No more than these are held in
    /// memory.
    pub async fn list_page(
        &self,
        path: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, bool)> {
        let reply = self.client().list_dir(v1::ListDirRequest { path: path.into() }).await;
        let mut stream = self.check_at(path, reply).await?.into_inner();
        let (mut entries, mut more, mut seen) = (BTreeMap::new(), false, 0_u64);
        loop {
            let message = stream.message().await;
            let Some(entry) = self.check_at(path, message).await? else {
                return Ok((entries.into_values().collect(), more));
            };
            let entry = entry_of(entry)?;
            if after.is_some_and(|after| entry.name.as_str() <= after) {
                continue;
            }
            // Names that are not UTF-8 may look the same.
            seen += 1;
            entries.insert((entry.name.clone(), seen), entry);
            if entries.len() > limit {
                entries.pop_last();
                more = true;
            }
        }
    }

    /// Reads a file from an offset; zero length means to its end.
    pub async fn read_file(&self, path: &str, offset: u64, length: u64) -> Result<FileReader> {
        let request = v1::ReadFileRequest { path: path.into(), offset, length };
        if let Some(passage) = self.passage().await {
            let opened = self.open_to_read(passage, request).await;
            let (entry, reading) = opened.map_err(|e| about_path(e, path))?;
            return Ok(FileReader { entry, source: Source::Passed(reading) });
        }
        let reply = self.client().read_file(request).await;
        let mut inner = self.check_at(path, reply).await?.into_inner();
        let first = inner.message().await;
        match self.check_at(path, first).await?.and_then(|m| m.part) {
            Some(v1::file_chunk::Part::Head(entry)) => {
                let source = Source::Sent(Box::new((inner, self.clone())));
                Ok(FileReader { entry: entry_of(entry)?, source })
            }
            _ => Err(hostile("a file without a head")),
        }
    }

    /// Writes a file, whole or not at all: where the data ends in an error, nothing is written.
    pub async fn write_file(
        &self,
        path: &str,
        options: WriteOptions,
        data: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Entry> {
        let WriteOptions { mode, create_parents, append, exclusive, force } = options;
        let mode = mode.unwrap_or(0);
        let head = v1::WriteHead { path: path.into(), mode, create_parents, append, exclusive, force };
        if may_write_any_size()
            && let Some(passage) = self.passage().await
        {
            return self.write_passed(passage, head, data).await.map_err(|e| about_path(e, path));
        }
        let chunk = |part| v1::WriteChunk { part: Some(part) };
        let head = chunk(v1::write_chunk::Part::Head(head));
        let (failed, failure) = oneshot::channel();
        let body = until_failure(data, failed).map(move |b| chunk(v1::write_chunk::Part::Data(b)));
        let mut client = self.client();
        let call = client.write_file(futures_util::stream::once(async { head }).chain(body));
        tokio::select! {
            reply = call => entry_of(self.check_at(path, reply).await?.into_inner()),
            // Dropping the call breaks the stream, which PID 1 tells from its end.
            Ok(error) = failure => Err(error),
        }
    }

    /// Deletes a file or an empty folder, or a folder with all that is in it.
    pub async fn remove(&self, path: &str, recursive: bool) -> Result<()> {
        let reply = self.client().remove(v1::RemoveRequest { path: path.into(), recursive }).await;
        self.check_at(path, reply).await.map(|_| ())
    }

    /// Makes a folder.
    pub async fn make_dir(&self, path: &str, parents: bool) -> Result<Entry> {
        let reply = self.client().make_dir(v1::MakeDirRequest { path: path.into(), parents, mode: 0 }).await;
        entry_of(self.check_at(path, reply).await?.into_inner())
    }

    /// Gives a file or folder another name.
    pub async fn rename(&self, from: &str, to: &str, overwrite: bool) -> Result<Entry> {
        let reply =
            self.client().r#move(v1::MoveRequest { from: from.into(), to: to.into(), overwrite }).await;
        let named = |e: Error| {
            let path = if e.field.as_deref() == Some("to") { to } else { from };
            about_path(e, path)
        };
        entry_of(self.check(reply).await.map_err(named)?.into_inner())
    }

    async fn check_at<T>(&self, path: &str, reply: Result<T, Status>) -> Result<T> {
        self.check(reply).await.map_err(|e| about_path(e, path))
    }
}

/// Under a file size limit the kernel kills this process for exceeding it. PID 1 has no such limit, so there
/// it writes.
fn may_write_any_size() -> bool {
    getrlimit(Resource::Fsize).current.is_none()
}

/// The data up to its first error. That goes to `failed`, and the stream then hangs instead of ending.
fn until_failure(
    data: impl Stream<Item = Result<Bytes>> + Send + 'static,
    failed: oneshot::Sender<Error>,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let state = (Box::pin(data), failed);
    futures_util::stream::unfold(state, |(mut data, failed)| async move {
        match data.next().await {
            None => None,
            Some(Ok(bytes)) => Some((bytes, (data, failed))),
            Some(Err(error)) => {
                let _ = failed.send(error);
                std::future::pending().await
            }
        }
    })
}
