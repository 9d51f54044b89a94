//! What running commands that keep their newest output may keep: a quarter of the spool, in equal parts.
//! However many are loud, the others find room for what they print.

use tokio::sync::watch;

/// The least that each may keep.
const LEAST: u64 = 64 * 1024;

/// Everybody's part, by how many there are.
pub(crate) struct Shares {
    all: u64,
    count: watch::Sender<u64>,
}

/// One command's part; given back when dropped.
pub(crate) struct Share {
    all: u64,
    count: watch::Sender<u64>,
    seen: watch::Receiver<u64>,
}

impl Shares {
    pub(crate) fn of(spool_bytes: u64) -> Self {
        Self { all: spool_bytes / 4, count: watch::Sender::new(0) }
    }

    pub(crate) fn join(&self) -> Share {
        self.count.send_modify(|count| *count += 1);
        Share { all: self.all, count: self.count.clone(), seen: self.count.subscribe() }
    }
}

impl Share {
    /// How much it is now.
    pub(crate) fn bytes(&self) -> u64 {
        (self.all / (*self.seen.borrow()).max(1)).max(LEAST)
    }

    /// Waits until it is another.
    pub(crate) async fn changed(&mut self) {
        // The sender cannot go before us: we hold one.
        let _ = self.seen.changed().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}
