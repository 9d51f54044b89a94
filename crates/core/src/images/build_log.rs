//! What a build says while it runs: lines for people and how far it is. The lines are spooled to a file, which is kept as long
//! as the build's record; followers read the file by offset and are woken by each write. Most of it comes from inside of
//! a sandbox, so its length is bounded and nothing here interprets it.

use atoll_types::{BuildId, BuildProgress, Error, Result};
use bytes::Bytes;
use std::{
    collections::HashSet,
    fs::{self, File},
    io::Write,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;

/// The longest log that is kept.
const LONGEST_LOG: u64 = 4 << 20;
/// The last line of a log that was cut.
const CUT: &[u8] = "\n… the log was cut\n".as_bytes();
/// The most that a follower reads at once.
const PIECE: usize = 64 << 10;

/// How a log stands.
#[derive(Debug, Clone, Copy, Default)]
struct LogState {
    bytes: u64,
    /// Nothing is added any more: it is too long, or the disk is full.
    cut: bool,
    progress: BuildProgress,
    ended: bool,
}

/// The log of a build that runs. Clones write to the same one.
#[derive(Clone)]
pub(crate) struct BuildLog(Arc<Spool>);

struct Spool {
    /// None where the server keeps no logs.
    file: Option<Mutex<File>>,
    state: watch::Sender<LogState>,
}

impl BuildLog {
    /// Adds one line.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        self.write(format!("{}\n", text.as_ref()).as_bytes());
    }

    /// Adds bytes as they come: a command's output.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let Some(file) = &self.0.file else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *self.0.state.borrow();
        if before.cut || bytes.is_empty() {
            return;
        }
        let room = usize::try_from(LONGEST_LOG.saturating_sub(before.bytes)).unwrap_or(usize::MAX);
        let fits = bytes.len() <= room;
        let kept = if fits { bytes.to_vec() } else { [&bytes[..room], CUT].concat() };
        // A disk that is full ends the log and not the build.
        let written = file.write_all(&kept).is_ok();
        self.0.state.send_modify(|state| {
            state.cut = !fits || !written;
            state.bytes += if written { kept.len() as u64 } else { 0 };
        });
    }

    /// Says how far the build is.
    pub(crate) fn progress(&self, progress: BuildProgress) {
        self.0.state.send_if_modified(|state| {
            let news = state.progress != progress;
            state.progress = progress;
            news
        });
    }

    /// How far it is.
    pub(super) fn progress_now(&self) -> BuildProgress {
        self.0.state.borrow().progress
    }

    /// Tells followers that nothing more comes.
    pub(super) fn end(&self) {
        self.0.state.send_modify(|state| state.ended = true);
    }

    /// Waits for the build's end.
    pub(super) async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.0.state.subscribe().wait_for(|state| state.ended).await;
    }
}

/// Something of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildNews {
    /// Bytes of the log, whole lines wherever that is possible.
    Text {
        /// Where the next ones begin.
        next: u64,
        /// The bytes.
        text: Bytes,
    },
    /// How far the build is.
    Progress(BuildProgress),
}

/// A log that is read from an offset to its end, waiting where the build runs.
pub struct BuildLogFollow {
    file: Option<Arc<File>>,
    at: u64,
    state: Option<watch::Receiver<LogState>>,
    told: BuildProgress,
}

impl BuildLogFollow {
    /// What comes next; none where the build has ended and everything was read. Cancelling a wait loses nothing.
    pub async fn next(&mut self) -> Result<Option<BuildNews>> {
        loop {
            let state = match &mut self.state {
                Some(receiver) => *receiver.borrow_and_update(),
                None => LogState { ended: true, ..LogState::default() },
            };
            if let Some(text) = self.read(state.ended).await? {
                self.at += text.len() as u64;
                return Ok(Some(BuildNews::Text { next: self.at, text }));
            }
            if self.state.is_some() && state.progress != self.told {
                self.told = state.progress;
                return Ok(Some(BuildNews::Progress(state.progress)));
            }
            if state.ended {
                return Ok(None);
            }
            let Some(receiver) = &mut self.state else { return Ok(None) };
            if receiver.changed().await.is_err() {
                // The server ended before the build did: the log has no more than this.
                self.state = None;
            }
        }
    }

    /// The next bytes of those that are there; none where everything was read.
    pub async fn ready(&mut self) -> Result<Option<Bytes>> {
        let text = self.read(true).await?;
        self.at += text.as_ref().map_or(0, Bytes::len) as u64;
        Ok(text)
    }

    async fn read(&self, ended: bool) -> Result<Option<Bytes>> {
        let Some(file) = self.file.clone() else { return Ok(None) };
        let at = self.at;
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            file.read_at(&mut piece, at).map(|got| {
                piece.truncate(got);
                piece
            })
        });
        let failed =
            |e: &dyn std::fmt::Display| Error::internal(format!("a build's log cannot be read: {e}"));
        let mut piece = read.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
        // A line that is not whole yet is kept for the next read.
        if let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') {
            piece.truncate(last + 1);
        } else if !ended && piece.len() < PIECE {
            piece.clear();
        }
        Ok((!piece.is_empty()).then(|| piece.into()))
    }
}

/// The folder of logs; none where the server keeps none.
#[derive(Debug)]
pub(super) struct LogFolder(Option<PathBuf>);

impl LogFolder {
    /// An empty path is none.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(Some(folder).filter(|folder| !folder.as_os_str().is_empty()))
    }

    /// Where it is; empty where there is none.
    pub(super) fn folder(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    fn path(&self, id: BuildId) -> Option<PathBuf> {
        self.0.as_ref().map(|folder| folder.join(format!("{id}.log")))
    }

    /// A new log. One that cannot be written stops no build.
    pub(super) fn create(&self, id: BuildId) -> BuildLog {
        let file = self.path(id).and_then(|path| {
            let made = path
                .parent()
                .map_or(Ok(()), |folder| fs::DirBuilder::new().recursive(true).mode(0o700).create(folder));
            let file = made.and_then(|()| File::create_new(&path));
            file.inspect_err(|error| tracing::warn!(build = %id, %error, "a build has no log")).ok()
        });
        BuildLog(Arc::new(Spool { file: file.map(Mutex::new), state: watch::Sender::default() }))
    }

    /// Reads a log from an offset; `running` is that of a build that runs.
    pub(super) fn follow(&self, id: BuildId, running: Option<&BuildLog>, at: u64) -> BuildLogFollow {
        BuildLogFollow {
            file: self.path(id).and_then(|path| File::open(path).ok()).map(Arc::new),
            at,
            state: running.map(|log| log.0.state.subscribe()),
            told: BuildProgress::default(),
        }
    }

    pub(super) fn remove(&self, id: BuildId) {
        if let Some(path) = self.path(id) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes logs of builds that have no record.
    pub(super) fn keep(&self, known: &HashSet<BuildId>) {
        let Some(Ok(entries)) = self.0.as_ref().map(fs::read_dir) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<BuildId>().ok());
            if id.is_some_and(|id| !known.contains(&id)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(mut follow: BuildLogFollow) -> String {
        let mut all = Vec::new();
        while let Some(news) = follow.next().await.unwrap() {
            if let BuildNews::Text { text, next } = news {
                all.extend_from_slice(&text);
                assert_eq!(follow.at, next);
            }
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn a_log_is_followed_to_its_end_and_read_after_it() {
        let top = tempfile::tempdir().unwrap();
        let folder = LogFolder::new(top.path().join("builds"));
        let id = BuildId::random();
        let log = folder.create(id);
        log.line("first");
        log.write(b"a ");
        let mut early = folder.follow(id, Some(&log), 0);
        assert_eq!(
            early.next().await.unwrap(),
            Some(BuildNews::Text { next: 6, text: Bytes::from_static(b"first\n") })
        );
        let follower = tokio::spawn(text(early));
        log.write(b"line\nrest");
        let progress = BuildProgress { done_bytes: 1, total_bytes: 2, step: 1, steps: 1 };
        log.progress(progress);
        assert_eq!(log.progress_now(), progress);
        log.end();
        assert_eq!(follower.await.unwrap(), "a line\nrest");
        assert_eq!(text(folder.follow(id, None, 6)).await, "a line\nrest");
        assert_eq!(text(folder.follow(id, None, 1000)).await, "");
        folder.keep(&HashSet::from([id]));
        assert_eq!(text(folder.follow(id, None, 13)).await, "rest");
        folder.keep(&HashSet::new());
        assert_eq!(text(folder.follow(id, None, 0)).await, "");
    }

    #[tokio::test]
    async fn a_log_that_is_too_long_is_cut_once() {
        let top = tempfile::tempdir().unwrap();
        let folder = LogFolder::new(top.path().to_owned());
        let log = folder.create(BuildId::random());
        let line = format!("{}\n", "x".repeat(99_999));
        for _ in 0..60 {
            log.write(line.as_bytes());
        }
        let id = fs::read_dir(top.path()).unwrap().next().unwrap().unwrap().path();
        let kept = fs::read_to_string(id).unwrap();
        assert_eq!(kept.len() as u64, LONGEST_LOG + CUT.len() as u64);
        assert!(kept.ends_with("x\n… the log was cut\n"));
    }

    #[tokio::test]
    async fn a_server_without_a_folder_keeps_no_log() {
        let folder = LogFolder::new(PathBuf::new());
        let log = folder.create(BuildId::random());
        log.line("lost");
        log.end();
        assert_eq!(text(folder.follow(BuildId::random(), Some(&log), 0)).await, "");
    }
}
