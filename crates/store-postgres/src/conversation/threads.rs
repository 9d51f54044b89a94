//! Threads.

use super::{READING, WRITING, check_answer, find_thread, named, page, within};
use crate::{error::failed, row::json, sql, sql::get, write};
use atoll_store::{Bound, MOST_THREADS, Millis, Result, StoreError};
use atoll_types::{
    ThreadCheckpointId, ThreadId,
    conversation::{
        Metadata, NewThread, ThreadQuery, ThreadRecord, ThreadSort, ThreadStatus, metadata_match,
    },
};
use futures_util::TryStreamExt;
use sqlx::{PgConnection, postgres::PgRow};
use std::{cmp::Ordering, collections::HashMap};
use uuid::Uuid;

const ROWS: &str =
    "SELECT seq, owner, thread, metadata, status, head, error, created_at, updated_at FROM conversations";

fn damaged(column: &str) -> StoreError {
    StoreError::Corrupt(format!("a {column} cannot be read"), None)
}

/// An id that may be absent.
pub(super) fn optional_uuid(row: &PgRow, column: &'static str) -> Result<Option<Uuid>> {
    let bytes: Option<Vec<u8>> = get(row, column)?;
    bytes.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(|_| damaged(column))
}

pub(super) fn thread_id(row: &PgRow) -> Result<ThreadId> {
    get::<String>(row, "thread")?.parse().map_err(|_| damaged("thread"))
}

fn read(row: &PgRow) -> Result<ThreadRecord> {
    Ok(ThreadRecord {
        owner: get(row, "owner")?,
        id: thread_id(row)?,
        metadata: json(row, "metadata")?,
        status: named(row, "status", ThreadStatus::from_name)?,
        head: optional_uuid(row, "head")?.map(ThreadCheckpointId::from_uuid),
        error: get(row, "error")?,
        created_at: get(row, "created_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

pub(super) async fn insert(conn: &mut PgConnection, new: NewThread) -> Result<ThreadRecord> {
    let NewThread { owner, id, metadata, created_at } = new;
    let there: i64 = sql::scalar("SELECT count(*) FROM conversations WHERE owner = $1")
        .bind(&owner)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(READING))?;
    within(Bound::Threads, there.unsigned_abs() + 1, MOST_THREADS)?;
    sql::query(
        "INSERT INTO conversations (owner, thread, metadata, status, created_at, updated_at) \
         VALUES ($1, $2, $3, 'idle', $4, $5)",
    )
    .bind(&owner)
    .bind(id.as_str())
    .bind(write::json(&metadata)?)
    .bind(created_at)
    .bind(created_at)
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    let (status, head, error, updated_at) = (ThreadStatus::Idle, None, None, created_at);
    Ok(ThreadRecord { owner, id, metadata, status, head, error, created_at, updated_at })
}

pub(super) async fn one(conn: &mut PgConnection, owner: &str, id: &ThreadId) -> Result<Option<ThreadRecord>> {
    let one = format!("{ROWS} WHERE owner = $1 AND thread = $2");
    let found = sql::query(&one).bind(owner).bind(id.as_str()).fetch_optional(conn).await;
    found.map_err(failed(READING))?.as_ref().map(read).transpose()
}

/// What a thread is found and sorted by.
struct Found {
    seq: i64,
    id: ThreadId,
    status: ThreadStatus,
    created_at: Millis,
    updated_at: Millis,
}

/// Those that a query finds.
async fn matching(conn: &mut PgConnection, query: &ThreadQuery) -> Result<Vec<Found>> {
    let metadata = if query.metadata.is_empty() { "'{}' AS metadata" } else { "metadata" };
    let all = format!(
        "SELECT seq, thread, status, created_at, updated_at, {metadata} FROM conversations WHERE owner = $1"
    );
    let mut rows = sql::query(&all).bind(&query.owner).fetch(conn);
    let mut found = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(failed(READING))? {
        let one = Found {
            seq: get(&row, "seq")?,
            id: thread_id(&row)?,
            status: named(&row, "status", ThreadStatus::from_name)?,
            created_at: get(&row, "created_at")?,
            updated_at: get(&row, "updated_at")?,
        };
        if (query.ids.is_empty() || query.ids.contains(&one.id))
            && query.status.is_none_or(|status| status == one.status)
            && metadata_match(&json::<Metadata>(&row, "metadata")?, &query.metadata)
        {
            found.push(one);
        }
    }
    Ok(found)
}

pub(super) async fn list(conn: &mut PgConnection, query: &ThreadQuery) -> Result<(Vec<ThreadRecord>, u64)> {
    let mut found = matching(conn, query).await?;
    let order = |a: &Found, b: &Found| -> Ordering {
        let order = match query.sort {
            ThreadSort::Id => a.id.cmp(&b.id),
            ThreadSort::Status => a.status.as_str().cmp(b.status.as_str()),
            ThreadSort::CreatedAt => a.created_at.cmp(&b.created_at),
            ThreadSort::UpdatedAt => a.updated_at.cmp(&b.updated_at),
        };
        // Of two that are equal the last made is first.
        let order = if query.ascending { order } else { order.reverse() };
        order.then(b.seq.cmp(&a.seq))
    };
    found.sort_unstable_by(order);
    let (chosen, total) = page(found.iter().map(|one| one.seq).collect(), query.limit, query.offset);
    let sizes = "SELECT coalesce(sum(octet_length(metadata)), 0) FROM conversations \
                 WHERE seq = ANY($1)";
    check_answer(conn, sizes, &chosen).await?;
    let some = format!("{ROWS} WHERE seq = ANY($1)");
    let rows = sql::query(&some).bind(&chosen[..]).fetch_all(conn).await;
    let mut threads: HashMap<i64, ThreadRecord> = HashMap::new();
    for row in rows.map_err(failed(READING))? {
        threads.insert(get(&row, "seq")?, read(&row)?);
    }
    Ok((chosen.iter().filter_map(|seq| threads.remove(seq)).collect(), total))
}

pub(super) async fn merge(
    conn: &mut PgConnection,
    owner: String,
    id: ThreadId,
    metadata: Metadata,
    at: Millis,
) -> Result<Option<ThreadRecord>> {
    let Some(mut thread) = one(conn, &owner, &id).await? else { return Ok(None) };
    thread.metadata.extend(metadata);
    thread.updated_at = thread.updated_at.max(at);
    sql::query("UPDATE conversations SET metadata = $1, updated_at = $2 WHERE owner = $3 AND thread = $4")
        .bind(write::json(&thread.metadata)?)
        .bind(thread.updated_at)
        .bind(owner)
        .bind(id.as_str())
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(Some(thread))
}

/// The messages get new numbers, and the copied checkpoints those.
pub(super) async fn copy(
    conn: &mut PgConnection,
    owner: String,
    id: ThreadId,
    copy: ThreadId,
    at: Millis,
) -> Result<Option<ThreadRecord>> {
    let Some(thread) = one(conn, &owner, &id).await? else { return Ok(None) };
    let Some(from) = find_thread(conn, &owner, &id).await? else { return Ok(None) };
    let new = NewThread { owner: owner.clone(), id: copy.clone(), metadata: thread.metadata, created_at: at };
    insert(conn, new).await?;
    let Some(to) = find_thread(conn, &owner, &copy).await? else { return Ok(None) };
    let old: Vec<i64> =
        sql::scalar("SELECT seq FROM conversation_messages WHERE conversation = $1 ORDER BY seq")
            .bind(from)
            .fetch_all(&mut *conn)
            .await
            .map_err(failed(READING))?;
    let new: Vec<i64> = sql::scalar(
        "SELECT nextval(pg_get_serial_sequence('atoll.conversation_messages', 'seq')) FROM generate_series(1, $1)",
    )
    .bind(i64::try_from(old.len()).unwrap_or(i64::MAX))
    .fetch_all(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    sql::query(
        "INSERT INTO conversation_messages (seq, conversation, message) \
         SELECT m.new, $1, c.message FROM conversation_messages AS c JOIN unnest($2, $3) AS m (old, new) ON m.old = c.seq",
    )
    .bind(to)
    .bind(&old[..])
    .bind(&new[..])
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    sql::query(
        "INSERT INTO conversation_checkpoints (conversation, id, parent, run, step, source, node, next, messages, \
         state, interrupts, metadata, created_at) \
         SELECT $1, id, parent, run, step, source, node, next, \
         (SELECT coalesce(json_agg(m.new ORDER BY j.place), '[]')::text \
         FROM json_array_elements_text(c.messages::json) WITH ORDINALITY AS j (value, place) \
         JOIN unnest($3, $4) AS m (old, new) ON m.old = j.value::bigint), \
         state, interrupts, metadata, created_at FROM conversation_checkpoints AS c WHERE conversation = $2 ORDER BY seq",
    )
    .bind(to)
    .bind(from)
    .bind(&old[..])
    .bind(&new[..])
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    let status = match thread.status {
        ThreadStatus::Busy => ThreadStatus::Idle,
        other => other,
    };
    sql::query("UPDATE conversations SET head = $1, status = $2 WHERE seq = $3")
        .bind(thread.head.map(|head| head.uuid().as_bytes().to_vec()))
        .bind(status.as_str())
        .bind(to)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    one(conn, &owner, &copy).await
}

pub(super) async fn remove(conn: &mut PgConnection, owner: String, id: ThreadId) -> Result<bool> {
    let gone = sql::query("DELETE FROM conversations WHERE owner = $1 AND thread = $2").bind(owner);
    let gone = gone.bind(id.as_str()).execute(conn).await.map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}
