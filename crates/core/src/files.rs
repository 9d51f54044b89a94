//! Files, through the sandbox's own PID 1. Bodies are streams in both directions.

use crate::{Caller, Core, now};
use atoll_provider::{Container, Entry, FileReader, WriteOptions};
use atoll_store::{Activity, ActivityKind, SandboxId};
use atoll_types::{Error, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A file on its way out. What was read is noted when it goes.
pub struct Download {
    /// What is being read.
    pub entry: Entry,
    reader: FileReader,
    core: Core,
    sandbox: SandboxId,
    path: String,
    read: u64,
}

impl Download {
    /// How many bytes are still to come, where that is known: then exactly so many come, or an error.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.reader.left()
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let bytes = self.reader.next().await?;
        self.read += bytes.as_ref().map_or(0, |b| b.len() as u64);
        Ok(bytes)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let (core, sandbox, path, read) =
            (self.core.clone(), self.sandbox, std::mem::take(&mut self.path), self.read);
        tokio::spawn(async move { core.note_transfer(sandbox, ActivityKind::Download, path, read).await });
    }
}

fn checked(path: &str) -> Result<()> {
    if path.is_empty() || path.len() > 4096 || path.contains('\0') {
        return Err(Error::invalid("path", "path must be 1 to 4096 bytes without NUL"));
    }
    Ok(())
}

impl Core {
    pub(crate) async fn reach(
        &self,
        caller: &Caller,
        id: SandboxId,
        paths: &[&str],
    ) -> Result<Arc<dyn Container>> {
        paths.iter().try_for_each(|path| checked(path))?;
        self.visible(caller, id).await?;
        self.desks.container(id).await
    }

    pub(crate) async fn reach_to_write(
        &self,
        caller: &Caller,
        id: SandboxId,
        paths: &[&str],
    ) -> Result<Arc<dyn Container>> {
        caller.must_write()?;
        self.reach(caller, id, paths).await
    }

    pub(crate) async fn note_transfer(
        &self,
        sandbox: SandboxId,
        kind: ActivityKind,
        detail: String,
        bytes: u64,
    ) {
        let activity = Activity {
            sandbox,
            kind,
            at: now(),
            detail,
            exit_code: None,
            duration_ms: None,
            bytes: Some(bytes),
        };
        if let Err(error) = self.store.record_activity(activity).await {
            tracing::warn!(%error, "cannot note a transfer");
        }
    }

    /// What is in a folder, by name.
    pub async fn list_files(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<Vec<Entry>> {
        let mut entries = self.reach(caller, id, &[path]).await?.guest().list_dir(path).await?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What a path stands for.
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
        let container = self.reach(caller, id, &[path]).await?;
        let reader = container.guest().read_file(path, offset, length).await?;
        let entry = reader.entry.clone();
        Ok(Download { entry, reader, core: self.clone(), sandbox: id, path: path.to_owned(), read: 0 })
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
        let container = self.reach_to_write(caller, id, &[path]).await?;
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let body = body.inspect(move |piece| {
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            counter.fetch_add(bytes, Ordering::Relaxed);
        });
        let entry = container.guest().write_file(path, options, body).await?;
        self.set_aside(id, &container, &[path]).await;
        self.note_transfer(id, ActivityKind::Upload, path.to_owned(), count.load(Ordering::Relaxed)).await;
        Ok(entry)
    }

    /// Deletes a file or an empty folder, or a folder with all that is in it.
    pub async fn remove_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        recursive: bool,
    ) -> Result<()> {
        let container = self.reach_to_write(caller, id, &[path]).await?;
        container.guest().remove(path, recursive).await?;
        self.set_aside(id, &container, &[path]).await;
        Ok(())
    }

    /// Makes a folder.
    pub async fn make_dir(&self, caller: &Caller, id: SandboxId, path: &str, parents: bool) -> Result<Entry> {
        self.reach_to_write(caller, id, &[path]).await?.guest().make_dir(path, parents).await
    }

    /// Gives a file or folder another name.
    pub async fn move_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        from: &str,
        to: &str,
        overwrite: bool,
    ) -> Result<Entry> {
        let container = self.reach_to_write(caller, id, &[from, to]).await?;
        let entry = container.guest().rename(from, to, overwrite).await?;
        self.set_aside(id, &container, &[from, to]).await;
        Ok(entry)
    }
}
