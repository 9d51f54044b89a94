//! Uploads to a thread, for its sessions to import: files in a folder of the thread, below one of its owner.
//! Names are sanitised, sizes are bounded for each owner, and a file is visible only once it is complete.

use crate::{Sessions, ToolCaller};
use atoll_core::ExtensionOperation;
use atoll_types::{Error, ErrorCode, Operation, Result, time::now_ms};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use tokio::io::AsyncWriteExt;

const MIB: u64 = 1 << 20;
/// Most files of one owner.
const MOST_FILES: u64 = 10_000;
/// Most threads of one owner that are stored.
const MOST_THREADS: usize = 1000;
/// The longest name, in bytes.
const LONGEST_NAME: usize = 200;
/// The prefix of incomplete files.
const PART: &str = ".part-";

/// An uploaded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// Its name.
    pub name: String,
    /// What import_files takes as its source.
    pub path: String,
    /// Its bytes.
    pub size: u64,
}

/// A name without any path.
fn plain(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain = String::new();
    for letter in last.chars() {
        let letter = if letter.is_control() || "\"<>|:*?\u{feff}".contains(letter) { '_' } else { letter };
        if plain.len() + letter.len_utf8() > LONGEST_NAME {
            break;
        }
        plain.push(letter);
    }
    let plain = plain.trim();
    match plain.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if plain.is_empty() => "file".to_owned(),
        None => plain.to_owned(),
    }
}

fn failed(error: io::Error) -> Error {
    tracing::warn!(%error, "an upload cannot be kept");
    match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorCode::Unavailable, "the server's disk is full"),
        _ => Error::internal("the upload cannot be kept"),
    }
}

/// Bytes and files below a folder, two levels deep: threads and their files.
fn used(owner: &Path) -> io::Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    let threads = match fs::read_dir(owner) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        threads => threads?,
    };
    for thread in threads {
        for file in fs::read_dir(thread?.path())? {
            let about = file?.metadata()?;
            (bytes, files) = (bytes + about.blocks().saturating_mul(512).max(about.len()), files + 1);
        }
    }
    Ok((bytes, files))
}

/// An incomplete file. Dropped, it is removed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Sessions {
    /// The folder of a thread's uploads.
    pub(crate) fn uploads_of(&self, owner: &str, thread: &str) -> Result<PathBuf> {
        // An owner is a UUID and a thread validates itself; a folder's name must not depend on that.
        let safe = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        match safe(owner) && safe(thread) {
            true => Ok(self.settings.storage_dir.join(owner).join(thread)),
            false => Err(Error::internal("an owner or a thread has no folder")),
        }
    }

    /// Stores a file for the sessions of a thread. One of the same name is replaced.
    pub async fn upload(
        &self,
        who: &ToolCaller,
        name: &str,
        body: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<Uploaded> {
        let name = plain(name);
        let operation =
            ExtensionOperation::new(Operation::ThreadUpload).with(&name).and("thread", &who.thread);
        self.core.operations.carry_out(&who.caller, operation, self.keep_upload(who, name, body)).await
    }

    async fn keep_upload(
        &self,
        who: &ToolCaller,
        name: String,
        body: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<Uploaded> {
        let (owner, thread) = (who.caller.owner.as_str(), who.thread.as_str());
        let turn = self.uploading.of(owner);
        let _turn = turn.lock().await;
        self.check_threads(who).await?;
        self.store.touch_tool_thread(owner, thread, now_ms()).await?;
        let folder = self.uploads_of(owner, thread)?;
        let capacity = self.room_for_uploads(owner, folder.clone()).await?;
        let part = Part(folder.join(format!("{PART}{}", uuid::Uuid::new_v4().simple())));
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part.0);
        let mut file = tokio::fs::File::from_std(options.map_err(failed)?);
        let (mut body, mut size) = (std::pin::pin!(body), 0_u64);
        while let Some(piece) = body.next().await {
            let piece = piece?;
            size += piece.len() as u64;
            if size > capacity {
                return Err(self.too_large());
            }
            file.write_all(&piece).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        drop(file);
        fs::rename(&part.0, folder.join(&name)).map_err(failed)?;
        Ok(Uploaded { path: name.clone(), name, size })
    }

    fn too_large(&self) -> Error {
        let most = self.core.settings.now().tool_sessions_uploads_mb;
        let message =
            format!("your uploads may have {most} MB together; delete conversations that you do not need");
        Error::new(ErrorCode::TooLarge, message)
    }

    /// How many bytes may still come.
    async fn room_for_uploads(&self, owner: &str, folder: PathBuf) -> Result<u64> {
        let all = self.settings.storage_dir.join(owner);
        let counting = tokio::task::spawn_blocking(move || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            used(&all)
        });
        let broken = |_| Error::internal("counting uploads broke off");
        let (bytes, files) = counting.await.map_err(broken)?.map_err(failed)?;
        let most = u64::from(self.core.settings.now().tool_sessions_uploads_mb) * MIB;
        match most.checked_sub(bytes).filter(|_| files < MOST_FILES) {
            Some(capacity) => Ok(capacity),
            None => Err(self.too_large()),
        }
    }

    /// Refuses a thread beyond the limit on stored threads.
    async fn check_threads(&self, who: &ToolCaller) -> Result<()> {
        let threads = self.store.tool_threads().await?;
        let mut mine = threads.iter().filter(|thread| thread.owner == who.caller.owner);
        if mine.clone().count() >= MOST_THREADS && mine.all(|thread| thread.thread != who.thread.as_str()) {
            let message = format!("there are {MOST_THREADS} conversations; delete some");
            return Err(Error::new(ErrorCode::LimitExceeded, message));
        }
        Ok(())
    }

    /// Removes the uploads of a thread.
    pub(crate) async fn remove_uploads(&self, owner: &str, thread: &str) -> Result<()> {
        let folder = self.uploads_of(owner, thread)?;
        let removing = tokio::task::spawn_blocking(move || match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => match folder.parent().map(fs::remove_dir) {
                // The folder is not empty: other threads of the owner have uploads.
                Some(Err(_)) | Some(Ok(())) | None => Ok(()),
            },
        });
        removing.await.map_err(|_| Error::internal("removing uploads broke off"))?.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_only_a_name() {
        for (given, wanted) in [
            ("data.csv", "data.csv"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\a\\b.txt", "b.txt"),
            ("..", "_."),
            (".bashrc", "_bashrc"),
            ("", "file"),
            ("a/", "file"),
            (" é x.txt ", "é x.txt"),
            ("a\0b\nc\"d", "a_b_c_d"),
        ] {
            assert_eq!(plain(given), wanted, "{given:?}");
        }
        assert_eq!(plain(&"é".repeat(500)).len(), LONGEST_NAME);
    }
}
