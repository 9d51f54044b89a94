//! The seam between what storage promises and how a tree is made. A driver never decides whether
//! something fits: `Storage` asks it for its room, under the lock, and then lets it act.

use crate::report::{DriverKind, QuotaKind, Usage};
use crate::tree::{Tree, TreeKind};
use atoll_types::Result;
use std::path::PathBuf;

/// How much work to spend on knowing the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// A lower bound that costs little.
    Quick,
    /// What is true, after waiting for what is being freed.
    Exact,
}

/// What can be promised.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    /// To new trees.
    pub(crate) free: u64,
    /// Promised and not used yet; never too low, and right with `Care::Exact`.
    pub(crate) promised: u64,
    /// What all promises so far need of a pool.
    pub(crate) needed: u64,
}

/// How trees are made. `create`, `set_limit`, `room` and `make_room` are called under the storage lock.
pub(crate) trait Driver: Send + Sync {
    fn kind(&self) -> DriverKind;
    fn quota(&self) -> QuotaKind;
    fn reflink(&self) -> bool;
    fn notes(&self) -> Vec<String>;

    fn path(&self, tree: Tree) -> PathBuf;
    fn list(&self, kind: TreeKind) -> Result<Vec<Tree>>;
    /// The limit of a tree, `None` where there is no such tree.
    fn limit(&self, tree: Tree) -> Result<Option<u64>>;
    fn usage(&self, tree: Tree) -> Result<Usage>;
    /// What a tree holds, where the kernel has counted that: never by looking into it.
    fn counted(&self, tree: Tree) -> Option<u64>;

    /// Makes a tree that is not there. It appears whole, with its limit, or not at all.
    fn create(&self, tree: Tree, limit: u64) -> Result<()>;
    fn set_limit(&self, tree: Tree, limit: u64) -> Result<()>;
    /// Moves a tree out of sight, then frees it. Not an error where there is none.
    fn remove(&self, tree: Tree) -> Result<()>;
    /// Frees what a crash left half made or half removed. Called under the lock.
    fn sweep(&self) -> Result<()>;

    fn room(&self, care: Care) -> Result<Room>;
    /// Makes so much more usable; only called for what `room` says is free.
    fn make_room(&self, room: &Room, bytes: u64) -> Result<()>;
    /// Waits a moment for space that is being freed. Called without the lock.
    fn settle(&self);

    fn close(self: Box<Self>) -> Result<()>;
}
