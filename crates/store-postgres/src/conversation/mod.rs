//! Conversations of the agent. A list finds the rows of its page by narrow columns, one row in memory at a time, and only
//! then reads them, if they are not too many bytes. What a query filters by metadata is decided by `types`' rule and not by SQL, so that every
//! store finds the same.

mod assistants;
mod checkpoints;
mod items;
mod runs;
mod threads;

use crate::{
    PostgresStore,
    error::failed,
    sql::{self, get},
};
use async_trait::async_trait;
use atoll_store::{
    Bound, Conversations, MOST_ANSWER_BYTES, Millis, Result, RunEnd, RunProgress, StoreError, Thing,
};
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        Assistant, AssistantQuery, Checkpoint, CheckpointQuery, ItemQuery, Metadata, NamespaceQuery,
        NewAssistant, NewCheckpoint, NewRun, NewThread, RunRecord, RunStatus, StoreItem, ThreadQuery,
        ThreadRecord,
    },
};
use sqlx::{PgConnection, postgres::PgRow};

const WRITING: &str = "writing a conversation";
const READING: &str = "reading a conversation";

/// A name of a closed set.
fn named<T>(row: &PgRow, column: &'static str, parse: fn(&str) -> Option<T>) -> Result<T> {
    let damaged = || StoreError::Corrupt(format!("a {column} cannot be read"), None);
    parse(&get::<String>(row, column)?).ok_or_else(damaged)
}

/// The page of what was found.
fn page<T>(all: Vec<T>, limit: u32, offset: u32) -> (Vec<T>, u64) {
    let total = all.len() as u64;
    (all.into_iter().skip(offset as usize).take(limit as usize).collect(), total)
}

/// What a query of the numbers in its last parameter, as a JSON list, sums up.
async fn sum(conn: &mut PgConnection, sql: &str, rows: &[i64]) -> Result<u64> {
    let sum: i64 = sql::scalar(sql).bind(rows).fetch_one(conn).await.map_err(failed(READING))?;
    Ok(sum.unsigned_abs())
}

/// Refuses an answer that has more than one may have, before its rows are read.
async fn check_answer(conn: &mut PgConnection, sizes: &str, rows: &[i64]) -> Result<()> {
    within(Bound::Answer, sum(conn, sizes, rows).await?, MOST_ANSWER_BYTES)
}

fn within(bound: Bound, is: u64, most: u64) -> Result<()> {
    if is > most { Err(StoreError::Beyond(bound)) } else { Ok(()) }
}

/// The number of a thread's row.
async fn find_thread(conn: &mut PgConnection, owner: &str, thread: &ThreadId) -> Result<Option<i64>> {
    sql::scalar("SELECT seq FROM conversations WHERE owner = $1 AND thread = $2")
        .bind(owner)
        .bind(thread.as_str())
        .fetch_optional(conn)
        .await
        .map_err(failed(READING))
}

/// The same of one that must exist.
async fn thread_row(conn: &mut PgConnection, owner: &str, thread: &ThreadId) -> Result<i64> {
    find_thread(conn, owner, thread).await?.ok_or(StoreError::NotFound(Thing::Thread))
}

impl PostgresStore {
    /// A connection to read with.
    async fn reader(&self) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>> {
        self.readers()?.acquire().await.map_err(failed(READING))
    }
}

#[async_trait]
impl Conversations for PostgresStore {
    async fn insert_assistant(&self, owner: &str, new: NewAssistant, at: Millis) -> Result<Assistant> {
        let owner = owner.to_owned();
        self.talks.write(WRITING, move |conn| Box::pin(assistants::insert(conn, owner, new, at))).await
    }

    async fn add_assistant_version(
        &self,
        owner: &str,
        new: NewAssistant,
        at: Millis,
    ) -> Result<Option<Assistant>> {
        let owner = owner.to_owned();
        self.talks.write(WRITING, move |conn| Box::pin(assistants::add_version(conn, owner, new, at))).await
    }

    async fn set_assistant_version(
        &self,
        owner: &str,
        id: AssistantId,
        version: u32,
        at: Millis,
    ) -> Result<Option<Assistant>> {
        let owner = owner.to_owned();
        self.talks
            .write(WRITING, move |conn| Box::pin(assistants::set_version(conn, owner, id, version, at)))
            .await
    }

    async fn assistant(&self, owner: &str, id: AssistantId) -> Result<Option<Assistant>> {
        assistants::one(&mut *self.reader().await?, owner, id).await
    }

    async fn assistants(&self, owner: &str, query: &AssistantQuery) -> Result<(Vec<Assistant>, u64)> {
        assistants::list(&mut *self.reader().await?, owner, query).await
    }

    async fn assistant_versions(&self, owner: &str, id: AssistantId) -> Result<Vec<Assistant>> {
        assistants::versions(&mut *self.reader().await?, owner, id).await
    }

    async fn remove_assistant(&self, owner: &str, id: AssistantId) -> Result<bool> {
        let owner = owner.to_owned();
        self.talks.write(WRITING, move |conn| Box::pin(assistants::remove(conn, owner, id))).await
    }

    async fn insert_thread(&self, new: NewThread) -> Result<ThreadRecord> {
        self.talks.write(WRITING, move |conn| Box::pin(threads::insert(conn, new))).await
    }

    async fn conversation(&self, owner: &str, id: &ThreadId) -> Result<Option<ThreadRecord>> {
        threads::one(&mut *self.reader().await?, owner, id).await
    }

    async fn conversations(&self, query: &ThreadQuery) -> Result<(Vec<ThreadRecord>, u64)> {
        threads::list(&mut *self.reader().await?, query).await
    }

    async fn merge_thread_metadata(
        &self,
        owner: &str,
        id: &ThreadId,
        metadata: Metadata,
        at: Millis,
    ) -> Result<Option<ThreadRecord>> {
        let (owner, id) = (owner.to_owned(), id.clone());
        self.talks.write(WRITING, move |conn| Box::pin(threads::merge(conn, owner, id, metadata, at))).await
    }

    async fn copy_thread(
        &self,
        owner: &str,
        id: &ThreadId,
        copy: ThreadId,
        at: Millis,
    ) -> Result<Option<ThreadRecord>> {
        let (owner, id) = (owner.to_owned(), id.clone());
        self.talks.write(WRITING, move |conn| Box::pin(threads::copy(conn, owner, id, copy, at))).await
    }

    async fn remove_conversation(&self, owner: &str, id: &ThreadId) -> Result<bool> {
        let (owner, id) = (owner.to_owned(), id.clone());
        self.talks.write(WRITING, move |conn| Box::pin(threads::remove(conn, owner, id))).await
    }

    async fn append_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        new: NewCheckpoint,
        progress: Option<RunProgress>,
    ) -> Result<()> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks
            .write(WRITING, move |conn| Box::pin(checkpoints::append(conn, owner, thread, new, progress)))
            .await
    }

    async fn thread_checkpoint(
        &self,
        owner: &str,
        thread: &ThreadId,
        id: ThreadCheckpointId,
    ) -> Result<Option<Checkpoint>> {
        checkpoints::one(&mut *self.reader().await?, owner, thread, id).await
    }

    async fn thread_checkpoints(
        &self,
        owner: &str,
        thread: &ThreadId,
        query: &CheckpointQuery,
    ) -> Result<Vec<Checkpoint>> {
        checkpoints::list(&mut *self.reader().await?, owner, thread, query).await
    }

    async fn insert_run(&self, new: NewRun) -> Result<RunRecord> {
        self.talks.write(WRITING, move |conn| Box::pin(runs::insert(conn, new))).await
    }

    async fn run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<Option<RunRecord>> {
        runs::one(&mut *self.reader().await?, owner, thread, id).await
    }

    async fn runs(
        &self,
        owner: &str,
        thread: &ThreadId,
        status: Option<RunStatus>,
        limit: u32,
        offset: u32,
    ) -> Result<Vec<RunRecord>> {
        runs::list(&mut *self.reader().await?, owner, thread, status, (limit, offset)).await
    }

    async fn next_run(&self, owner: &str, thread: &ThreadId, now: Millis) -> Result<Option<RunRecord>> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks.write(WRITING, move |conn| Box::pin(runs::next(conn, owner, thread, now))).await
    }

    async fn requeue_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<()> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks.write(WRITING, move |conn| Box::pin(runs::requeue(conn, owner, thread, id))).await
    }

    async fn finish_run(&self, owner: &str, thread: &ThreadId, id: RunId, end: RunEnd) -> Result<bool> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks.write(WRITING, move |conn| Box::pin(runs::finish(conn, owner, thread, id, end))).await
    }

    async fn roll_back_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks.write(WRITING, move |conn| Box::pin(runs::roll_back(conn, owner, thread, id))).await
    }

    async fn remove_run(&self, owner: &str, thread: &ThreadId, id: RunId) -> Result<bool> {
        let (owner, thread) = (owner.to_owned(), thread.clone());
        self.talks.write(WRITING, move |conn| Box::pin(runs::remove(conn, owner, thread, id))).await
    }

    async fn unfinished_runs(&self) -> Result<Vec<RunRecord>> {
        runs::unfinished(&mut *self.reader().await?).await
    }

    async fn put_item(&self, owner: &str, item: StoreItem) -> Result<()> {
        let owner = owner.to_owned();
        self.talks.write(WRITING, move |conn| Box::pin(items::put(conn, owner, item))).await
    }

    async fn item(&self, owner: &str, namespace: &[String], key: &str) -> Result<Option<StoreItem>> {
        items::one(&mut *self.reader().await?, owner, namespace, key).await
    }

    async fn remove_item(&self, owner: &str, namespace: &[String], key: &str) -> Result<bool> {
        let (owner, namespace, key) = (owner.to_owned(), namespace.to_vec(), key.to_owned());
        self.talks.write(WRITING, move |conn| Box::pin(items::remove(conn, owner, namespace, key))).await
    }

    async fn items(&self, owner: &str, query: &ItemQuery) -> Result<Vec<StoreItem>> {
        items::list(&mut *self.reader().await?, owner, query).await
    }

    async fn item_namespaces(&self, owner: &str, query: &NamespaceQuery) -> Result<Vec<Vec<String>>> {
        items::namespaces(&mut *self.reader().await?, owner, query).await
    }
}
