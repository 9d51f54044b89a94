//! The hosts from the links of indexes, in memory and in a small file, so that a start without a network knows
//! those of the last time.

use crate::Entry;
use atoll_types::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};
use url::Url;

/// The file is never larger.
const MOST_BYTES: u64 = 1 << 20;
/// Indexes that are stored.
const MOST_INDEXES: usize = 256;

/// By index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Links {
    hosts: BTreeMap<Url, Vec<Entry>>,
    /// Why the last fetch failed; not kept in the file.
    #[serde(skip)]
    failures: BTreeMap<Url, String>,
}

impl Links {
    /// The hosts of an index's files.
    pub(super) fn of(&self, index: &Url) -> &[Entry] {
        self.hosts.get(index).map_or(&[], Vec::as_slice)
    }

    /// Whether an index has answered.
    pub(super) fn knows(&self, index: &Url) -> bool {
        self.hosts.contains_key(index)
    }

    /// Why an index could not be fetched.
    pub(super) fn failure(&self, index: &Url) -> Option<&str> {
        self.failures.get(index).map(String::as_str)
    }

    /// Stores an answer. A failure keeps what is known. Returns whether the hosts changed.
    pub(super) fn note(&mut self, index: &Url, answer: Result<Vec<Entry>>) -> bool {
        match answer {
            Ok(hosts) => {
                self.failures.remove(index);
                let changed = self.of(index) != hosts;
                if self.hosts.len() < MOST_INDEXES || self.hosts.contains_key(index) {
                    self.hosts.insert(index.clone(), hosts);
                }
                changed
            }
            Err(error) => {
                let why: String = error.message.chars().filter(|c| !c.is_control()).take(200).collect();
                self.failures.insert(index.clone(), why);
                false
            }
        }
    }

    /// Drops unused indexes, once there are many. Not before: after a start the images become known one by one.
    pub(super) fn make_room(&mut self, used: impl Fn(&Url) -> bool) {
        if self.hosts.len() > MOST_INDEXES / 2 {
            self.hosts.retain(|url, _| used(url));
        }
        self.failures.retain(|url, _| used(url));
    }

    /// Reads the file. A missing or malformed one counts as empty.
    pub(super) fn load(path: &Path) -> Self {
        let read = || {
            let mut text = String::new();
            File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
            serde_json::from_str(&text).map_err(io::Error::other)
        };
        read().unwrap_or_default()
    }

    /// Writes the file, whole or not at all.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let write = || {
            let beside = path.with_extension("new");
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            fs::rename(beside, path)
        };
        write().map_err(|e| {
            Error::new(ErrorCode::Internal, format!("the links of indexes could not be kept: {e}"))
        })
    }
}
