//! Listing a directory, a batch at a time, however large it is.

use super::{Files, entry, resolve};
use crate::{errors::on_path, reserve};
use atoll_guest_proto::{
    to_status,
    v1::{FileEntry, ListDirRequest},
};
use atoll_types::{Error, Result};
use futures_util::{Stream, StreamExt, stream};
use rustix::fs::{Dir, OFlags};
use std::pin::Pin;

const BATCH: usize = 256;

pub(crate) type EntryStream = Pin<Box<dyn Stream<Item = Result<FileEntry, tonic::Status>> + Send>>;

impl Files {
    /// Every entry of a directory, in the order in which the filesystem has them.
    pub(crate) async fn list(&self, request: ListDirRequest) -> Result<EntryStream> {
        let ListDirRequest { path } = request;
        let place = self.place(&path, "path")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = move || {
            let fd = resolve::open(&place, flags)?;
            reserve::check(&fd, reserve::STREAM).map_err(|e| on_path(e, place.field))?;
            Dir::new(fd).map_err(|e| on_path(e, "path"))
        };
        let dir = self.run(open).await?;
        let batches = stream::unfold((self.clone(), Some(dir)), |(files, dir)| async move {
            let dir = dir?;
            match files.run(move || read_batch(dir)).await {
                Ok((dir, batch)) => Some((batch, (files, dir))),
                Err(error) => Some((vec![Err(to_status(&error))], (files, None))),
            }
        });
        Ok(Box::pin(batches.flat_map(stream::iter)))
    }
}

type Batch = Vec<Result<FileEntry, tonic::Status>>;

/// The next entries, and the directory if there are more.
fn read_batch(mut dir: Dir) -> Result<(Option<Dir>, Batch)> {
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        match dir.read() {
            None => return Ok((None, batch)),
            Some(Err(e)) => return Err::<_, Error>(on_path(e, "path")),
            Some(Ok(found)) => {
                let name = found.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let directory = dir.fd().map_err(|e| on_path(e, "path"))?;
                batch.extend(entry::of_name(directory, name).map(Ok));
            }
        }
    }
    Ok((Some(dir), batch))
}
