//! Conversations of the agent: assistants, threads, checkpoints, runs and stored items. Every call names its owner and
//! sees nothing of another's; only [`Conversations::unfinished_runs`] reads those of all, for the start of a server.
//!
//! What an owner may store is bounded, and so is what one answer has: beyond that a call is `Beyond`. No call reads more
//! of the database into memory than it answers.
//!
//! A thread's head is the checkpoint that was appended last. Of one thread at most one run is running, which
//! [`Conversations::next_run`] decides in the transaction that begins it. Removing a thread removes all that is below it.

use crate::{Millis, Result};
use async_trait::async_trait;
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        Assistant, AssistantQuery, Checkpoint, CheckpointQuery, ItemQuery, Metadata, NamespaceQuery,
        NewAssistant, NewCheckpoint, NewRun, NewThread, RunFailure, RunRecord, RunStatus, StopReason,
        StoreItem, ThreadQuery, ThreadRecord, ThreadStatus,
    },
};

/// The most that one answer has of what clients stored: items, states and settings of assistants.
pub const MOST_ANSWER_BYTES: u64 = 32 << 20;
/// The most items of an owner, and the most that they hold together.
pub const MOST_ITEMS: u64 = 10_000;
/// See [`MOST_ITEMS`].
pub const MOST_ITEM_BYTES: u64 = 256 << 20;
/// The most threads of an owner.
pub const MOST_THREADS: u64 = 100_000;
/// The most that one thread holds, with all of its checkpoints.
pub const MOST_THREAD_BYTES: u64 = 256 << 20;

/// How many of what a query found one answer has room for, by their sizes: the first ones, and at least one.
pub fn fitting(sizes: impl IntoIterator<Item = u64>) -> usize {
    let mut left = MOST_ANSWER_BYTES;
    let fits = |(number, size): &(usize, u64)| {
        let room = left.checked_sub(*size);
        left = room.unwrap_or(0);
        *number == 0 || room.is_some()
    };
    sizes.into_iter().enumerate().take_while(fits).count()
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// How it stands now.
    pub status: RunStatus,
    /// Why it ended.
    pub stopped: StopReason,
    /// Why it failed, where it did.
    pub failure: Option<RunFailure>,
    /// How its thread stands now, unless another run waits: then it stays busy.
    pub thread: ThreadStatus,
    /// When.
    pub at: Millis,
}

/// What a run has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// How often the model was asked.
    pub iterations: u32,
    /// Tokens.
    pub tokens: u64,
}

/// Conversations.
#[async_trait]
pub trait Conversations: Send + Sync {
    /// Adds an assistant as its version 1; `Conflict(Taken)` when the owner has one of this id.
    async fn insert_assistant(&self, owner: &str, new: NewAssistant, at: Millis) -> Result<Assistant>;
    /// Adds a version, which becomes the latest; `None` where there is no such assistant.
    async fn add_assistant_version(
        &self,
        owner: &str,
        new: NewAssistant,
        at: Millis,
    ) -> Result<Option<Assistant>>;
    /// Makes a version the latest; `None` where there is no such assistant or version.
    async fn set_assistant_version(
        &self,
        owner: &str,
        id: AssistantId,
        version: u32,
        at: Millis,
    ) -> Result<Option<Assistant>>;
    /// The latest version of an assistant.
    async fn assistant(&self, owner: &str, id: AssistantId) -> Result<Option<Assistant>>;
    /// The latest versions of those that a query finds, the last made first, and how many it finds in all.
    async fn assistants(&self, owner: &str, query: &AssistantQuery) -> Result<(Vec<Assistant>, u64)>;
    /// All versions of an assistant, the newest first.
    async fn assistant_versions(&self, owner: &str, id: AssistantId) -> Result<Vec<Assistant>>;
    /// Removes an assistant with its versions; false where there was none.
    async fn remove_assistant(&self, owner: &str, id: AssistantId) -> Result<bool>;

    /// Adds a thread; `Conflict(Taken)` when the owner has one of this id.
    async fn insert_thread(&self, new: NewThread) -> Result<ThreadRecord>;
    /// One thread.
    async fn conversation(&self, owner: &str, id: &ThreadId) -> Result<Option<ThreadRecord>>;
    /// Those that a query finds, and how many it finds in all.
    async fn conversations(&self, query: &ThreadQuery) -> Result<(Vec<ThreadRecord>, u64)>;
    /// Sets metadata, leaving others as they are; `None` where there is no such thread.
    async fn merge_thread_metadata(
        &self,
        owner: &str,
        id: &ThreadId,
        metadata: Metadata,
        at: Millis,
    ) -> Result<Option<ThreadRecord>>;
    /// Copies a thread with its checkpoints, but not its runs; `None` where there is no such thread.
    async fn copy_thread(
        &self,
        owner: &str,
        id: &ThreadId,
        copy: ThreadId,
        at: Millis,
    ) -> Result<Option<ThreadRecord>>;
    /// Removes a thread with all that is below it; false where there was none.
    async fn remove_conversation(&self, owner: &str, id: &ThreadId) -> Result<bool>;

    /// Appends a checkpoint, which becomes the thread's head, with what its run has used. `NotFound(Thread)` or
    /// `NotFound(Checkpoint)` where the thread or the parent does not exist.
    async fn append_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        new: NewCheckpoint,
        progress: Option<RunProgress>,
    ) -> Result<()>;
    /// One checkpoint.
    async fn thread_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        id: ThreadCheckpointId,
    ) -> Result<Option<Checkpoint>>;
    /// Checkpoints of a thread, the newest first: as many as one answer has room for, and at least one.
    async fn thread_checkpoints(
        &self,
        owner: &str,
        thread: &ThreadId,
        query: &CheckpointQuery,
    ) -> Result<Vec<Checkpoint>>;

    /// Adds a run that waits, and makes its thread busy. `NotFound(Thread)` where there is none, `Conflict(Busy)` where
    /// the strategy is to reject and a run of the thread has not ended, `Conflict(Taken)` when the id exists.
    async fn insert_run(&self, new: NewRun) -> Result<RunRecord>;
    /// One run.
    async fn run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<Option<RunRecord>>;
    /// The runs of a thread, the newest first.
    async fn runs(
        &self,
        owner: &str,
        thread: &ThreadId,
        status: Option<RunStatus>,
        limit: u32,
        offset: u32,
    ) -> Result<Vec<RunRecord>>;
    /// Begins the run of a thread that waits longest and may begin by now, unless one is running.
    async fn next_run(&self, owner: &str, thread: &ThreadId, now: Millis) -> Result<Option<RunRecord>>;
    /// Lets a run that is running wait again, because its server ended.
    async fn requeue_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<()>;
    /// Writes how a run ended; false where it has ended already or does not exist.
    async fn finish_run(&self, owner: &str, thread: &ThreadId, id: RunId, end: RunEnd) -> Result<bool>;
    /// Removes what a run did: its checkpoints, and the run. The head is again what it was before.
    async fn roll_back_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool>;
    /// Removes the record of a run that has ended; false where there is none such.
    async fn remove_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool>;
    /// The runs of all owners that have not ended, the oldest first; and those that are stateless, whose threads are to be
    /// removed.
    async fn unfinished_runs(&self) -> Result<Vec<RunRecord>>;

    /// Stores an item; the value of one of the same name is replaced.
    async fn put_item(&self, owner: &str, item: StoreItem) -> Result<()>;
    /// One item.
    async fn item(&self, owner: &str, namespace: &[String], key: &str) -> Result<Option<StoreItem>>;
    /// Removes an item; false where there was none.
    async fn remove_item(&self, owner: &str, namespace: &[String], key: &str) -> Result<bool>;
    /// Items, the last put first.
    async fn items(&self, owner: &str, query: &ItemQuery) -> Result<Vec<StoreItem>>;
    /// Namespaces that have items, in their order.
    async fn item_namespaces(&self, owner: &str, query: &NamespaceQuery) -> Result<Vec<Vec<String>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_first_that_fit_and_at_least_one() {
        let of = |parts: &[u64]| fitting(parts.iter().map(|part| part * (MOST_ANSWER_BYTES / 4)));
        assert_eq!([of(&[]), of(&[1, 1]), of(&[1, 2, 1, 1]), of(&[9, 1]), of(&[1, 9, 1])], [0, 2, 3, 1, 1]);
    }
}
