//! Who writes the trail. One task owns the chain; whoever wants a row asks it. What is asked while it
//! writes goes into the next transaction together, so many writers cost little more than one.
//!
//! A beginning that cannot be written is refused, and its operation with it. An end that cannot be written
//! is kept and tried again. Whoever asked may go away: what was asked is written all the same, and an
//! operation that nobody ends any more is ended here.

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

/// How many may wait to begin; the others wait to wait.
const WAITING: usize = 4096;

type Answer<T> = oneshot::Sender<Result<T>>;

/// An end that was asked for.
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
    Begin { operation: OperationId, at: Millis, facts: Begin, answer: Answer<()> },
    End { ending: Ending, answer: Option<Answer<()>> },
    Tell { entry: Entry, answer: Answer<()> },
    Sweep { alive: Vec<OperationId>, answer: Answer<u64> },
    Cleanup { before: Millis, operation: Option<OperationId>, answer: Answer<Cleaned> },
    Durable { seq: u64 },
    Close { answer: oneshot::Sender<()> },
}

/// What was found when the trail was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// What is wrong with the trail, now or ever; it is in the trail too.
    pub evidence: Vec<Evidence>,
    /// The operations that had not ended: the server died, or they live on.
    pub open: Vec<OperationId>,
}

/// A handle to the trail's one writer. Cheap to clone; the task ends with the last one.
#[derive(Debug, Clone)]
pub struct Ledger {
    jobs: mpsc::UnboundedSender<Job>,
    turns: Arc<Semaphore>,
    proof: Arc<Proof>,
}

/// What the trail is verified with.
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
    /// Opens the trail: compares it with its head, notes what does not fit, and starts the task.
    pub async fn open(store: Arc<dyn Audits>, key: AuditKey, head: &Path) -> Result<(Self, Opened)> {
        let (sender, jobs) = mpsc::unbounded_channel();
        let proof = Arc::new(Proof { key: key.clone(), head: head.to_owned() });
        let (task, opened) = start::start(store, key, head, sender.downgrade()).await?;
        tokio::spawn(task.run(jobs));
        Ok((Self { jobs: sender, turns: Arc::new(Semaphore::new(WAITING)), proof }, opened))
    }

    /// Writes that an operation begins, and returns its guard once that is written. An error means that the
    /// operation must not be carried out.
    pub async fn start(&self, facts: Begin) -> Result<OperationGuard> {
        let _turn = self.turns.acquire().await.map_err(|_| gone())?;
        let (answer, answered) = oneshot::channel();
        let operation = fresh_id();
        // First, so that it is ended if nobody waits for the answer.
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

    /// The same, for an operation that somebody else ends.
    pub async fn begin(&self, facts: Begin) -> Result<OperationId> {
        Ok(self.start(facts).await?.leave())
    }

    /// Writes that an operation ended, with what happened and what is to be told, in one transaction. It is
    /// asked for at once; the future says when it is written. An error means that it is not written yet:
    /// unless the operation is unknown or ended already, it is tried again until the server ends.
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

    /// Writes that an operation ended, for somebody who cannot wait.
    fn end_quietly(&self, operation: OperationId, facts: End) {
        let ending =
            Ending { operation, at: now_ms(), facts: facts.kept(), activities: vec![], events: vec![] };
        // A server that ends leaves it to the sweep of the next.
        let _ = self.ask(Job::End { ending, answer: None });
    }

    /// Writes decisions about what sandboxes may reach. It is asked for at once; the future says of each, in
    /// their order, whether it is written. What is not is for the caller to try again.
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

    /// Ends as lost what had begun before this ledger was opened and has not ended, but for what lives on.
    /// Says how many there were.
    pub async fn sweep(&self, alive: &[OperationId]) -> Result<u64> {
        let (answer, answered) = oneshot::channel();
        self.ask(Job::Sweep { alive: alive.to_vec(), answer })?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Removes the rows at the beginning of the trail that are older than this, and leaves a checkpoint that
    /// the rest is verified from. Stops before an operation that has not ended, and refuses where a row to
    /// be removed is not what was written. `operation`: on whose behalf.
    pub async fn cleanup(&self, before: Millis, operation: Option<OperationId>) -> Result<Cleaned> {
        let (answer, answered) = oneshot::channel();
        self.ask(Job::Cleanup { before, operation, answer })?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Checks the trail in this store against its head, while it is written; see [`crate::verify()`].
    pub async fn verify(
        &self,
        store: &dyn Audits,
        expected: Option<(u64, Mac)>,
    ) -> atoll_store::Result<Verdict> {
        crate::verify(store, &self.proof.key, &self.proof.head, expected).await
    }

    /// Writes what was asked for, waits for the disk, and ends the task.
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
