//! The limit on connections of all sandboxes together. Each takes two descriptors of the server, and a sandbox
//! that took the last would leave none for the others and the API. A sandbox may have as many as are still free:
//! one that takes all it can leaves half, and the next one half of that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct ConnectionLimit {
    most: u64,
    taken: AtomicU64,
}

impl ConnectionLimit {
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self { most: most.unwrap_or(u64::MAX), taken: AtomicU64::new(0) }
    }

    /// Takes one more for a sandbox that has so many.
    pub(crate) fn take(&self, own: u64) -> bool {
        let more = |taken: u64| (own < self.most.saturating_sub(taken)).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    pub(crate) fn give_back(&self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many a sandbox gets that takes all there are.
    fn all(connection_limit: &ConnectionLimit) -> u64 {
        (0..).find(|own| !connection_limit.take(*own)).unwrap()
    }

    #[test]
    fn an_owner_that_takes_all_leaves_as_many_for_the_next() {
        let connection_limit = ConnectionLimit::new(Some(100));
        assert_eq!((all(&connection_limit), all(&connection_limit), all(&connection_limit)), (50, 25, 13));
        (0..88).for_each(|_| connection_limit.give_back());
        assert_eq!(all(&connection_limit), 50);
        assert!(ConnectionLimit::new(None).take(1_000_000));
    }
}
