//! Writes what proxies tell into the audit trail, for all sandboxes, some of each in turn. Where the trail
//! cannot be written the word goes round, and no new connection is made until it can be again.

use super::notes::{Notes, Row};
use atoll_audit::Ledger;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// Rows of one sandbox, and of all, that are written together.
const OF_ONE: usize = 32;
const OF_ALL: usize = 256;
/// How soon what could not be told yet is looked at again.
const TICK: Duration = Duration::from_millis(100);
/// Before a write that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long a server that ends waits for the last rows.
const LAST: Duration = Duration::from_secs(5);

/// The way into the trail.
pub(super) struct Teller {
    all: Mutex<Vec<Arc<Notes>>>,
    pub(super) wake: Arc<Notify>,
    failing: watch::Sender<bool>,
    writing: AtomicBool,
}

impl Teller {
    /// Starts the task that writes; it ends with the last handle.
    pub(super) fn start(ledger: Ledger) -> Arc<Self> {
        let teller = Arc::new(Self {
            all: Mutex::default(),
            wake: Arc::default(),
            failing: watch::Sender::new(false),
            writing: AtomicBool::new(false),
        });
        let (weak, wake) = (Arc::downgrade(&teller), Arc::clone(&teller.wake));
        tokio::spawn(async move {
            let mut rest = false;
            loop {
                if rest {
                    let _ = tokio::time::timeout(TICK, wake.notified()).await;
                } else {
                    wake.notified().await;
                }
                let Some(teller) = weak.upgrade() else { return };
                rest = teller.tell(&ledger).await;
            }
        });
        teller
    }

    /// Tells of one more sandbox, until its notes are over.
    pub(super) fn add(&self, notes: Arc<Notes>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Most sandboxes never have anything to tell, so nobody else would let go of those that are over.
        all.retain(|notes| !notes.is_over());
        all.push(notes);
    }

    /// Whether the trail cannot be written.
    pub(super) fn failing(&self) -> watch::Receiver<bool> {
        self.failing.subscribe()
    }

    fn gather(&self) -> Vec<Row> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|notes| !notes.is_over());
        let mut rows = Vec::new();
        for notes in &*all {
            if rows.len() >= OF_ALL {
                break;
            }
            rows.extend(notes.take(OF_ONE));
        }
        // Who was passed over is first the next time.
        let first = all.len().min(1);
        all.rotate_left(first);
        rows
    }

    fn waits(&self) -> bool {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|notes| !notes.is_empty())
    }

    /// Writes what there is, and says whether something waits.
    async fn tell(&self, ledger: &Ledger) -> bool {
        loop {
            // Before anything is taken, so that whoever looks finds it in one place or the other.
            self.writing.store(true, Ordering::SeqCst);
            let mut rows = self.gather();
            if rows.is_empty() {
                self.writing.store(false, Ordering::SeqCst);
                return self.waits();
            }
            while !rows.is_empty() {
                let told = ledger.tell(rows.clone()).await;
                let error = told.iter().find_map(|told| told.as_ref().err().cloned());
                rows = rows.into_iter().zip(told).filter(|(_, t)| t.is_err()).map(|(row, _)| row).collect();
                let failing = error.is_some();
                self.failing.send_if_modified(|was| std::mem::replace(was, failing) != failing);
                if let Some(error) = error {
                    tracing::error!(%error, "decisions cannot be told, and so nothing gets out");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until everything is told, for a server that ends.
    pub(super) async fn finish(&self) {
        let told = async {
            while self.waits() || self.writing.load(Ordering::SeqCst) {
                self.wake.notify_one();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(LAST, told).await.is_err() {
            tracing::error!("some decisions could not be told before the end");
        }
    }
}
