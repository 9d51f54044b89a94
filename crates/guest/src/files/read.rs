//! Reading a file, a chunk at a time, or opening one for the host to read. A client that does not take its chunks
//! pauses the reading.

use super::{Files, entry, resolve};
use crate::{errors::on_path, reserve};
use atoll_guest_proto::{
    to_status,
    v1::{FileChunk, FileEntry, ReadFileRequest, file_chunk::Part},
};
use atoll_types::Result;
use futures_util::{Stream, stream};
use rustix::{fs::OFlags, io::pread};
use std::{os::fd::OwnedFd, pin::Pin, sync::Arc};
use tokio::sync::mpsc;

const CHUNK: u64 = 256 * 1024;
/// Chunks read before the client has taken the one before.
const AHEAD: usize = 2;

pub(crate) type FileStream = Pin<Box<dyn Stream<Item = Result<FileChunk, tonic::Status>> + Send>>;

impl Files {
    /// The file's entry, then its bytes.
    pub(crate) async fn read(&self, request: ReadFileRequest) -> Result<FileStream> {
        let ReadFileRequest { path, offset, length } = request;
        let (head, fd) = self.open_to_read(&path).await?;
        let (sender, mut receiver) = mpsc::channel(AHEAD);
        let files = self.clone();
        let left = if length == 0 { u64::MAX } else { length };
        tokio::spawn(async move {
            let head = FileChunk { part: Some(Part::Head(head)) };
            if sender.send(Ok(head)).await.is_ok() {
                files.send_bytes(fd.into(), offset, left, sender).await;
            }
        });
        Ok(Box::pin(stream::poll_fn(move |context| receiver.poll_recv(context))))
    }

    /// The file's entry, and the file.
    pub(crate) async fn open_to_read(&self, path: &str) -> Result<(FileEntry, OwnedFd)> {
        let place = self.place(path, "path")?;
        let open = move || {
            let fd = resolve::open(&place, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
            reserve::check(&fd, reserve::STREAM).map_err(|e| on_path(e, place.field))?;
            resolve::check_regular(&fd, &place)?;
            Ok((entry::of_open(&fd, &place)?, fd))
        };
        self.run(open).await
    }

    async fn send_bytes(
        &self,
        fd: Arc<OwnedFd>,
        mut offset: u64,
        mut left: u64,
        sender: mpsc::Sender<Result<FileChunk, tonic::Status>>,
    ) {
        // The channel's slot is reserved before the reading, so that no chunk is read without a client waiting
        // for it.
        while left > 0
            && let Ok(permit) = sender.reserve().await
        {
            let (fd, length) = (fd.clone(), left.min(CHUNK) as usize);
            match self.run(move || read_chunk(&fd, offset, length)).await {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(bytes) => {
                    offset += bytes.len() as u64;
                    left -= bytes.len() as u64;
                    permit.send(Ok(FileChunk { part: Some(Part::Data(bytes.into())) }));
                }
                Err(error) => {
                    permit.send(Err(to_status(&error)));
                    return;
                }
            }
        }
    }
}

fn read_chunk(fd: &OwnedFd, offset: u64, length: usize) -> Result<Vec<u8>> {
    // Beyond what the kernel can count there is nothing to read.
    if i64::try_from(offset).is_err() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::with_capacity(length);
    pread(fd, rustix::buffer::spare_capacity(&mut bytes), offset).map_err(|e| on_path(e, "path"))?;
    Ok(bytes)
}
