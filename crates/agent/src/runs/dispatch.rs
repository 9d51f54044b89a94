//! Carrying runs out: one task for each, as many at once as the operator allows.

use crate::{
    Agents, EventKind, RunOutcome,
    turn::{Turn, TurnEnd},
};
use atoll_core::Caller;
use atoll_store::ApiKey;
use atoll_types::{
    Error, ErrorCode, Millis, Result, RunId, ThreadId,
    conversation::{RunFailure, RunFailureCode, RunRecord, RunStatus},
    time::now_ms,
};
use futures_util::FutureExt;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The most outcomes of runs whose thread is gone with them.
const MOST_OUTCOMES: usize = 256;

/// The runs that are carried out, and what those came to that left nothing behind. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ActiveRuns {
    running: Arc<Mutex<HashMap<RunId, Control>>>,
    outcomes: Arc<Mutex<VecDeque<(String, RunOutcome)>>>,
    slots: Arc<Slots>,
}

/// How a run that is carried out is stopped.
#[derive(Clone, Default)]
pub(super) struct Control {
    pub(super) cancel: CancellationToken,
    /// Whether what it did is removed when it has ended.
    pub(super) rolls_back: Arc<std::sync::atomic::AtomicBool>,
    /// Cancelled when its task has ended.
    pub(super) ended: CancellationToken,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ActiveRuns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { running: Arc::default(), outcomes: Arc::default(), slots: Arc::new(Slots::new(at_once)) }
    }

    pub(super) fn control(&self, run: RunId) -> Option<Control> {
        locked(&self.running).get(&run).cloned()
    }

    /// What a run came to whose thread is gone.
    pub(crate) fn outcome(&self, owner: &str, run: RunId) -> Option<RunOutcome> {
        let outcomes = locked(&self.outcomes);
        outcomes
            .iter()
            .find(|(of, outcome)| of == owner && outcome.run.new.id == run)
            .map(|(_, one)| one.clone())
    }

    pub(super) fn keep_outcome(&self, outcome: RunOutcome) {
        let mut outcomes = locked(&self.outcomes);
        if outcomes.len() >= MOST_OUTCOMES {
            outcomes.pop_front();
        }
        outcomes.push_back((outcome.run.new.owner.clone(), outcome));
    }
}

/// Slots of runs: so many at once in all, and at most half of them one owner's, so that no owner keeps all others waiting.
struct Slots {
    all: Arc<Semaphore>,
    of_one: usize,
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Slots {
    fn new(at_once: usize) -> Self {
        let all = at_once.max(1);
        Self { all: Arc::new(Semaphore::new(all)), of_one: all.div_ceil(2), owners: Mutex::default() }
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = locked(&self.owners);
        owners.retain(|_, slots| Arc::strong_count(slots) > 1);
        let new = || Arc::new(Semaphore::new(self.of_one));
        Arc::clone(owners.entry(owner.to_owned()).or_insert_with(new))
    }

    /// Waits for a slot, the owner's own first: a run that waits for that one is in no other owner's way.
    async fn take(&self, owner: &str) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = self.of(owner).acquire_owned().await.ok()?;
        let one = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some([own, one])
    }
}

/// Frees the entry of a run however its task ends.
struct Entry {
    active: ActiveRuns,
    run: RunId,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(control) = locked(&self.active.running).remove(&self.run) {
            control.ended.cancel();
        }
    }
}

/// The caller of a run that was asked for without a key, where the server needs none.
fn without_key(record: &RunRecord) -> Caller {
    let new = &record.new;
    Caller {
        key: None,
        owner: new.owner.clone(),
        owner_name: new.owner_name.clone(),
        scope: new.scope,
        tier: new.tier.as_ref().and_then(|tier| tier.parse().ok()),
        expires_at: None,
        by_session: false,
        front: "agent",
        address: None,
    }
}

impl Agents {
    /// The caller that a run works for: the one who asked for it, as long as its key is usable.
    pub(crate) async fn caller_of(&self, record: &RunRecord) -> Result<Caller> {
        let Some(id) = record.new.key else { return Ok(without_key(record)) };
        let keys = self.store.list_keys(Some(&record.new.owner)).await?;
        let usable = |key: &&ApiKey| {
            key.id == id && key.revoked_at.is_none() && key.expires_at.is_none_or(|until| until > now_ms())
        };
        let gone = || {
            let message =
                "the key that asked for this run was revoked or has expired; ask again with another key";
            Error::new(ErrorCode::PermissionDenied, message)
        };
        keys.iter().find(usable).map(|key| Caller::of(key).from("agent", None)).ok_or_else(gone)
    }

    /// Carries out the next run of a thread, not before this time, unless one is under way.
    pub(crate) fn dispatch(&self, owner: &str, thread: &ThreadId, not_before: Millis) {
        let (agents, owner, thread) = (self.clone(), owner.to_owned(), thread.clone());
        tokio::spawn(async move {
            let wait = u64::try_from(not_before - now_ms()).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            // A run that waits for a slot is pending: it can be cancelled, and its time has not begun.
            while let Some(_slot) = agents.active.slots.take(&owner).await {
                let Some(record) = agents.next_run(&owner, &thread).await else { return };
                agents.carry_out(record).boxed().await;
            }
        });
    }

    async fn next_run(&self, owner: &str, thread: &ThreadId) -> Option<RunRecord> {
        let next = self.store.next_run(owner, thread, now_ms()).await;
        next.inspect_err(|error| tracing::error!(%error, "the next run of a thread cannot be begun")).ok()?
    }

    async fn carry_out(&self, record: RunRecord) {
        let id = record.new.id;
        let control = Control::default();
        locked(&self.active.running).insert(id, control.clone());
        let _entry = Entry { active: self.active.clone(), run: id };
        let new = &record.new;
        // A request that cancelled it before its entry was there has ended it in the store.
        let now = self.store.run(&new.owner, &new.thread, id).await;
        if now.is_ok_and(|now| now.is_none_or(|now| now.status != RunStatus::Running)) {
            return;
        }
        let started = EventKind::Started { attempt: record.attempts.max(1) };
        self.logs.append(&new.owner, &new.thread, id, started);
        // A fault of ours ends the run and not the thread's queue.
        // On the heap: the futures of a run would fill a thread's stack.
        let work = AssertUnwindSafe(self.work(&record, &control).boxed()).catch_unwind();
        let internal = || RunFailure {
            code: RunFailureCode::Server(ErrorCode::Internal),
            message: "something went wrong on the server; the operator's log says what".into(),
        };
        let end = match work.await {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                tracing::warn!(%error, run = %id, "a run failed");
                TurnEnd::failed(RunFailure {
                    code: RunFailureCode::Server(error.code),
                    message: error.message,
                })
            }
            Err(_) => TurnEnd::failed(internal()),
        };
        self.finish(&record, end, &control).boxed().await;
    }

    async fn work(&self, record: &RunRecord, control: &Control) -> Result<TurnEnd> {
        let plan = self.open_plan(record.new.id, &record.new.sealed)?;
        let caller = self.caller_of(record).await?;
        let (mut turn, words) =
            Turn::begin(self, caller, record, plan, control.cancel.clone()).boxed().await?;
        turn.go(words).boxed().await
    }

    /// Goes on with the runs of all owners that have not ended: at the start of the server, once.
    pub async fn resume_runs(&self) -> Result<usize> {
        let unfinished = self.store.unfinished_runs().await?;
        let mut threads = HashSet::new();
        for record in &unfinished {
            let new = &record.new;
            if !record.status.is_active() {
                self.forget(record).await;
                continue;
            }
            if record.status == RunStatus::Running {
                self.store.requeue_run(&new.owner, &new.thread, new.id).await?;
            }
            if threads.insert((new.owner.clone(), new.thread.clone())) || new.not_before > now_ms() {
                self.dispatch(&new.owner, &new.thread, new.not_before);
            }
        }
        Ok(unfinished.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_owner_takes_at_most_half_of_the_slots() {
        let slots = Slots::new(4);
        let taken = [slots.take("ann").await.unwrap(), slots.take("ann").await.unwrap()];
        assert!(slots.take("ann").now_or_never().is_none(), "the third of an owner waits");
        let others = [slots.take("bob").await.unwrap(), slots.take("cid").await.unwrap()];
        assert!(slots.take("bob").now_or_never().is_none(), "all are taken");
        drop(taken);
        assert!(slots.take("ann").now_or_never().is_some());
        drop(others);
        drop(slots.take("dan").now_or_never().unwrap().unwrap());
        assert_eq!(locked(&slots.owners).len(), 1, "owners without runs are forgotten");
        assert!(Slots::new(1).take("ann").now_or_never().is_some());
    }
}
