//! The folder of packages, each in a file that is named by its digest. A file appears only when it is complete; what a
//! former server left by half, or without a record, is removed at a start.

use super::package::LARGEST_PACKAGE;
use atoll_store::Sha256;
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sha2::{Digest, Sha256 as Hasher};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The beginning of the name of a file that is not complete.
const PARTIAL: &str = ".part-";
const ENDING: &str = ".zip";

/// The folder of packages.
#[derive(Debug, Clone)]
pub(super) struct PackageFolder(PathBuf);

/// A file that is no skill's package yet. Dropped, it is removed.
pub(super) struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn failed(error: io::Error) -> Error {
    tracing::warn!(%error, "a skill's package cannot be stored or read");
    match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorCode::Unavailable, "the server's disk is full"),
        _ => Error::internal("the skill's package cannot be stored or read"),
    }
}

/// The digest of a package.
pub(super) fn digest_of(bytes: &[u8]) -> Sha256 {
    Sha256(Hasher::digest(bytes).into())
}

impl PartialFile {
    /// What was received.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        fs::read(&self.0).map_err(failed)
    }
}

impl PackageFolder {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn path(&self, digest: Sha256) -> PathBuf {
        self.0.join(format!("{digest}{ENDING}"))
    }

    /// Collects an upload, which may be as large as a package. It waits on the disk and not in memory, because a client
    /// may take its time.
    pub(super) async fn receive(
        &self,
        body: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<PartialFile> {
        let partial = self.partial()?;
        let mut file = tokio::fs::OpenOptions::new().write(true).open(&partial.0).await.map_err(failed)?;
        let (mut body, mut size) = (std::pin::pin!(body), 0);
        while let Some(piece) = body.next().await {
            let piece = piece?;
            size += piece.len();
            if size > LARGEST_PACKAGE {
                let message = format!("a package has at most {} MiB", LARGEST_PACKAGE >> 20);
                return Err(Error::new(ErrorCode::TooLarge, message).at("file"));
            }
            tokio::io::AsyncWriteExt::write_all(&mut file, &piece).await.map_err(failed)?;
        }
        tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(failed)?;
        Ok(partial)
    }

    /// Writes a package that was made here.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<PartialFile> {
        let partial = self.partial()?;
        fs::write(&partial.0, bytes).map_err(failed)?;
        Ok(partial)
    }

    fn partial(&self) -> Result<PartialFile> {
        if self.0.as_os_str().is_empty() {
            return Err(Error::new(ErrorCode::Unsupported, "this server has no folder for skills"));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
        let partial = PartialFile(self.0.join(format!("{PARTIAL}{}", Uuid::new_v4())));
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial.0).map_err(failed)?;
        Ok(partial)
    }

    /// Stores a file as the package of this digest.
    pub(super) fn store(&self, digest: Sha256, partial: &PartialFile) -> Result<()> {
        let stored = || {
            fs::File::open(&partial.0)?.sync_all()?;
            fs::rename(&partial.0, self.path(digest))?;
            fs::File::open(&self.0)?.sync_all()
        };
        stored().map_err(failed)
    }

    /// A stored package.
    pub(super) fn open(&self, digest: Sha256) -> Result<fs::File> {
        fs::File::open(self.path(digest)).map_err(failed)
    }

    /// All of a stored package.
    pub(super) fn read(&self, digest: Sha256) -> Result<Vec<u8>> {
        fs::read(self.path(digest)).map_err(failed)
    }

    /// Removes a package that no skill has.
    pub(super) fn remove(&self, digest: Sha256) {
        if let Err(error) = fs::remove_file(self.path(digest))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a skill's package is removed at the next start");
        }
    }

    /// Removes what is not complete, and returns the digests of the rest.
    pub(super) fn sweep(&self) -> Result<Vec<Sha256>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(PARTIAL) {
                let _ = fs::remove_file(entry.path());
            }
            found.extend(name.strip_suffix(ENDING).and_then(|digest| digest.parse::<Sha256>().ok()));
        }
        Ok(found)
    }
}
