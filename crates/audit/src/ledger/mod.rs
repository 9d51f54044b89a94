//! The writer of the trail. One task owns the chain; callers send it their rows. Rows that arrive while it
//! writes go into the next transaction together, so many callers cost little more than one.
//!
//! A beginning that cannot be written is refused, and its operation with it. An end that cannot be written is
//! kept and tried again. A caller may go away: its row is written all the same, and an operation whose guard
//! is dropped is ended here.

mod batch;
mod cleanup;
mod operation;
mod start;
mod task;

pub use cleanup::Cleaned;
pub use operation::OperationGuard;

use crate::{AuditKey, Verdict};
use atoll_store::{
    Activity, Audits, Begin, Egress, End, Entry, Evidence, Facts, Mac, Millis, NewEvent, OperationId,
};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

/// How many may wait to begin; further callers wait before that.
const WAITING: usize = 4096;

type Responder<T> = oneshot::Sender<Result<T>>;

/// An end to be written.
#[derive(Debug)]
struct Ending {
    operation: OperationId,
    at: Millis,
    facts: End,
    activities: Vec<Activity>,
    events: Vec<NewEvent>,
}

#[derive(Debug)]
enum Job {
    Begin { operation: OperationId, at: Millis, facts: Begin, answer: Responder<()> },
    End { ending: Ending, answer: Option<Responder<()>> },
    Tell { entry: Entry, answer: Responder<()> },
    Sweep { alive: Vec<OperationId>, answer: Responder<u64> },
    Cleanup { before: Millis, operation: Option<OperationId>, answer: Responder<Cleaned> },
    Durable { seq: u64 },
    Close { answer: oneshot::Sender<()> },
}

/// The findings of opening the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Faults of the trail, now or earlier; they are in the trail too.
    pub evidence: Vec<Evidence>,
    /// The operations that had not ended: the server died, or they still run.
    pub open: Vec<OperationId>,
}

/// A handle to the trail's one writer. Cheap to clone; the task ends with the last one.
#[derive(Debug, Clone)]
pub struct Ledger {
    jobs: mpsc::UnboundedSender<Job>,
    turns: Arc<Semaphore>,
    proof: Arc<Proof>,
}

/// What verification needs.
#[derive(Debug)]
struct Proof {
    key: AuditKey,
    head: PathBuf,
}

fn gone() -> Error {
    Error::new(ErrorCode::Unavailable, "the audit trail is closed; the server is ending")
}

fn fresh_id() -> OperationId {
    OperationId::from_uuid(Uuid::now_v7())
}

impl Ledger {
    /// Opens the trail: compares it with its head, notes what does not match, and starts the task.
    pub async fn open(store: Arc<dyn Audits>, key: AuditKey, head: &Path) -> Result<(Self, Opened)> {
        let (sender, jobs) = mpsc::unbounded_channel();
        let proof = Arc::new(Proof { key: key.clone(), head: head.to_owned() });
        let (task, opened) = start::start(store, key, head, sender.downgrade()).await?;
        tokio::spawn(task.run(jobs));
        Ok((Self { jobs: sender, turns: Arc::new(Semaphore::new(WAITING)), proof }, opened))
    }

    /// Writes that an operation begins, and returns its guard once that is written. On an error the operation
    /// must not be carried out.
    pub async fn start(&self, facts: Begin) -> Result<OperationGuard> {
        let _turn = self.turns.acquire().await.map_err(|_| gone())?;
        let (answer, answered) = oneshot::channel();
        let operation = fresh_id();
        // Made first, so that the operation is ended if the caller goes away before the reply.
        let guard = OperationGuard::new(self.clone(), operation);
        self.ask(Job::Begin { operation, at: now_ms(), facts: facts.kept(), answer })?;
        match answered.await.unwrap_or_else(|_| Err(gone())) {
            Ok(()) => Ok(guard),
            Err(error) => {
                guard.leave();
                Err(error)
            }
        }
    }

    /// The same, for an operation that another task ends by its id.
    pub async fn begin(&self, facts: Begin) -> Result<OperationId> {
        Ok(self.start(facts).await?.leave())
    }

    /// Writes that an operation ended, with its activities and events, in one transaction. It is queued at
    /// once; the future completes when it is written. On an error it is not written yet: unless the operation
    /// is unknown or ended already, it is tried again until the server ends.
    pub fn end(
        &self,
        operation: OperationId,
        facts: End,
        activities: Vec<Activity>,
        events: Vec<NewEvent>,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let ending = Ending { operation, at: now_ms(), facts: facts.kept(), activities, events };
        let (answer, answered) = oneshot::channel();
        let asked = self.ask(Job::End { ending, answer: Some(answer) });
        async move {
            asked?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        }
    }

    /// Writes that an operation ended, for a caller that cannot wait.
    fn end_quietly(&self, operation: OperationId, facts: End) {
        let ending =
            Ending { operation, at: now_ms(), facts: facts.kept(), activities: vec![], events: vec![] };
        // At shutdown the sweep of the next server ends it.
        let _ = self.ask(Job::End { ending, answer: None });
    }

    /// Writes egress decisions. They are queued at once; the future says of each, in their order, whether it
    /// is written. The caller must retry the others.
    pub fn tell(
        &self,
        rows: Vec<(Option<OperationId>, Millis, Egress)>,
    ) -> impl Future<Output = Vec<Result<()>>> + Send + use<> {
        let asked: Vec<_> = rows
            .into_iter()
            .map(|(operation, at, facts)| {
                let entry = Entry { operation, at, facts: Facts::Egress(Box::new(facts.kept())) };
                let (answer, answered) = oneshot::channel();
                self.ask(Job::Tell { entry, answer }).map(|()| answered)
            })
            .collect();
        async move {
            let mut told = Vec::with_capacity(asked.len());
            for answered in asked {
                told.push(match answered {
                    Ok(answered) => answered.await.unwrap_or_else(|_| Err(gone())),
                    Err(error) => Err(error),
                });
            }
            told
        }
    }

    /// Ends as lost the operations that began before this ledger was opened and have not ended, except those
    /// that still run. Returns how many there were.
    pub async fn sweep(&self, alive: &[OperationId]) -> Result<u64> {
        let (answer, answered) = oneshot::channel();
        self.ask(Job::Sweep { alive: alive.to_vec(), answer })?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Removes the rows at the beginning of the trail that are older than this, and leaves a checkpoint that
    /// the rest is verified from. Stops before an operation that has not ended, and refuses where a row to be
    /// removed was tampered with. `operation`: the one that requested it.
    pub async fn cleanup(&self, before: Millis, operation: Option<OperationId>) -> Result<Cleaned> {
        let (answer, answered) = oneshot::channel();
        self.ask(Job::Cleanup { before, operation, answer })?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Verifies the trail in this store against its head, while it is written; see [`crate::verify()`].
    pub async fn verify(
        &self,
        store: &dyn Audits,
        expected: Option<(u64, Mac)>,
    ) -> atoll_store::Result<Verdict> {
        crate::verify(store, &self.proof.key, &self.proof.head, expected).await
    }

    /// Writes what is queued, waits for the disk, and ends the task.
    pub async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.ask(Job::Close { answer }).is_ok() {
            let _ = answered.await;
        }
    }

    fn ask(&self, job: Job) -> Result<()> {
        self.jobs.send(job).map_err(|_| gone())
    }
}
