//! The task that owns the chain.

use super::{
    Ending, Job,
    batch::{BATCH, Failed, Write},
    cleanup::Cleaning,
};
use crate::{AuditKey, Head, HeadFile, head::boot};
use atoll_store::{
    Audits, End, Entry, Evidence, Facts, Mac, Millis, OpenOperation, OperationId, Outcome, Problem,
    StoreError,
};
use atoll_types::{Error, ErrorCode, time::now_ms};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, WeakUnboundedSender},
        oneshot,
    },
    time::{MissedTickBehavior, interval},
};

/// How often the task syncs to disk, and retries what failed.
const TICK: Duration = Duration::from_secs(1);

pub(super) struct Task {
    pub(super) store: Arc<dyn Audits>,
    pub(super) key: AuditKey,
    head: HeadFile,
    boot: String,
    /// For work beside the task.
    sender: WeakUnboundedSender<Job>,
    /// The last row, and its MAC.
    pub(super) seq: u64,
    pub(super) mac: Mac,
    /// The last row that would survive a power cut.
    pub(super) durable: u64,
    flushing: bool,
    /// Whether the head lacks the last row. It may lack one transaction at most.
    head_behind: bool,
    pub(super) open: HashMap<OperationId, OpenOperation>,
    /// The operations that had not ended when the trail was opened.
    pub(super) left: Vec<OpenOperation>,
    pub(super) evidence: Vec<Evidence>,
    /// Ends that could not be written yet.
    backlog: Vec<Write>,
    pub(super) cleaning: Option<Cleaning>,
    /// Why nothing can be written any more.
    broken: Option<String>,
}

fn unavailable(why: &str) -> Error {
    Error::new(
        ErrorCode::Unavailable,
        format!("the audit trail cannot be written, and so nothing is done: {why}"),
    )
}

/// The error for the caller; the operator's is logged.
fn public_error(error: &StoreError) -> Error {
    tracing::error!(error = %error, cause = ?error, "the audit trail cannot be written");
    let public = match error {
        StoreError::Unavailable(outage, _) => StoreError::Unavailable(*outage, "said elsewhere".into()),
        StoreError::Conflict(clash) => StoreError::Conflict(*clash),
        StoreError::NotFound(thing) => StoreError::NotFound(*thing),
        StoreError::Beyond(bound) => StoreError::Beyond(*bound),
        StoreError::Corrupt(..)
        | StoreError::Newer { .. }
        | StoreError::Older { .. }
        | StoreError::Internal(..) => {
            StoreError::Internal("writing the audit trail", "said elsewhere".into())
        }
    };
    unavailable(&Error::from(public).message)
}

impl Task {
    pub(super) fn new(
        store: Arc<dyn Audits>,
        key: AuditKey,
        head: HeadFile,
        sender: WeakUnboundedSender<Job>,
    ) -> Self {
        Self {
            store,
            key,
            head,
            boot: boot(),
            sender,
            seq: 0,
            mac: Mac([0; 32]),
            durable: 0,
            flushing: false,
            head_behind: false,
            open: HashMap::new(),
            left: Vec::new(),
            evidence: Vec::new(),
            backlog: Vec::new(),
            cleaning: None,
            broken: None,
        }
    }

    /// Runs until it is closed, or the last handle is dropped.
    pub(super) async fn run(mut self, mut jobs: UnboundedReceiver<Job>) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing = None;
        while closing.is_none() {
            let first = tokio::select! {
                biased;
                // Polled first, or it would never be its turn on a busy server.
                _ = tick.tick() => {
                    self.tick().await;
                    None
                }
                job = jobs.recv() => match job {
                    Some(job) => Some(job),
                    None => break,
                },
                // Cleanup continues between two batches.
                () = std::future::ready(()), if self.cleaning.is_some() => None,
            };
            let mut writes = Vec::new();
            let mut next = first;
            while let Some(job) = next.take() {
                closing = self.take(job, &mut writes).await;
                if writes.len() < BATCH && closing.is_none() {
                    next = jobs.try_recv().ok();
                }
            }
            self.write(writes).await;
            self.clean().await;
        }
        // What was queued before the close is still written.
        jobs.close();
        let mut writes = Vec::new();
        while let Ok(job) = jobs.try_recv() {
            if let Some(answer) = self.take(job, &mut writes).await {
                let _ = answer.send(());
            }
        }
        self.write(writes).await;
        self.tidy().await;
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    /// Takes a job: rows are collected, the rest is done. Returns the reply channel of a close.
    async fn take(&mut self, job: Job, writes: &mut Vec<Write>) -> Option<oneshot::Sender<()>> {
        match job {
            Job::Begin { operation, at, facts, answer } => {
                let entry = Entry { operation: Some(operation), at, facts: Facts::Begin(Box::new(facts)) };
                writes.push(Write { answer: Some(answer), ..Write::note(entry) });
            }
            Job::End { ending, answer } => writes.push(Write::end(ending, answer)),
            Job::Tell { entry, answer } => writes.push(Write { answer: Some(answer), ..Write::note(entry) }),
            Job::Sweep { alive, answer } => {
                self.write(std::mem::take(writes)).await;
                let _ = answer.send(self.sweep(&alive).await);
            }
            Job::Cleanup { before, operation, answer } => {
                self.write(std::mem::take(writes)).await;
                self.clean_from(before, operation, answer);
            }
            Job::Durable { seq } => {
                self.flushing = false;
                self.durable = self.durable.max(seq);
                if let Err(error) = self.write_head() {
                    tracing::error!(error = %error, "the head of the audit trail cannot be written");
                }
            }
            Job::Close { answer } => return Some(answer),
        }
        None
    }

    /// Writes the collected rows, together with those that could not be written before.
    async fn write(&mut self, writes: Vec<Write>) {
        let mut all = std::mem::take(&mut self.backlog);
        all.extend(writes);
        // An operation whose caller has gone may be begun and ended in the same batch.
        let mut begun = HashSet::new();
        let mut ended = HashSet::new();
        all.retain_mut(|write| {
            let Some(id) = write.ends() else {
                begun.extend(write.begins());
                return true;
            };
            let known = (self.open.contains_key(&id) || begun.contains(&id)) && ended.insert(id);
            if !known {
                write.answer(Err(Error::new(ErrorCode::Conflict, "the operation has ended, or never began")));
            }
            known
        });
        let mut rest = all.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<Write> = rest.by_ref().take(BATCH).collect();
            self.attempt(batch).await;
        }
    }

    async fn attempt(&mut self, writes: Vec<Write>) {
        if let Some(why) = &self.broken {
            return self.refuse(&unavailable(&why.clone()), writes);
        }
        // The head may lack one transaction and no more, or an old head could not be distinguished from a
        // fresh one.
        if self.head_behind
            && let Err(error) = self.write_head()
        {
            tracing::error!(error = %error, "the head of the audit trail cannot be written");
            return self.refuse(&unavailable("its head cannot be written"), writes);
        }
        match self.append(writes).await {
            Ok(mut writes) => {
                if let Err(error) = self.write_head() {
                    tracing::error!(error = %error, "the head of the audit trail cannot be written");
                }
                writes.iter_mut().for_each(|write| write.answer(Ok(())));
            }
            Err(Failed { error, writes }) => {
                let passing = matches!(error, StoreError::Unavailable(..));
                if writes.len() > 1 && !passing && self.broken.is_none() {
                    tracing::error!(error = %error, "one of several audit rows cannot be written; trying each");
                    for write in writes {
                        Box::pin(self.attempt(vec![write])).await;
                    }
                } else if passing || self.broken.is_some() {
                    self.refuse(&public_error(&error), writes);
                } else {
                    // A retry would fail again, and everything else with it.
                    writes.into_iter().for_each(|mut write| write.answer(Err(public_error(&error))));
                }
            }
        }
    }

    /// Nothing was written: beginnings are refused, and ends are retried.
    fn refuse(&mut self, error: &Error, writes: Vec<Write>) {
        for mut write in writes {
            write.answer(Err(error.clone()));
            if write.ends().is_some() {
                self.backlog.push(write);
            }
        }
    }

    pub(super) fn broken(&mut self, why: &str) {
        tracing::error!(
            why,
            "the audit trail cannot be continued; every operation is refused until a restart"
        );
        self.broken = Some(why.to_owned());
    }

    pub(super) fn write_head(&mut self) -> io::Result<()> {
        // The head belongs to the process whose rows follow: one that ends before them would look forged.
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }
        let Self { seq, mac, durable, .. } = *self;
        self.head_behind = true;
        self.head.write(&Head { seq, mac, at: now_ms(), durable, boot: self.boot.clone() })?;
        self.head_behind = false;
        Ok(())
    }

    async fn sweep(&mut self, alive: &[OperationId]) -> atoll_types::Result<u64> {
        let alive: HashSet<_> = alive.iter().collect();
        let lost: Vec<OpenOperation> = self
            .left
            .extract_if(.., |left| !alive.contains(&left.id))
            .filter(|left| self.open.contains_key(&left.id))
            .collect();
        let mut answers = Vec::new();
        let at = now_ms();
        for lost in lost.chunks(BATCH) {
            let writes = lost.iter().map(|lost| {
                let (answer, answered) = oneshot::channel();
                answers.push(answered);
                Write::end(ending(*lost, at), Some(answer))
            });
            let writes = writes.collect();
            self.write(writes).await;
        }
        let mut swept = 0;
        for answered in answers {
            answered.await.unwrap_or_else(|_| Err(unavailable("it was closed")))?;
            swept += 1;
        }
        Ok(swept)
    }

    async fn tick(&mut self) {
        if !self.backlog.is_empty() {
            self.write(Vec::new()).await;
        }
        let (seq, sender) = (self.seq, self.sender.clone());
        if self.flushing || self.durable == seq || self.broken.is_some() {
            return;
        }
        self.flushing = true;
        let (store, head) = (self.store.clone(), self.head.clone());
        tokio::spawn(async move {
            let seq = if flush(store, head).await { seq } else { 0 };
            if let Some(sender) = sender.upgrade() {
                let _ = sender.send(Job::Durable { seq });
            }
        });
    }

    /// The last step before the task ends.
    async fn tidy(&mut self) {
        self.write(Vec::new()).await;
        if self.broken.is_none() && self.store.flush_audit().await.is_ok() {
            self.durable = self.seq;
        }
        if let Err(error) = self.write_head().and_then(|()| self.head.reach_disk()) {
            tracing::error!(error = %error, "the head of the audit trail cannot be written");
        }
    }
}

/// Syncs to disk, and returns whether that worked.
async fn flush(store: Arc<dyn Audits>, head: HeadFile) -> bool {
    if let Err(error) = store.flush_audit().await {
        tracing::error!(error = %error, "the audit trail does not reach the disk");
        return false;
    }
    match tokio::task::spawn_blocking(move || head.reach_disk()).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(error = %error, "the head of the audit trail does not reach the disk");
            false
        }
        Err(_) => false,
    }
}

fn ending(lost: OpenOperation, at: Millis) -> Ending {
    let duration_us = u64::try_from(at.saturating_sub(lost.at)).unwrap_or(0).saturating_mul(1000);
    let problem = Problem { code: "lost".into(), message: "the server died while it was carried out".into() };
    let facts = End::new(Outcome::Lost, duration_us).because(problem);
    Ending { operation: lost.id, at, facts, activities: Vec::new(), events: Vec::new() }
}
