//! What running commands that keep their newest output may keep: a quarter of the spool, in equal parts. However
//! many print much, the others find room for their output.

use tokio::sync::watch;

/// The least that each may keep.
const LEAST: u64 = 64 * 1024;

/// Each command's part, by how many there are.
pub(crate) struct Shares(watch::Sender<Division>);

/// What is divided, and among how many.
#[derive(Clone, Copy)]
struct Division {
    all: u64,
    count: u64,
}

/// One command's part; given back when dropped.
pub(crate) struct Share {
    division: watch::Sender<Division>,
    seen: watch::Receiver<Division>,
}

impl Shares {
    pub(crate) fn of(spool_bytes: u64) -> Self {
        Self(watch::Sender::new(Division { all: spool_bytes / 4, count: 0 }))
    }

    /// The spool has another size from now on.
    pub(crate) fn resize(&self, spool_bytes: u64) {
        self.0.send_modify(|division| division.all = spool_bytes / 4);
    }

    pub(crate) fn join(&self) -> Share {
        self.0.send_modify(|division| division.count += 1);
        Share { division: self.0.clone(), seen: self.0.subscribe() }
    }
}

impl Share {
    /// How much it is now.
    pub(crate) fn bytes(&self) -> u64 {
        let Division { all, count } = *self.seen.borrow();
        (all / count.max(1)).max(LEAST)
    }

    /// Waits until it is another.
    pub(crate) async fn changed(&mut self) {
        // The sender cannot be dropped before this: it is held here.
        let _ = self.seen.changed().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.division.send_modify(|division| division.count -= 1);
    }
}
