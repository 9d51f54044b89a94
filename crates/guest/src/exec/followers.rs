//! The followers of a lossless command, and how far each has read. The command's task waits for the slowest and
//! frees what all have read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Followers {
    offsets: Mutex<(u64, BTreeMap<u64, u64>)>,
    progress: Notify,
}

/// One of them; it leaves when dropped.
pub(crate) struct Follower {
    all: Arc<Followers>,
    number: u64,
}

impl Followers {
    fn with<T>(&self, act: impl FnOnce(&mut (u64, BTreeMap<u64, u64>)) -> T) -> T {
        act(&mut self.offsets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn join(self: &Arc<Self>, offset: u64) -> Follower {
        let number = self.with(|(next, offsets)| {
            *next += 1;
            offsets.insert(*next, offset);
            *next
        });
        Follower { all: self.clone(), number }
    }

    /// How far the slowest has read; none without a follower.
    pub(crate) fn slowest(&self) -> Option<u64> {
        self.with(|(_, offsets)| offsets.values().min().copied())
    }

    /// Waits until a follower has read on, or left.
    pub(crate) async fn progress(&self) {
        self.progress.notified().await;
    }
}

impl Follower {
    pub(crate) fn reached(&self, offset: u64) {
        self.all.with(|(_, offsets)| offsets.insert(self.number, offset));
        self.all.progress.notify_one();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.all.with(|(_, offsets)| offsets.remove(&self.number));
        self.all.progress.notify_one();
    }
}
