//! Writes the decisions of all sandboxes' proxies into the audit trail, some of each in turn. While the trail
//! cannot be written, the proxies allow no new connection.

use super::decision_queue::{DecisionQueue, Row};
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
/// How soon the queues are read again.
const TICK: Duration = Duration::from_millis(100);
/// The delay before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long a server that shuts down waits for the last rows.
const LAST: Duration = Duration::from_secs(5);

/// The task that writes decisions.
pub(super) struct DecisionWriter {
    all: Mutex<Vec<Arc<DecisionQueue>>>,
    pub(super) wake: Arc<Notify>,
    failing: watch::Sender<bool>,
    writing: AtomicBool,
}

impl DecisionWriter {
    /// Starts the task; it ends with the last handle.
    pub(super) fn start(ledger: Ledger) -> Arc<Self> {
        let decision_writer = Arc::new(Self {
            all: Mutex::default(),
            wake: Arc::default(),
            failing: watch::Sender::new(false),
            writing: AtomicBool::new(false),
        });
        let (weak, wake) = (Arc::downgrade(&decision_writer), Arc::clone(&decision_writer.wake));
        tokio::spawn(async move {
            let mut rest = false;
            loop {
                if rest {
                    let _ = tokio::time::timeout(TICK, wake.notified()).await;
                } else {
                    wake.notified().await;
                }
                let Some(decision_writer) = weak.upgrade() else { return };
                rest = decision_writer.tell(&ledger).await;
            }
        });
        decision_writer
    }

    /// Adds the queue of one more sandbox, until that is over.
    pub(super) fn add(&self, decision_queue: Arc<DecisionQueue>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Most sandboxes never have a decision, so finished queues are removed here.
        all.retain(|decision_queue| !decision_queue.is_over());
        all.push(decision_queue);
    }

    /// Whether the trail cannot be written.
    pub(super) fn failing(&self) -> watch::Receiver<bool> {
        self.failing.subscribe()
    }

    fn gather(&self) -> Vec<Row> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|decision_queue| !decision_queue.is_over());
        let mut rows = Vec::new();
        for decision_queue in &*all {
            if rows.len() >= OF_ALL {
                break;
            }
            rows.extend(decision_queue.take(OF_ONE));
        }
        // A queue that was passed over is first the next time.
        let first = all.len().min(1);
        all.rotate_left(first);
        rows
    }

    fn waits(&self) -> bool {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|decision_queue| !decision_queue.is_empty())
    }

    /// Whether rows were taken that are not written yet.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::SeqCst)
    }

    /// Writes the rows there are, and says whether more wait.
    async fn tell(&self, ledger: &Ledger) -> bool {
        loop {
            // Set before rows are taken, so that `finish` sees them either in a queue or as being written.
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
                    tracing::error!(%error, "egress decisions cannot be audited, so connections are refused");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until all rows are written, for a server that shuts down.
    pub(super) async fn finish(&self) {
        let told = async {
            while self.waits() || self.is_writing() {
                self.wake.notify_one();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(LAST, told).await.is_err() {
            tracing::error!("some egress decisions could not be audited before shutdown");
        }
    }
}
