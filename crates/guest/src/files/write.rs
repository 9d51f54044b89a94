//! Receiving a file. Each chunk is written by a job of its own, so that a slow sender holds no thread.

use super::{Files, upload::Upload};
use atoll_guest_proto::{
    to_status,
    v1::{FileEntry, WriteChunk, write_chunk::Part},
};
use atoll_types::{Error, Result};
use bytes::Bytes;
use tonic::{Status, Streaming};

/// An upload between two chunks. When the client goes away it is dropped here, on the thread that
/// serves, and must be undone as the user.
struct Waiting {
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

    async fn finish(mut self) -> Result<FileEntry> {
        let upload = self.take()?;
        self.files.run(move || upload.finish()).await
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
    /// Receives a whole file.
    pub(crate) async fn write(&self, mut chunks: Streaming<WriteChunk>) -> Result<FileEntry, Status> {
        let wrong = |message: &str| to_status(&Error::invalid("head", message));
        let Some(WriteChunk { part: Some(Part::Head(head)) }) = chunks.message().await? else {
            return Err(wrong("the first message must be the head"));
        };
        let place = self.place(&head.path, "path").map_err(|e| to_status(&e))?;
        let upload = self.run(move || Upload::open(place, &head)).await.map_err(|e| to_status(&e))?;
        let mut waiting = Waiting { files: self.clone(), upload: Some(upload) };
        while let Some(WriteChunk { part }) = chunks.message().await? {
            match part {
                Some(Part::Data(bytes)) => waiting.write(bytes).await.map_err(|e| to_status(&e))?,
                Some(Part::Head(_)) | None => return Err(wrong("only the first message may be the head")),
            }
        }
        waiting.finish().await.map_err(|e| to_status(&e))
    }
}
