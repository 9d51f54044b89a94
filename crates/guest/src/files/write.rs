//! Receiving a file. Each chunk is written by a job of its own, so that a slow sender holds no thread; or
//! the host writes to the descriptor.

use super::{Files, upload::Upload};
use atoll_guest_proto::{
    to_status,
    v1::{FileEntry, WriteChunk, WriteHead, write_chunk::Part},
};
use atoll_types::{Error, Result};
use bytes::Bytes;
use std::os::fd::BorrowedFd;
use tonic::{Status, Streaming};

/// An upload between two chunks. When the client disconnects it is dropped here, on the thread that serves, and
/// must be undone as the user.
pub(crate) struct Waiting {
    files: Files,
    upload: Option<Upload>,
}

impl Waiting {
    fn take(&mut self) -> Result<Upload> {
        self.upload.take().ok_or_else(|| Error::internal("the upload is gone"))
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let upload = self.take()?;
        self.upload = Some(self.files.run(move || upload.write(&bytes)).await?);
        Ok(())
    }

    /// What the bytes are written to.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.upload.as_ref().map(Upload::descriptor)
    }

    pub(crate) async fn finish(mut self) -> Result<FileEntry> {
        let upload = self.take()?;
        self.files.run(move || upload.finish()).await
    }

    /// Undoes it, and returns when that is done.
    pub(crate) async fn abandon(mut self) -> Result<()> {
        let upload = self.take()?;
        let undo = move || {
            drop(upload);
            Ok(())
        };
        self.files.run(undo).await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.files.run_detached(move || drop(upload));
        }
    }
}

impl Files {
    /// Begins a file.
    pub(crate) async fn open_to_write(&self, head: WriteHead) -> Result<Waiting> {
        let place = self.place(&head.path, "path")?;
        let upload = self.run(move || Upload::open(place, &head)).await?;
        Ok(Waiting { files: self.clone(), upload: Some(upload) })
    }

    /// Receives a whole file.
    pub(crate) async fn write(&self, mut chunks: Streaming<WriteChunk>) -> Result<FileEntry, Status> {
        let wrong = |message: &str| to_status(&Error::invalid("head", message));
        let Some(WriteChunk { part: Some(Part::Head(head)) }) = chunks.message().await? else {
            return Err(wrong("the first message must be the head"));
        };
        let mut waiting = self.open_to_write(head).await.map_err(|e| to_status(&e))?;
        while let Some(WriteChunk { part }) = chunks.message().await? {
            match part {
                Some(Part::Data(bytes)) => waiting.write(bytes).await.map_err(|e| to_status(&e))?,
                Some(Part::Head(_)) | None => return Err(wrong("only the first message may be the head")),
            }
        }
        waiting.finish().await.map_err(|e| to_status(&e))
    }
}
