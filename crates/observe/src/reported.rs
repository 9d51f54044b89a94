//! When each reported file was last written to. A program that opened a file for writing and closes it may have
//! written without an event: through a mapping, or with the old asynchronous calls. The file's mtime shows
//! whether it did, since setting that back makes an event itself.

use crate::found::{Found, Moment, tick};
use std::collections::HashMap;

const MOST: usize = 65_536;

/// The reported files, and since when they are recorded.
pub(crate) struct ReportedFiles {
    since: Moment,
    files: HashMap<u64, Moment>,
}

impl ReportedFiles {
    pub(crate) fn new() -> Self {
        Self { since: tick(), files: HashMap::new() }
    }

    /// Whether a file was written to since it was reported, or since the beginning.
    pub(crate) fn is_news(&self, found: &Found) -> bool {
        match self.files.get(&found.inode) {
            Some(moment) => *moment != found.modified,
            None => found.modified >= self.since,
        }
    }

    pub(crate) fn tell<'a>(&mut self, found: impl Iterator<Item = &'a Found>) {
        self.files.extend(found.map(|found| (found.inode, found.modified)));
        if self.files.len() > MOST {
            // Older changes count as reported.
            *self = Self::new();
        }
    }
}
