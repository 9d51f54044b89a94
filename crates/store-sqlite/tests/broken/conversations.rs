//! Faults with conversations.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{Conversations, Millis, Result, RunEnd, RunProgress};
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        Assistant, AssistantQuery, Checkpoint, CheckpointQuery, ItemQuery, Metadata, NamespaceQuery,
        NewAssistant, NewCheckpoint, NewRun, NewThread, RunRecord, RunStatus, StoreItem, ThreadQuery,
        ThreadRecord,
    },
};

#[async_trait]
impl Conversations for Broken {
    async fn insert_assistant(&self, owner: &str, new: NewAssistant, at: Millis) -> Result<Assistant> {
        self.inner.insert_assistant(owner, new, at).await
    }

    async fn add_assistant_version(
        &self,
        owner: &str,
        new: NewAssistant,
        at: Millis,
    ) -> Result<Option<Assistant>> {
        if self.is(Fault::KeepsOneVersion) {
            return self.inner.assistant(owner, new.id).await;
        }
        self.inner.add_assistant_version(owner, new, at).await
    }

    async fn set_assistant_version(
        &self,
        owner: &str,
        id: AssistantId,
        version: u32,
        at: Millis,
    ) -> Result<Option<Assistant>> {
        self.inner.set_assistant_version(owner, id, version, at).await
    }

    async fn assistant(&self, owner: &str, id: AssistantId) -> Result<Option<Assistant>> {
        self.inner.assistant(owner, id).await
    }

    async fn assistants(&self, owner: &str, query: &AssistantQuery) -> Result<(Vec<Assistant>, u64)> {
        self.inner.assistants(owner, query).await
    }

    async fn assistant_versions(&self, owner: &str, id: AssistantId) -> Result<Vec<Assistant>> {
        self.inner.assistant_versions(owner, id).await
    }

    async fn remove_assistant(&self, owner: &str, id: AssistantId) -> Result<bool> {
        self.inner.remove_assistant(owner, id).await
    }

    async fn insert_thread(&self, new: NewThread) -> Result<ThreadRecord> {
        self.inner.insert_thread(new).await
    }

    async fn conversation(&self, owner: &str, id: &ThreadId) -> Result<Option<ThreadRecord>> {
        let owner = if self.is(Fault::ShowsThreadsOfOthers) { "a" } else { owner };
        self.inner.conversation(owner, id).await
    }

    async fn conversations(&self, query: &ThreadQuery) -> Result<(Vec<ThreadRecord>, u64)> {
        self.inner.conversations(query).await
    }

    async fn merge_thread_metadata(
        &self,
        owner: &str,
        id: &ThreadId,
        metadata: Metadata,
        at: Millis,
    ) -> Result<Option<ThreadRecord>> {
        self.inner.merge_thread_metadata(owner, id, metadata, at).await
    }

    async fn copy_thread(
        &self,
        owner: &str,
        id: &ThreadId,
        copy: ThreadId,
        at: Millis,
    ) -> Result<Option<ThreadRecord>> {
        self.inner.copy_thread(owner, id, copy, at).await
    }

    async fn remove_conversation(&self, owner: &str, id: &ThreadId) -> Result<bool> {
        if self.is(Fault::HidesDeletedThreads) {
            let there = self.inner.conversation(owner, id).await?.is_some();
            let hidden = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
            return Ok(there && !hidden);
        }
        self.inner.remove_conversation(owner, id).await
    }

    async fn append_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        mut new: NewCheckpoint,
        progress: Option<RunProgress>,
    ) -> Result<()> {
        if self.is(Fault::KeepsAllMessages) && new.parent.is_some() {
            new.keep = usize::MAX;
        }
        self.inner.append_checkpoint(owner, thread, new, progress).await
    }

    async fn thread_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        id: ThreadCheckpointId,
    ) -> Result<Option<Checkpoint>> {
        self.inner.thread_checkpoint(owner, thread, id).await
    }

    async fn thread_checkpoints(
        &self,
        owner: &str,
        thread: &ThreadId,
        query: &CheckpointQuery,
    ) -> Result<Vec<Checkpoint>> {
        self.inner.thread_checkpoints(owner, thread, query).await
    }

    async fn insert_run(&self, new: NewRun) -> Result<RunRecord> {
        self.inner.insert_run(new).await
    }

    async fn run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<Option<RunRecord>> {
        self.inner.run(owner, thread, id).await
    }

    async fn runs(
        &self,
        owner: &str,
        thread: &ThreadId,
        status: Option<RunStatus>,
        limit: u32,
        offset: u32,
    ) -> Result<Vec<RunRecord>> {
        self.inner.runs(owner, thread, status, limit, offset).await
    }

    async fn next_run(&self, owner: &str, thread: &ThreadId, now: Millis) -> Result<Option<RunRecord>> {
        match self.inner.next_run(owner, thread, now).await? {
            None if self.is(Fault::BeginsRunsTwice) => {
                let running = Some(RunStatus::Running);
                Ok(self.inner.runs(owner, thread, running, 1, 0).await?.pop())
            }
            next => Ok(next),
        }
    }

    async fn requeue_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<()> {
        self.inner.requeue_run(owner, thread, id).await
    }

    async fn finish_run(&self, owner: &str, thread: &ThreadId, id: RunId, end: RunEnd) -> Result<bool> {
        self.inner.finish_run(owner, thread, id, end).await
    }

    async fn roll_back_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool> {
        if self.is(Fault::KeepsWhatWasRolledBack) {
            return Ok(self.inner.run(owner, thread, id).await?.is_some());
        }
        self.inner.roll_back_run(owner, thread, id).await
    }

    async fn remove_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool> {
        self.inner.remove_run(owner, thread, id).await
    }

    async fn unfinished_runs(&self) -> Result<Vec<RunRecord>> {
        self.inner.unfinished_runs().await
    }

    async fn put_item(&self, owner: &str, item: StoreItem) -> Result<()> {
        self.inner.put_item(owner, item).await
    }

    async fn item(&self, owner: &str, namespace: &[String], key: &str) -> Result<Option<StoreItem>> {
        self.inner.item(owner, namespace, key).await
    }

    async fn remove_item(&self, owner: &str, namespace: &[String], key: &str) -> Result<bool> {
        self.inner.remove_item(owner, namespace, key).await
    }

    async fn items(&self, owner: &str, query: &ItemQuery) -> Result<Vec<StoreItem>> {
        let mut query = query.clone();
        if self.is(Fault::IgnoresNamespaces) {
            query.prefix.clear();
        }
        self.inner.items(owner, &query).await
    }

    async fn item_namespaces(&self, owner: &str, query: &NamespaceQuery) -> Result<Vec<Vec<String>>> {
        self.inner.item_namespaces(owner, query).await
    }
}
