//! Files, through the sandbox's own PID 1. Bodies are streams in both directions.

mod archive;
mod history;
mod lines;
mod owner_unpack;
mod search;
mod tool;
mod watch;

pub use archive::Archive;
pub(crate) use archive::feed_tool;
pub use history::{FileHistory, FileHistoryEntry};
pub(crate) use lines::answer_of;
pub(crate) use owner_unpack::{is_read_only, unpack_as_owner};
pub use search::{Findings, Matches};
pub(crate) use tool::{Tool, ToolOptions};
pub use watch::WatchStream;

use crate::{
    AnswerBudget, Caller, OpenStream,
    actor::SandboxRegistry,
    bounds::LONGEST_PATH,
    changes::FileChanges,
    operation::{AuditedOperation, OperationSpec, Operations},
};
use atoll_provider::{Container, Entry, FileReader, WriteOptions};
use atoll_store::{Activity, ActivityKind, NewEvent, SandboxId};
use atoll_types::{ContainerId, Error, ErrorCode, Operation, Result, time::now_ms};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The most entries of a folder that one answer lists.
pub const FILES_PER_PAGE: usize = 10_000;

/// A file that is being downloaded. The audit row is written when it is dropped.
pub struct Download {
    /// The file.
    pub entry: Entry,
    reader: FileReader,
    note: Outgoing,
    _stream: OpenStream,
    /// Held until the file is read.
    _container: Arc<dyn Container>,
}

/// A stream to the caller; when it is dropped, the audit row says how much was sent.
pub(crate) struct Outgoing {
    audited: Option<AuditedOperation>,
    /// The sandbox whose history has it, and as what.
    history: Option<(SandboxId, String)>,
    read: u64,
    failed: Option<Error>,
}

impl Outgoing {
    pub(crate) fn new(audited: AuditedOperation, sandbox: SandboxId, path: &str) -> Self {
        let mut outgoing = Self::of_server(audited);
        outgoing.history = Some((sandbox, path.to_owned()));
        outgoing
    }

    /// One that is about no sandbox.
    pub(crate) fn of_server(audited: AuditedOperation) -> Self {
        Self { audited: Some(audited), history: None, read: 0, failed: None }
    }

    /// Adds the event of one that reached its end.
    pub(crate) fn add_event(&mut self, event: NewEvent) {
        if let Some(audited) = &mut self.audited {
            audited.add_event(event);
        }
    }

    /// Counts what is sent.
    pub(crate) fn count<T: AsRef<[u8]>>(&mut self, piece: &Result<Option<T>>) {
        match piece {
            Ok(bytes) => self.read += bytes.as_ref().map_or(0, |b| b.as_ref().len() as u64),
            Err(error) => self.failed = Some(error.clone()),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let Some(mut audited) = self.audited.take() else { return };
        audited.moved(self.read);
        if let Some((sandbox, path)) = self.history.take() {
            audited.note(transfer(sandbox, ActivityKind::Download, path, self.read));
        }
        let result = self.failed.take().map_or(Ok(()), Err);
        tokio::spawn(async move { audited.done(result).await });
    }
}

pub(crate) fn transfer(sandbox: SandboxId, kind: ActivityKind, detail: String, bytes: u64) -> Activity {
    Activity { sandbox, kind, at: now_ms(), detail, exit_code: None, duration_ms: None, bytes: Some(bytes) }
}

impl Download {
    /// How many bytes are still to come, where that is known: then exactly so many come, or an error.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.reader.left()
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let bytes = self.reader.next().await;
        self.note.count(&bytes);
        bytes
    }
}

fn checked(path: &str) -> Result<()> {
    if path.is_empty() || path.len() > LONGEST_PATH || path.contains('\0') {
        return Err(Error::invalid("path", format!("path must be 1 to {LONGEST_PATH} bytes without NUL")));
    }
    Ok(())
}

/// The files of sandboxes.
#[derive(Clone)]
pub struct Files {
    pub(crate) operations: Operations,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) changes: Arc<FileChanges>,
    pub(crate) answers: AnswerBudget,
}

impl Files {
    pub(crate) async fn reach(
        &self,
        caller: &Caller,
        id: SandboxId,
        paths: &[&str],
    ) -> Result<Arc<dyn Container>> {
        paths.iter().try_for_each(|path| checked(path))?;
        self.operations.visible(caller, id).await?;
        self.registry.files(id).await
    }

    /// The container of a running sandbox.
    pub(crate) async fn reach_running(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
    ) -> Result<Arc<dyn Container>> {
        checked(path)?;
        self.operations.visible(caller, id).await?;
        self.registry.container(id, "a file operation").await
    }

    /// The container of an operation that was begun.
    pub(crate) async fn reach_in(
        &self,
        audited: &AuditedOperation,
        paths: &[&str],
    ) -> Result<Arc<dyn Container>> {
        paths.iter().try_for_each(|path| checked(path))?;
        self.registry.files_in(audited).await
    }

    /// What a request to a container answered; where the container is gone, why.
    async fn explained<T>(
        &self,
        id: SandboxId,
        container: &Arc<dyn Container>,
        answer: Result<T>,
    ) -> Result<T> {
        explained(&self.registry, id, container.id(), answer).await
    }

    /// The entries of a folder, by name, after a name; and whether there are more.
    pub async fn list(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, bool)> {
        if !(1..=FILES_PER_PAGE).contains(&limit) {
            let message = format!("limit must be between 1 and {FILES_PER_PAGE}");
            return Err(Error::invalid("limit", message));
        }
        self.reach(caller, id, &[path]).await?.guest().list_page(path, after, limit).await
    }

    /// The metadata of a path.
    pub async fn stat(&self, caller: &Caller, id: SandboxId, path: &str, follow: bool) -> Result<Entry> {
        self.reach(caller, id, &[path]).await?.guest().stat(path, follow).await
    }

    /// Reads a file from an offset; zero length means to its end.
    pub async fn download(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        offset: u64,
        length: u64,
    ) -> Result<Download> {
        let stream = self.answers.stream(&caller.owner)?;
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::FileRead, id).with(path)).await?;
        let opened = async {
            let container = self.reach_in(&audited, &[path]).await?;
            let reader = container.guest().read_file(path, offset, length).await;
            Ok((self.explained(id, &container, reader).await?, container))
        };
        match opened.await {
            Ok((reader, container)) => {
                let (entry, note) = (reader.entry.clone(), Outgoing::new(audited, id, path));
                Ok(Download { entry, reader, note, _stream: stream, _container: container })
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    /// Writes a file, whole or not at all.
    pub async fn upload(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        options: WriteOptions,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Entry> {
        let mut audited =
            self.operations.audited(caller, OperationSpec::to(Operation::FileWrite, id).with(path)).await?;
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let body = body.inspect(move |piece| {
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            counter.fetch_add(bytes, Ordering::Relaxed);
        });
        let result = async {
            let container = self.reach_in(&audited, &[path]).await?;
            let written = container.guest().write_file(path, options, body).await;
            let entry = self.explained(id, &container, written).await?;
            let changed = self.changes.set_aside(id, &container, &[path]).await;
            audited.changed(&changed);
            Ok(entry)
        }
        .await;
        let bytes = count.load(Ordering::Relaxed);
        audited.moved(bytes);
        if result.is_ok() {
            audited.note(transfer(id, ActivityKind::Upload, path.to_owned(), bytes));
        }
        audited.done(result).await
    }

    /// Deletes a file or an empty folder, or a folder with all that is in it.
    pub async fn remove(&self, caller: &Caller, id: SandboxId, path: &str, recursive: bool) -> Result<()> {
        let what = OperationSpec::to(Operation::FileRemove, id).with(path).and("recursive", recursive);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let container = self.reach_in(&audited, &[path]).await?;
            let removed = container.guest().remove(path, recursive).await;
            self.explained(id, &container, removed).await?;
            let changed = self.changes.set_aside(id, &container, &[path]).await;
            audited.changed(&changed);
            Ok(())
        }
        .await;
        audited.done(result).await
    }

    /// Makes a folder.
    pub async fn make_dir(&self, caller: &Caller, id: SandboxId, path: &str, parents: bool) -> Result<Entry> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::FileMkdir, id).with(path)).await?;
        let result = async {
            let container = self.reach_in(&audited, &[path]).await?;
            let made = container.guest().make_dir(path, parents).await;
            self.explained(id, &container, made).await
        }
        .await;
        audited.done(result).await
    }

    /// Gives a file or folder another name.
    pub async fn rename(
        &self,
        caller: &Caller,
        id: SandboxId,
        from: &str,
        to: &str,
        overwrite: bool,
    ) -> Result<Entry> {
        let mut audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::FileMove, id).with(from).and("to", to))
            .await?;
        let result = async {
            let container = self.reach_in(&audited, &[from, to]).await?;
            let renamed = container.guest().rename(from, to, overwrite).await;
            let entry = self.explained(id, &container, renamed).await?;
            let changed = self.changes.set_aside(id, &container, &[from, to]).await;
            audited.changed(&changed);
            Ok(entry)
        }
        .await;
        audited.done(result).await
    }
}

/// What a container answered about its sandbox's files; where the container is gone, why.
async fn explained<T>(
    registry: &SandboxRegistry,
    sandbox: SandboxId,
    container: ContainerId,
    answer: Result<T>,
) -> Result<T> {
    match answer {
        Err(error) if matches!(error.code, ErrorCode::ContainerDied | ErrorCode::Unavailable) => {
            Err(registry.why_lost(sandbox, container, "its files were worked on", error).await)
        }
        answer => answer,
    }
}
