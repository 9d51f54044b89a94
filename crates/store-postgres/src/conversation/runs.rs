//! Runs of threads.

use super::{
    READING, WRITING, find_thread, named, thread_row,
    threads::{optional_uuid, thread_id},
};
use crate::{
    error::failed,
    row::{self, count, json, optional_name},
    sql::{self, get},
    write,
};
use atoll_store::{Clash, KeyId, Millis, Result, RunEnd, Scope, Sealed, StoreError};
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{MultitaskStrategy, NewRun, RunFailure, RunRecord, RunStatus, StopReason},
};
use sqlx::{PgConnection, postgres::PgRow};

const ROWS: &str = "SELECT c.owner, c.thread, r.* FROM conversation_runs r \
     JOIN conversations c ON c.seq = r.conversation";
const UNFINISHED: &str = "status IN ('pending', 'running')";

fn bytes(id: uuid::Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

fn read(row: &PgRow) -> Result<RunRecord> {
    let failure: Option<String> = get(row, "failure")?;
    let broken = |e| StoreError::Corrupt("a failure cannot be read".into(), Some(Box::new(e) as _));
    let failure: Option<RunFailure> =
        failure.as_deref().map(serde_json::from_str).transpose().map_err(broken)?;
    Ok(RunRecord {
        new: NewRun {
            id: RunId::from_uuid(row::uuid(row, "id")?),
            owner: get(row, "owner")?,
            owner_name: get(row, "owner_name")?,
            thread: thread_id(row)?,
            assistant: AssistantId::from_uuid(row::uuid(row, "assistant")?),
            key: optional_uuid(row, "key")?.map(KeyId::from_uuid),
            scope: named(row, "scope", Scope::from_name)?,
            tier: get(row, "tier")?,
            metadata: json(row, "metadata")?,
            input: json(row, "input")?,
            kwargs: json(row, "kwargs")?,
            sealed: Sealed(get(row, "sealed")?),
            multitask: named(row, "multitask", MultitaskStrategy::from_name)?,
            from: optional_uuid(row, "origin")?.map(ThreadCheckpointId::from_uuid),
            stateless: get(row, "stateless")?,
            not_before: get(row, "not_before")?,
            created_at: get(row, "created_at")?,
        },
        status: named(row, "status", RunStatus::from_name)?,
        attempts: get(row, "attempts")?,
        iterations: get(row, "iterations")?,
        tokens: count(row, "tokens")?,
        stopped: optional_name(row, "stopped", StopReason::from_name)?,
        failure,
        started_at: get(row, "started_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

pub(super) async fn insert(conn: &mut PgConnection, new: NewRun) -> Result<RunRecord> {
    let seq = thread_row(conn, &new.owner, &new.thread).await?;
    let busy =
        format!("SELECT EXISTS (SELECT 1 FROM conversation_runs WHERE conversation = $1 AND {UNFINISHED})");
    let busy: bool = sql::scalar(&busy).bind(seq).fetch_one(&mut *conn).await.map_err(failed(READING))?;
    if busy && new.multitask == MultitaskStrategy::Reject {
        return Err(StoreError::Conflict(Clash::Busy));
    }
    #[rustfmt::skip] // One a line would be longer than the rest.
    let NewRun {
        id, owner, owner_name, thread, assistant, key, scope, tier, metadata, input, kwargs, sealed, multitask, from,
        stateless, not_before, created_at,
    } = new;
    sql::query(
        "INSERT INTO conversation_runs (conversation, id, owner_name, assistant, key, scope, tier, metadata, input, \
         kwargs, sealed, multitask, origin, stateless, not_before, status, attempts, iterations, tokens, created_at, \
         updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 'pending', 0, 0, 0, $16, $17)",
    )
    .bind(seq)
    .bind(bytes(id.uuid()))
    .bind(owner_name)
    .bind(bytes(assistant.uuid()))
    .bind(key.map(|key| bytes(key.uuid())))
    .bind(scope.as_str())
    .bind(tier)
    .bind(write::json(&metadata)?)
    .bind(write::json(&input)?)
    .bind(write::json(&kwargs)?)
    .bind(sealed.0)
    .bind(multitask.as_str())
    .bind(from.map(|from| bytes(from.uuid())))
    .bind(stateless)
    .bind(not_before)
    .bind(created_at)
    .bind(created_at)
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    set_thread(conn, seq, "busy", None, created_at).await?;
    let run = one(conn, &owner, &thread, id).await?;
    run.ok_or_else(|| StoreError::Internal(WRITING, "a new run is gone".into()))
}

async fn set_thread(
    conn: &mut PgConnection,
    seq: i64,
    status: &str,
    error: Option<&str>,
    at: Millis,
) -> Result<()> {
    let set = "UPDATE conversations SET status = $1, error = $2, updated_at = greatest(updated_at, $3) WHERE seq = $4";
    let set = sql::query(set).bind(status).bind(error).bind(at).bind(seq).execute(conn).await;
    set.map(drop).map_err(failed(WRITING))
}

pub(super) async fn one(
    conn: &mut PgConnection,
    owner: &str,
    thread: &ThreadId,
    id: RunId,
) -> Result<Option<RunRecord>> {
    let one = format!("{ROWS} WHERE c.owner = $1 AND c.thread = $2 AND r.id = $3");
    let found = sql::query(&one).bind(owner).bind(thread.as_str()).bind(bytes(id.uuid()));
    found.fetch_optional(conn).await.map_err(failed(READING))?.as_ref().map(read).transpose()
}

pub(super) async fn list(
    conn: &mut PgConnection,
    owner: &str,
    thread: &ThreadId,
    status: Option<RunStatus>,
    (limit, offset): (u32, u32),
) -> Result<Vec<RunRecord>> {
    let some = format!(
        "{ROWS} WHERE c.owner = $1 AND c.thread = $2 AND ($3 IS NULL OR r.status = $3) \
         ORDER BY r.seq DESC LIMIT $4 OFFSET $5"
    );
    let rows = sql::query(&some)
        .bind(owner)
        .bind(thread.as_str())
        .bind(status.map(RunStatus::as_str))
        .bind(limit)
        .bind(offset)
        .fetch_all(conn)
        .await
        .map_err(failed(READING))?;
    rows.iter().map(read).collect()
}

pub(super) async fn next(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    now: Millis,
) -> Result<Option<RunRecord>> {
    let Some(seq) = find_thread(conn, &owner, &thread).await? else { return Ok(None) };
    let begun: Option<Vec<u8>> = sql::scalar(
        "UPDATE conversation_runs SET status = 'running', attempts = attempts + 1, \
         started_at = coalesce(started_at, $2), updated_at = $2 WHERE seq = \
         (SELECT seq FROM conversation_runs WHERE conversation = $1 AND status = 'pending' AND not_before <= $2 \
         AND NOT EXISTS (SELECT 1 FROM conversation_runs WHERE conversation = $1 AND status = 'running') \
         ORDER BY attempts DESC, seq LIMIT 1) RETURNING id",
    )
    .bind(seq)
    .bind(now)
    .fetch_optional(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    let Some(id) = begun else { return Ok(None) };
    let damaged = |_| StoreError::Corrupt("an id cannot be read".into(), None);
    let id = RunId::from_uuid(uuid::Uuid::from_slice(&id).map_err(damaged)?);
    one(conn, &owner, &thread, id).await
}

pub(super) async fn requeue(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    id: RunId,
) -> Result<()> {
    let seq = thread_row(conn, &owner, &thread).await?;
    let wait = "UPDATE conversation_runs SET status = 'pending' \
                WHERE conversation = $1 AND id = $2 AND status = 'running'";
    let waits = sql::query(wait).bind(seq).bind(bytes(id.uuid())).execute(conn).await;
    waits.map(drop).map_err(failed(WRITING))
}

pub(super) async fn finish(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    id: RunId,
    end: RunEnd,
) -> Result<bool> {
    let RunEnd { status, stopped, failure, thread: after, at } = end;
    let Some(seq) = find_thread(conn, &owner, &thread).await? else { return Ok(false) };
    let ended = format!(
        "UPDATE conversation_runs SET status = $1, stopped = $2, failure = $3, updated_at = $4 \
         WHERE conversation = $5 AND id = $6 AND {UNFINISHED}"
    );
    let ended = sql::query(&ended)
        .bind(status.as_str())
        .bind(stopped.as_str())
        .bind(failure.as_ref().map(write::json).transpose()?)
        .bind(at)
        .bind(seq)
        .bind(bytes(id.uuid()))
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    if ended.rows_affected() == 0 {
        return Ok(false);
    }
    settle(conn, seq, after.as_str(), failure.as_ref().map(|failure| failure.message.as_str()), at).await?;
    Ok(true)
}

/// A thread stands as given, unless another run waits.
async fn settle(
    conn: &mut PgConnection,
    seq: i64,
    status: &str,
    error: Option<&str>,
    at: Millis,
) -> Result<()> {
    let waits =
        format!("SELECT EXISTS (SELECT 1 FROM conversation_runs WHERE conversation = $1 AND {UNFINISHED})");
    let waits: bool = sql::scalar(&waits).bind(seq).fetch_one(&mut *conn).await.map_err(failed(READING))?;
    set_thread(conn, seq, if waits { "busy" } else { status }, error, at).await
}

pub(super) async fn roll_back(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    id: RunId,
) -> Result<bool> {
    let Some(seq) = find_thread(conn, &owner, &thread).await? else { return Ok(false) };
    let gone = "DELETE FROM conversation_checkpoints WHERE conversation = $1 AND run = $2";
    let gone = sql::query(gone).bind(seq).bind(bytes(id.uuid())).execute(&mut *conn).await;
    if gone.map_err(failed(WRITING))?.rows_affected() > 0 {
        // The head is always what was appended last, which need not be what the run went on from.
        let head = "UPDATE conversations SET head = (SELECT id FROM conversation_checkpoints \
                    WHERE conversation = $1 ORDER BY seq DESC LIMIT 1) WHERE seq = $1";
        sql::query(head).bind(seq).execute(&mut *conn).await.map_err(failed(WRITING))?;
        let unused = "DELETE FROM conversation_messages WHERE conversation = $1 AND seq NOT IN \
                      (SELECT j.value::bigint FROM conversation_checkpoints c, json_array_elements_text(c.messages::json) j (value) \
                      WHERE c.conversation = $1)";
        sql::query(unused).bind(seq).execute(&mut *conn).await.map_err(failed(WRITING))?;
    }
    let gone = sql::query("DELETE FROM conversation_runs WHERE conversation = $1 AND id = $2").bind(seq);
    let gone = gone.bind(bytes(id.uuid())).execute(&mut *conn).await.map_err(failed(WRITING))?;
    settle(conn, seq, "idle", None, 0).await?;
    Ok(gone.rows_affected() > 0)
}

pub(super) async fn remove(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    id: RunId,
) -> Result<bool> {
    let Some(seq) = find_thread(conn, &owner, &thread).await? else { return Ok(false) };
    let gone =
        format!("DELETE FROM conversation_runs WHERE conversation = $1 AND id = $2 AND NOT {UNFINISHED}");
    let gone = sql::query(&gone).bind(seq).bind(bytes(id.uuid())).execute(conn).await;
    Ok(gone.map_err(failed(WRITING))?.rows_affected() > 0)
}

pub(super) async fn unfinished(conn: &mut PgConnection) -> Result<Vec<RunRecord>> {
    let all = format!("{ROWS} WHERE r.{UNFINISHED} OR r.stateless ORDER BY r.seq");
    let rows = sql::query(&all).fetch_all(conn).await.map_err(failed(READING))?;
    rows.iter().map(read).collect()
}
