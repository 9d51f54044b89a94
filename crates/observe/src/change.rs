//! The answer, and how a before and an after at each path become one change. States in between do not matter: a
//! file that was created and deleted again is no change, one deleted and created again is modified.

use crate::found::Found;
use std::{collections::HashMap, ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It did not exist before.
    Created,
    /// Its content, its owner, its mode or its times changed, or another file has that name.
    Modified,
    /// It no longer exists.
    Deleted,
}

/// The sorts of files that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link, itself.
    Symlink,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// Its path, relative to the folder of the request. Any bytes but zero.
    pub path: PathBuf,
    /// What happened to it.
    pub action: Action,
    /// Its size now; zero when it was deleted.
    pub size_bytes: u64,
    /// Its kind now; that of a deleted one is not known.
    pub kind: Option<Kind>,
}

/// What changed between two requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// By path; one entry a path.
    pub entries: Vec<Change>,
    /// There may be more. Every entry that is here is true.
    pub truncated: bool,
}

impl Changes {
    /// Nothing is known.
    pub(crate) fn unknown() -> Self {
        Self { entries: Vec::new(), truncated: true }
    }
}

/// Before and after of one path.
#[derive(Default)]
struct Outcome {
    before: bool,
    after: Option<Found>,
}

/// Before and after of every path that may have changed, below one folder.
pub(crate) struct Ledger {
    folder: Vec<u8>,
    paths: HashMap<Vec<u8>, Outcome>,
    most: usize,
    full: bool,
}

impl Ledger {
    /// `folder` is relative to the tree, and so are the paths that follow.
    pub(crate) fn new(folder: &str, most: usize) -> Self {
        let mut folder = folder.trim_matches('/').as_bytes().to_vec();
        if !folder.is_empty() {
            folder.push(b'/');
        }
        Self { folder, paths: HashMap::new(), most, full: false }
    }

    fn outcome(&mut self, dir: &[u8], name: &[u8]) -> Option<&mut Outcome> {
        let path = join(dir, name);
        let relative = path.strip_prefix(self.folder.as_slice())?;
        if !self.paths.contains_key(relative) && self.paths.len() >= self.most {
            self.full = true;
            return None;
        }
        Some(self.paths.entry(relative.to_vec()).or_default())
    }

    /// There was a file before.
    pub(crate) fn before(&mut self, dir: &[u8], name: &[u8]) {
        if let Some(outcome) = self.outcome(dir, name) {
            outcome.before = true;
        }
    }

    /// There is a file now, and if there was one before, it has changed.
    pub(crate) fn after(&mut self, dir: &[u8], name: &[u8], found: &Found) {
        if let Some(outcome) = self.outcome(dir, name) {
            outcome.after = Some(found.clone());
        }
    }

    /// Whether the answer has more entries than it may, so that some are left out.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether entries below a folder can be in the answer.
    pub(crate) fn wants(&self, dir: &[u8]) -> bool {
        let dir = join(dir, b"");
        !self.full && (dir.starts_with(&self.folder) || self.folder.starts_with(&dir))
    }

    /// Removes what was recorded about a path.
    pub(crate) fn forget(&mut self, dir: &[u8], name: &[u8]) {
        if let Some(relative) = join(dir, name).strip_prefix(self.folder.as_slice()) {
            self.paths.remove(relative);
        }
    }

    /// The files that exist now.
    pub(crate) fn found(&self) -> impl Iterator<Item = &Found> {
        self.paths.values().filter_map(|outcome| outcome.after.as_ref())
    }

    /// The answer. A truncated one leaves out deleted files: the path that a deleted file had is derived from all
    /// events, and some of them are missing.
    pub(crate) fn close(self, truncated: bool) -> Changes {
        let truncated = truncated || self.full;
        let change = |(path, outcome): (Vec<u8>, Outcome)| {
            let Outcome { before, after } = outcome;
            let action = match (before, &after) {
                (false, None) => return None,
                (true, None) if truncated => return None,
                (true, None) => Action::Deleted,
                (false, Some(_)) => Action::Created,
                (true, Some(_)) => Action::Modified,
            };
            let size_bytes = after.as_ref().map_or(0, |found| found.size);
            let kind = after.and_then(|found| found.kind);
            Some(Change { path: OsString::from_vec(path).into(), action, size_bytes, kind })
        };
        let mut entries: Vec<Change> = self.paths.into_iter().filter_map(change).collect();
        entries.sort_unstable();
        Changes { entries, truncated }
    }
}

/// A path of bytes.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
