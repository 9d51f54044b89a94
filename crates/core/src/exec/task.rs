//! The task of one command. It is spawned when the command starts, and again by the next server where the
//! command is still open then ([`super::watch`]).
//!
//! Invariants:
//! - [`ExecTasks`] has at most one task for each command, from before the command starts until its end is
//!   written.
//! - The task reads the guest's stream once. A stream that breaks is attached to again where it broke, until
//!   the container is gone.
//! - The task alone owns the command's [`Execution`], so its end, its output for the audit, its changed files
//!   and its activity are written once, whether a caller waits, went away or never did.
//! - No caller slows the task for long: see [`super::output_channel`].
//! - A panic while the output is read is an end too: the command is killed, and ends as lost.

use super::output_channel::{Delivery, OutputSender, Piece};
use crate::{
    Execs,
    actor::{SandboxRegistry, rolled_back},
    execution::{EndSignal, Ended, Execution, unless_panicked},
    kill_on_drop::KillOnDrop,
};
use atoll_provider::{Changed, ExecEvent, ExecReport, ExecStream, State};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Result};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Before a stream that broke is attached to again.
const PAUSE: Duration = Duration::from_secs(1);

type Key = (SandboxId, ExecId);

/// How a command ended.
#[derive(Clone)]
pub(super) struct ExecEnd {
    pub(super) report: ExecReport,
    pub(super) changed: Option<Changed>,
}

/// What callers hold of a command's task.
#[derive(Default)]
pub(crate) struct ExecTask {
    /// Set when it is known whether the command started.
    started: EndSignal<()>,
    end: EndSignal<ExecEnd>,
    cancelled: AtomicBool,
}

impl ExecTask {
    /// The caller to whom the command is tied went away.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// The command's end, once it is written.
    pub(super) async fn end(&self) -> Result<ExecEnd> {
        self.end.wait().await
    }
}

/// The task of every command.
#[derive(Default)]
pub(crate) struct ExecTasks(Mutex<HashMap<Key, Arc<ExecTask>>>);

impl ExecTasks {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<ExecTask>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, sandbox: SandboxId, exec: ExecId) -> Option<Arc<ExecTask>> {
        self.all().get(&(sandbox, exec)).cloned()
    }

    /// The entry of a command that is to have a task; where it has one that has not ended, that task.
    pub(crate) fn enter(
        self: &Arc<Self>,
        sandbox: SandboxId,
        exec: ExecId,
    ) -> std::result::Result<ExecEntry, Arc<ExecTask>> {
        let (key, task) = ((sandbox, exec), Arc::<ExecTask>::default());
        let mut all = self.all();
        match all.get(&key) {
            Some(there) if !there.end.is_set() => Err(Arc::clone(there)),
            _ => {
                all.insert(key, Arc::clone(&task));
                drop(all);
                Ok(ExecEntry { tasks: Arc::clone(self), key, task, keep: false })
            }
        }
    }
}

impl ExecTasks {
    /// The entry of a command that a former server left; none where this server has a task for it. A repeated
    /// request holds the entry for a moment, while it asks whether the sandbox knows the command.
    pub(super) async fn enter_left(self: &Arc<Self>, sandbox: SandboxId, exec: ExecId) -> Option<ExecEntry> {
        loop {
            match self.enter(sandbox, exec) {
                Ok(entry) => return Some(entry),
                Err(task) => match task.started.wait().await {
                    Ok(()) => return None,
                    Err(_) => tokio::task::yield_now().await,
                },
            }
        }
    }
}

/// A command's entry among all tasks. It leaves when dropped.
pub(crate) struct ExecEntry {
    tasks: Arc<ExecTasks>,
    key: Key,
    task: Arc<ExecTask>,
    keep: bool,
}

impl ExecEntry {
    /// Stays after the command's end: a caller whose request a server that died began may repeat it then. As
    /// many stay as commands were open when this server started.
    pub(super) fn keep(mut self) -> Self {
        self.keep = true;
        self
    }
}

impl Drop for ExecEntry {
    fn drop(&mut self) {
        let why = match self.task.started.is_set() {
            true => "the task of the command ended without its end",
            false => "the command did not start",
        };
        let error = Error::new(ErrorCode::Unavailable, why);
        self.task.started.set(Err(error.clone()));
        self.task.end.set(Err(error));
        let mut all = self.tasks.all();
        if !self.keep && all.get(&self.key).is_some_and(|there| Arc::ptr_eq(there, &self.task)) {
            all.remove(&self.key);
        }
    }
}

impl Execs {
    /// Spawns the task of a command that has started, or was found as a server that died left it.
    pub(crate) fn spawn(
        &self,
        entry: ExecEntry,
        execution: Execution,
        report: &ExecReport,
        caller: Option<CallerStream>,
    ) -> Arc<ExecTask> {
        let task = Arc::clone(&entry.task);
        task.started.set(Ok(()));
        let (events, output, tied) = match caller {
            Some(CallerStream { events, output, tied }) => (Some(events), output, tied),
            None => (None, OutputSender::none(), false),
        };
        let reading = Reading { execution, task: Arc::clone(&task), id: entry.key.1, output, tied };
        let registry = Arc::clone(&self.registry);
        tokio::spawn(run(registry, entry, reading, report.started_unix_ms, events));
        task
    }

    /// The entry of a command whose request may be repeated; none where the command was begun before.
    pub(super) async fn enter_repeatable(
        &self,
        sandbox: SandboxId,
        exec: ExecId,
        guest: &atoll_provider::Guest,
    ) -> Result<Option<ExecEntry>> {
        loop {
            // Entered first: another request cannot start and end the command between the question and the entry.
            let entered = self.exec_tasks.enter(sandbox, exec);
            match guest.get_exec(exec).await {
                Ok(_) => return Ok(None),
                Err(error) if error.code == ErrorCode::NotFound => {}
                Err(error) => return Err(error),
            }
            match entered {
                Ok(entry) => return Ok(Some(entry)),
                // Another request starts it. Where that fails, this one tries.
                Err(task) if !task.started.is_set() => _ = task.started.wait().await,
                // The sandbox has forgotten the command, and the task will find that out.
                Err(task) => _ = task.end().await,
            }
        }
    }
}

/// What the task reads for the caller that started the command.
pub(crate) struct CallerStream {
    /// The command's stream from its start.
    pub(super) events: ExecStream,
    /// The queue of the caller that is sent its output.
    pub(super) output: OutputSender,
    /// A caller that goes away ends the command.
    pub(super) tied: bool,
}

async fn run(
    registry: Arc<SandboxRegistry>,
    entry: ExecEntry,
    mut reading: Reading,
    started_unix_ms: u64,
    events: Option<ExecStream>,
) {
    let (sandbox, id) = entry.key;
    let read = unless_panicked("a command", reading.read_to_end(events)).await;
    // Nothing that runs unseen may go on.
    let read = read.unwrap_or_else(|panicked| {
        drop(reading.killed());
        Err(panicked)
    });
    let Reading { execution, output, .. } = reading;
    drop(output);
    // The container may have stayed, and then has a report.
    let read = read
        .and_then(|report| if registry.was_rolled_back(id.uuid()) { Err(rolled_back()) } else { Ok(report) });
    let cancelled = entry.task.cancelled.load(Ordering::Relaxed);
    let end = match read {
        Ok(report) => {
            let changed = execution.end(&Ended::Command(&report), cancelled).await;
            Ok(ExecEnd { report, changed })
        }
        Err(error) => {
            let container = execution.container().id();
            let error = registry.why_lost(sandbox, container, "the command ran", error).await;
            let error = execution.redacted(error);
            execution.end(&Ended::LostCommand { error: &error, started_unix_ms }, cancelled).await;
            Err(error)
        }
    };
    entry.task.end.set(end);
}

/// A command whose output is read.
struct Reading {
    execution: Execution,
    task: Arc<ExecTask>,
    id: ExecId,
    output: OutputSender,
    /// A caller that does not read any more ends the command, as one that goes away does.
    tied: bool,
}

impl Reading {
    /// Reads the command's stream to its end. Fails where the container ended first, or has forgotten the
    /// command.
    async fn read_to_end(&mut self, mut events: Option<ExecStream>) -> Result<ExecReport> {
        loop {
            let attached = match events.take() {
                Some(events) => Ok(events),
                None => {
                    let (guest, next) = (self.execution.container().guest(), self.execution.next_offset());
                    guest.attach(self.id, next, true).await
                }
            };
            let read = match attached {
                Ok(mut events) => self.read_once(&mut events).await,
                Err(error) => Err(error),
            };
            let error = match read {
                Ok(report) => return Ok(report),
                Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::ContainerDied) => {
                    return Err(error);
                }
                Err(error) => error,
            };
            tracing::debug!(%error, "a command's stream broke; it is attached to again");
            tokio::time::sleep(PAUSE).await;
            match self.execution.container().state().await {
                Ok(State::Dead(death)) => return Err(Error::died(death)),
                Err(gone) if gone.code == ErrorCode::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    async fn read_once(&mut self, events: &mut ExecStream) -> Result<ExecReport> {
        loop {
            match events.next().await? {
                Some(ExecEvent::Started(_)) => {}
                Some(ExecEvent::Output { stream, offset, data }) => {
                    self.execution.take_output(stream, offset, &data);
                    if self.output.send(Piece { stream, offset, data }).await == Delivery::Stalled {
                        tracing::warn!(exec = %self.id, "the caller of a lossless command does not read");
                        if self.tied {
                            drop(self.killed().of(&self.task));
                        }
                    }
                }
                Some(ExecEvent::Ended(report)) => return Ok(report),
                None => return Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
            }
        }
    }

    /// Dropped, it kills the command.
    fn killed(&self) -> KillOnDrop {
        KillOnDrop::new(self.execution.shared_container(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_one_task_at_a_time() {
        let (tasks, sandbox, exec) = (Arc::<ExecTasks>::default(), SandboxId::random(), ExecId::random());
        let first = tasks.enter(sandbox, exec).ok();
        assert!(first.is_some() && tasks.enter(sandbox, exec).is_err());
        assert!(tasks.enter(sandbox, ExecId::random()).is_ok());
        assert!(tasks.enter(SandboxId::random(), exec).is_ok());
        drop(first);
        assert!(tasks.get(sandbox, exec).is_none());
        let kept = tasks.enter(sandbox, exec).ok().map(ExecEntry::keep);
        drop(kept);
        assert!(tasks.get(sandbox, exec).is_some(), "it stays for a repeated request");
        assert!(tasks.enter(sandbox, exec).is_ok(), "and is no obstacle to a new command of that id");
    }

    #[tokio::test]
    async fn a_repeated_request_does_not_take_a_left_command_from_its_task() {
        let (tasks, sandbox, exec) = (Arc::<ExecTasks>::default(), SandboxId::random(), ExecId::random());
        let asking = tasks.enter(sandbox, exec).ok();
        assert!(asking.is_some());
        let left = tokio::spawn({
            let tasks = Arc::clone(&tasks);
            async move { tasks.enter_left(sandbox, exec).await }
        });
        while Arc::strong_count(&tasks.get(sandbox, exec).unwrap()) < 4 {
            tokio::task::yield_now().await;
        }
        assert!(!left.is_finished(), "it waits for the request's answer");
        drop(asking);
        let entry = left.await.unwrap();
        assert!(entry.is_some(), "the request found it and needs no entry");
        // One that this server began has its task.
        entry.as_ref().unwrap().task.started.set(Ok(()));
        assert!(tasks.enter_left(sandbox, exec).await.is_none());
    }

    #[tokio::test]
    async fn who_waits_for_a_command_that_never_started_is_told() {
        let tasks = Arc::<ExecTasks>::default();
        let entry = tasks.enter(SandboxId::random(), ExecId::random()).ok();
        let task = entry.as_ref().map(|entry| Arc::clone(&entry.task)).unwrap();
        drop(entry);
        assert_eq!(task.started.wait().await.unwrap_err().code, ErrorCode::Unavailable);
        assert!(task.end().await.is_err());
    }
}
