//! A folder of blobs by their digests, `blobs/sha256/<hex>`. A blob appears there whole and verified or not at all; what is
//! on its way is in `partial`, where an interrupted pull continues.

use crate::{Digest, Hasher, LARGEST_DOCUMENT};
use atoll_types::{Error, ErrorCode, Result};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    io::AsyncReadExt,
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
};

/// What begins the names of new blobs whose digest is not known yet; none outlives its writer.
const PARTIAL_PREFIX: &str = "new-";
const PIECE: usize = 128 << 10;

/// A folder of blobs. One process has it.
#[derive(Debug)]
pub struct Blobs {
    complete: PathBuf,
    partial: PathBuf,
    /// The blobs that are being fetched: others that want one wait for it.
    busy: Mutex<HashMap<Digest, Weak<AsyncMutex<()>>>>,
    serial: AtomicU64,
}

/// A blob that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobUsage {
    pub digest: Digest,
    pub bytes: u64,
    pub modified: SystemTime,
}

/// The error for a failed call on a blob's file; a host's path is not in it.
pub(crate) fn failed(error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::Internal,
    };
    Error::new(code, format!("a blob of an image cannot be kept or read: {}", error.kind()))
}

impl Blobs {
    /// Opens a folder, which is made where it is missing. What a killed writer left of new blobs is removed; what a pull
    /// left is kept for the next one.
    pub fn open(folder: &Path) -> Result<Self> {
        let (complete, partial) = (folder.join("blobs/sha256"), folder.join("partial"));
        for folder in [&complete, &partial] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| failed(&e))?;
        }
        for entry in fs::read_dir(&partial).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            if entry.file_name().to_string_lossy().starts_with(PARTIAL_PREFIX) {
                fs::remove_file(entry.path()).map_err(|e| failed(&e))?;
            }
        }
        Ok(Self { complete, partial, busy: Mutex::default(), serial: AtomicU64::new(0) })
    }

    /// Where a blob is, or would be.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.complete.join(digest.hex())
    }

    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.partial.join(digest.hex())
    }

    pub(crate) fn new_file(&self) -> PathBuf {
        self.partial.join(format!("{PARTIAL_PREFIX}{}", self.serial.fetch_add(1, Ordering::Relaxed)))
    }

    /// The length of a blob, where it is there.
    pub async fn size(&self, digest: &Digest) -> Result<Option<u64>> {
        match tokio::fs::metadata(self.path(digest)).await {
            Ok(about) => Ok(Some(about.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    }

    /// The bytes of a blob that is a document.
    pub async fn document(&self, digest: &Digest) -> Result<Vec<u8>> {
        let file = tokio::fs::File::open(self.path(digest)).await.map_err(|e| failed(&e))?;
        let mut bytes = Vec::new();
        file.take(LARGEST_DOCUMENT + 1).read_to_end(&mut bytes).await.map_err(|e| failed(&e))?;
        if bytes.len() as u64 > LARGEST_DOCUMENT {
            return Err(Error::new(
                ErrorCode::TooLarge,
                format!("{digest} has more than {LARGEST_DOCUMENT} bytes"),
            ));
        }
        Ok(bytes)
    }

    /// The bytes of a blob, piece by piece: a layer on its way into a sandbox or to a registry.
    pub async fn stream(&self, digest: &Digest) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        let file = tokio::fs::File::open(self.path(digest)).await.map_err(|e| failed(&e))?;
        Ok(stream::try_unfold(file, async |mut file| {
            let mut piece = BytesMut::with_capacity(PIECE);
            let got = file.read_buf(&mut piece).await.map_err(|e| failed(&e))?;
            Ok((got > 0).then(|| (piece.freeze(), file)))
        }))
    }

    /// Keeps bytes as a blob.
    pub async fn put(&self, bytes: &[u8]) -> Result<Digest> {
        let (digest, path) = (Digest::of(bytes), self.new_file());
        let written = async {
            tokio::fs::write(&path, bytes).await?;
            tokio::fs::File::open(&path).await?.sync_all().await?;
            tokio::fs::rename(&path, self.path(&digest)).await
        };
        if let Err(error) = written.await {
            let _ = tokio::fs::remove_file(&path).await;
            return Err(failed(&error));
        }
        Ok(digest)
    }

    /// Notes that a blob is used: it is as new as one that was fetched now.
    pub(crate) async fn touch(&self, digest: &Digest) {
        let path = self.path(digest);
        let touched =
            tokio::task::spawn_blocking(move || fs::File::open(path)?.set_modified(SystemTime::now()));
        // One that stays old is fetched again the sooner.
        let _ = touched.await;
    }

    /// Removes a blob; one that is not there is removed.
    pub async fn remove(&self, digest: &Digest) -> Result<()> {
        match tokio::fs::remove_file(self.path(digest)).await {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&e)),
            _ => Ok(()),
        }
    }

    /// Removes a blob whose bytes are not those of its digest any more; false where they are, or where there is none.
    pub async fn remove_damaged(&self, digest: &Digest) -> Result<bool> {
        let (path, wanted) = (self.path(digest), digest.clone());
        let is_damaged = tokio::task::spawn_blocking(move || {
            let mut file = fs::File::open(path)?;
            let (mut hasher, mut piece) = (Hasher::default(), vec![0; PIECE]);
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok::<_, io::Error>(hasher.finish() != wanted),
                    got => hasher.update(&piece[..got]),
                }
            }
        });
        match is_damaged.await.map_err(|e| Error::internal(e.to_string()))? {
            Ok(true) => self.remove(digest).await.map(|()| true),
            Ok(false) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed(&e)),
        }
    }

    /// All blobs.
    pub async fn list(&self) -> Result<Vec<BlobUsage>> {
        let mut entries = tokio::fs::read_dir(&self.complete).await.map_err(|e| failed(&e))?;
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(|e| failed(&e))? {
            let Ok(digest) = format!("sha256:{}", entry.file_name().to_string_lossy()).parse() else {
                continue;
            };
            let about = match entry.metadata().await {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| failed(&e))?,
            };
            let modified = about.modified().map_err(|e| failed(&e))?;
            found.push(BlobUsage { digest, bytes: about.len(), modified });
        }
        Ok(found)
    }

    /// Removes what pulls left half-done this long ago and that no pull continues now.
    pub async fn sweep(&self, older: Duration) -> Result<()> {
        let mut entries = tokio::fs::read_dir(&self.partial).await.map_err(|e| failed(&e))?;
        while let Some(entry) = entries.next_entry().await.map_err(|e| failed(&e))? {
            let Ok(digest) = format!("sha256:{}", entry.file_name().to_string_lossy()).parse() else {
                continue;
            };
            let Ok(_guard) = self.lock_of(&digest).try_lock_owned() else { continue };
            let modified = entry.metadata().await.and_then(|about| about.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= older)) {
                let _ = tokio::fs::remove_file(entry.path()).await;
            }
        }
        Ok(())
    }

    fn lock_of(&self, digest: &Digest) -> Arc<AsyncMutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|_, lock| lock.strong_count() > 0);
        match busy.get(digest).and_then(Weak::upgrade) {
            Some(lock) => lock,
            None => {
                let lock = Arc::new(AsyncMutex::new(()));
                busy.insert(digest.clone(), Arc::downgrade(&lock));
                lock
            }
        }
    }

    /// Waits until no other pull fetches this blob.
    pub(crate) async fn lock(&self, digest: &Digest) -> OwnedMutexGuard<()> {
        self.lock_of(digest).lock_owned().await
    }
}
