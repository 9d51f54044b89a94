//! The files that come with a build: a tar archive that is spooled to a file without a name. This process reads its headers and
//! hashes its bytes, so that a step is known to copy the same as before; nothing of it is unpacked here. What a step copies
//! is written as a layer, which a tool inside the build's sandbox applies.

mod index;
mod layer;
mod sources;
#[cfg(test)]
mod tests;

pub(super) use layer::{CopyTarget, small_layer};

use atoll_guest_tools::archive::Section;
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use index::{EntryKind, FileEntry, path_inside, wrong};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader},
    os::unix::fs::{DirBuilderExt, FileExt},
    path::Path,
    sync::Arc,
};
use tokio::io::AsyncWriteExt;

/// The most bytes that come with a build.
pub(super) const LARGEST_FILES: u64 = 1 << 30;
/// What is read at once.
const BUFFER: usize = 64 << 10;

/// The files that came with a build, by their paths from its folder.
#[derive(Debug, Clone)]
pub(crate) struct BuildFiles {
    file: Arc<File>,
    entries: Arc<BTreeMap<String, FileEntry>>,
}

fn failed(error: &io::Error) -> Error {
    tracing::warn!(%error, "the files of a build cannot be stored or read");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(ErrorCode::DiskFull, "the server's disk is full; ask the operator to free space")
        }
        _ => Error::internal("the files of the build cannot be stored or read"),
    }
}

impl BuildFiles {
    /// Receives an archive. Its file has no name, so that it goes with the last use of it.
    pub(super) async fn receive(
        folder: &Path,
        mut body: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    ) -> Result<Self> {
        if folder.as_os_str().is_empty() {
            return Err(Error::new(
                ErrorCode::Unsupported,
                "this server has no folder for the files of builds",
            ));
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let file = made.and_then(|()| tempfile::tempfile_in(folder)).map_err(|e| failed(&e))?;
        let mut out = tokio::fs::File::from_std(file.try_clone().map_err(|e| failed(&e))?);
        let mut length = 0;
        while let Some(piece) = body.next().await {
            let piece = piece?;
            length += piece.len() as u64;
            if length > LARGEST_FILES {
                let message = format!("the files of a build have at most {} MiB", LARGEST_FILES >> 20);
                return Err(Error::new(ErrorCode::TooLarge, message).at("body"));
            }
            out.write_all(&piece).await.map_err(|e| failed(&e))?;
        }
        out.flush().await.map_err(|e| failed(&e))?;
        let file = Arc::new(file);
        let archive = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || {
            index::index(BufReader::with_capacity(BUFFER, Section::new(&archive, 0, length)))
        });
        let entries = read.await.map_err(|_| Error::internal("the files of a build were not read"))??;
        Ok(Self { file, entries: Arc::new(entries) })
    }

    /// The text of a file of it.
    pub(super) fn text(&self, path: &str, longest: usize) -> Result<String> {
        let missing = || wrong(format!("there is no file {path} among the files of the build"));
        let entry = path_inside(path).and_then(|path| self.entries.get(&path)).ok_or_else(missing)?;
        if entry.kind != EntryKind::File || entry.size > longest as u64 {
            return Err(wrong(format!("{path} is no file of at most {longest} bytes")));
        }
        let mut bytes = vec![0; usize::try_from(entry.size).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, entry.offset).map_err(|e| failed(&e))?;
        String::from_utf8(bytes).map_err(|_| wrong(format!("{path} is not UTF-8")))
    }
}
