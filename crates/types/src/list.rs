//! Lists: which records, in which order, and how many. The order is total, so that paging through a set
//! that does not change shows each record once.

use crate::{SandboxRecord, Status, names};
use std::collections::BTreeMap;

names!(
    /// What a list is sorted by. Records that are equal in it are in the order of their ids. Text sorts
    /// by its bytes.
    SortBy {
        /// When it was made.
        CreatedAt = "created_at",
        /// When it was last active.
        LastActivityAt = "last_activity_at",
        /// The status's name.
        Status = "status",
        /// The image's name.
        Image = "image",
        /// How many commands it ran.
        ExecCount = "exec_count",
    }
);

/// Which records to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The owner; `None`: all owners.
    pub owner: Option<String>,
    /// Those with one of these; empty: any. Naming `destroyed` includes the destroyed.
    pub statuses: Vec<Status>,
    /// Those whose create named the image so, in one of these ways; empty: any.
    pub images: Vec<String>,
    /// Those with this session key.
    pub session_key: Option<String>,
    /// Those that have all of these.
    pub labels: BTreeMap<String, String>,
    /// Those that have a label of this name, whatever its value.
    pub label: Option<String>,
    /// Those where id, image, session key, owner's name or a label (`name=value`) contains this text in
    /// any case.
    pub text: Option<String>,
    /// By what to sort.
    pub sort_by: SortBy,
    /// The largest first, ids too.
    pub descending: bool,
    /// How many to leave out at the front.
    pub offset: u64,
    /// How many at most.
    pub limit: u32,
    /// The destroyed too.
    pub include_destroyed: bool,
    /// Those alone whose creator said how long they may live.
    pub with_lifetime: bool,
}

impl Default for ListQuery {
    /// The newest twenty of all owners that are not destroyed.
    fn default() -> Self {
        Self {
            owner: None,
            statuses: Vec::new(),
            images: Vec::new(),
            session_key: None,
            labels: BTreeMap::new(),
            label: None,
            text: None,
            sort_by: SortBy::CreatedAt,
            descending: true,
            offset: 0,
            limit: 20,
            include_destroyed: false,
            with_lifetime: false,
        }
    }
}

impl ListQuery {
    /// Whether destroyed records are part of what is listed and counted.
    #[must_use]
    pub fn shows_destroyed(&self) -> bool {
        self.include_destroyed || self.statuses.contains(&Status::Destroyed)
    }

    /// How many records match, from the counts of all statuses.
    #[must_use]
    pub fn total(&self, counts: &BTreeMap<Status, u64>) -> u64 {
        let wanted = |status: &Status| self.statuses.is_empty() || self.statuses.contains(status);
        counts.iter().filter(|(status, _)| wanted(status)).map(|(_, count)| count).sum()
    }
}

/// One page of a list, all of it from one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The records.
    pub items: Vec<SandboxRecord>,
    /// How many match without offset and limit.
    pub total: u64,
    /// How many there are of each status that occurs, by the same filter but for the statuses.
    pub status_counts: BTreeMap<Status, u64>,
}
