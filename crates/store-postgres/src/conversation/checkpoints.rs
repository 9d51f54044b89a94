//! Checkpoints of threads. Each names its messages by the numbers of their rows.

use super::{READING, WRITING, find_thread, named, thread_row, threads::optional_uuid, within};
use crate::{
    error::failed,
    row::{self, count, json, optional_name},
    sql::{self, get},
    write::{self, number},
};
use atoll_store::{Bound, MOST_THREAD_BYTES, Result, RunProgress, StoreError, Thing, fitting};
use atoll_types::{
    RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        Checkpoint, CheckpointQuery, CheckpointSource, ConversationState, Message, Metadata, NewCheckpoint,
        Node, metadata_match,
    },
};
use futures_util::TryStreamExt;
use sqlx::{PgConnection, postgres::PgRow};
use std::{collections::HashMap, sync::Arc};

const ROWS: &str = "SELECT seq, id, parent, run, step, source, node, next, messages, state, interrupts, metadata, \
     created_at FROM conversation_checkpoints";

/// What a row of a checkpoint holds.
const SIZE: &str =
    "octet_length(messages) + octet_length(state) + octet_length(interrupts) + octet_length(metadata)";

/// A checkpoint without its messages, and their numbers.
fn read(row: &PgRow, thread: &ThreadId) -> Result<(Checkpoint, Vec<i64>)> {
    let checkpoint = Checkpoint {
        id: ThreadCheckpointId::from_uuid(row::uuid(row, "id")?),
        thread: thread.clone(),
        parent: optional_uuid(row, "parent")?.map(ThreadCheckpointId::from_uuid),
        run: optional_uuid(row, "run")?.map(RunId::from_uuid),
        step: get(row, "step")?,
        source: named(row, "source", CheckpointSource::from_name)?,
        node: optional_name(row, "node", Node::from_name)?,
        next: optional_name(row, "next", Node::from_name)?,
        state: ConversationState { messages: Vec::new(), values: json(row, "state")? },
        interrupts: json(row, "interrupts")?,
        metadata: json(row, "metadata")?,
        created_at: get(row, "created_at")?,
    };
    Ok((checkpoint, json(row, "messages")?))
}

/// Gives checkpoints their messages; each is read once.
async fn fill(conn: &mut PgConnection, found: Vec<(Checkpoint, Vec<i64>)>) -> Result<Vec<Checkpoint>> {
    let mut wanted: Vec<i64> = found.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let chosen = "SELECT seq, message FROM conversation_messages WHERE seq = ANY($1)";
    let rows = sql::query(chosen).bind(&wanted[..]).fetch_all(conn).await;
    let mut messages: HashMap<i64, Arc<Message>> = HashMap::new();
    for row in rows.map_err(failed(READING))? {
        messages.insert(get(&row, "seq")?, Arc::new(json(&row, "message")?));
    }
    let lost = || StoreError::Corrupt("a message of a checkpoint is missing".into(), None);
    let mut filled = Vec::with_capacity(found.len());
    for (mut checkpoint, numbers) in found {
        for number in numbers {
            checkpoint.state.messages.push(messages.get(&number).cloned().ok_or_else(lost)?);
        }
        filled.push(checkpoint);
    }
    Ok(filled)
}

async fn numbers_of(
    conn: &mut PgConnection,
    thread: i64,
    id: ThreadCheckpointId,
) -> Result<Option<Vec<i64>>> {
    let one = "SELECT messages FROM conversation_checkpoints WHERE conversation = $1 AND id = $2";
    let row = sql::query(one).bind(thread).bind(&id.uuid().as_bytes()[..]).fetch_optional(conn).await;
    row.map_err(failed(READING))?.as_ref().map(|row| json(row, "messages")).transpose()
}

async fn add_message(conn: &mut PgConnection, thread: i64, message: &Message) -> Result<i64> {
    let adding = "INSERT INTO conversation_messages (conversation, message) VALUES ($1, $2) RETURNING seq";
    let added = sql::scalar(adding).bind(thread).bind(write::json(message)?).fetch_one(conn).await;
    added.map_err(failed(WRITING))
}

/// Refuses more in a thread that holds what it may.
async fn check_room(conn: &mut PgConnection, thread: i64, more: usize) -> Result<()> {
    let held = format!(
        "SELECT (SELECT coalesce(sum(octet_length(message)), 0) FROM conversation_messages WHERE conversation = $1) \
         + (SELECT coalesce(sum({SIZE}), 0) FROM conversation_checkpoints WHERE conversation = $1)"
    );
    let held: i64 = sql::scalar(&held).bind(thread).fetch_one(conn).await.map_err(failed(READING))?;
    within(Bound::ThreadBytes, held.unsigned_abs() + more as u64, MOST_THREAD_BYTES)
}

pub(super) async fn append(
    conn: &mut PgConnection,
    owner: String,
    thread: ThreadId,
    new: NewCheckpoint,
    progress: Option<RunProgress>,
) -> Result<()> {
    #[rustfmt::skip] // One a line would be longer than the rest.
    let NewCheckpoint {
        id, parent, run, step, source, node, next, keep, added, values, interrupts, metadata, created_at,
    } = new;
    let seq = thread_row(conn, &owner, &thread).await?;
    let mut messages = match parent {
        Some(parent) => {
            let numbers = numbers_of(conn, seq, parent).await?;
            numbers.ok_or(StoreError::NotFound(Thing::Checkpoint))?
        }
        None => Vec::new(),
    };
    messages.truncate(keep);
    let more = write::json(&added)?.len() + write::json(&values)?.len();
    check_room(conn, seq, more).await?;
    for message in &added {
        messages.push(add_message(conn, seq, message).await?);
    }
    let bytes = |id: uuid::Uuid| id.as_bytes().to_vec();
    sql::query(
        "INSERT INTO conversation_checkpoints (conversation, id, parent, run, step, source, node, next, messages, \
         state, interrupts, metadata, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(seq)
    .bind(bytes(id.uuid()))
    .bind(parent.map(|parent| bytes(parent.uuid())))
    .bind(run.map(|run| bytes(run.uuid())))
    .bind(step)
    .bind(source.as_str())
    .bind(node.map(Node::as_str))
    .bind(next.map(Node::as_str))
    .bind(write::json(&messages)?)
    .bind(write::json(&values)?)
    .bind(write::json(&interrupts)?)
    .bind(write::json(&metadata)?)
    .bind(created_at)
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    sql::query("UPDATE conversations SET head = $1, updated_at = greatest(updated_at, $2) WHERE seq = $3")
        .bind(bytes(id.uuid()))
        .bind(created_at)
        .bind(seq)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    if let (Some(run), Some(RunProgress { iterations, tokens })) = (run, progress) {
        sql::query(
            "UPDATE conversation_runs SET iterations = $1, tokens = $2 WHERE conversation = $3 AND id = $4",
        )
        .bind(iterations)
        .bind(number(tokens))
        .bind(seq)
        .bind(bytes(run.uuid()))
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    }
    Ok(())
}

pub(super) async fn one(
    conn: &mut PgConnection,
    owner: &str,
    thread: &ThreadId,
    id: ThreadCheckpointId,
) -> Result<Option<Checkpoint>> {
    let Some(seq) = find_thread(conn, owner, thread).await? else { return Ok(None) };
    let one = format!("{ROWS} WHERE conversation = $1 AND id = $2");
    let row = sql::query(&one).bind(seq).bind(&id.uuid().as_bytes()[..]).fetch_optional(&mut *conn).await;
    let Some(row) = row.map_err(failed(READING))? else { return Ok(None) };
    Ok(fill(conn, vec![read(&row, thread)?]).await?.pop())
}

/// The numbers of those that a query finds, the newest first.
async fn matching(conn: &mut PgConnection, thread: i64, query: &CheckpointQuery) -> Result<Vec<i64>> {
    let CheckpointQuery { before, run, metadata, limit } = query;
    let column = if metadata.is_empty() { "'{}' AS metadata" } else { "metadata" };
    let some = format!(
        "SELECT seq, {column} FROM conversation_checkpoints WHERE conversation = $1 AND ($2 IS NULL OR seq < \
         (SELECT seq FROM conversation_checkpoints WHERE conversation = $1 AND id = $2)) \
         AND ($3 IS NULL OR run = $3)"
    );
    let mut rows = sql::query(&some)
        .bind(thread)
        .bind(before.map(|before| before.uuid().as_bytes().to_vec()))
        .bind(run.map(|run| run.uuid().as_bytes().to_vec()))
        .fetch(conn);
    let mut found: Vec<i64> = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(failed(READING))? {
        if metadata_match(&json::<Metadata>(&row, "metadata")?, metadata) {
            found.push(get(&row, "seq")?);
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.truncate(*limit as usize);
    Ok(found)
}

/// The sizes of messages by their numbers.
async fn sizes_of(conn: &mut PgConnection, found: &[(Checkpoint, Vec<i64>)]) -> Result<HashMap<i64, u64>> {
    let mut wanted: Vec<i64> = found.iter().flat_map(|(_, numbers)| numbers).copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let sizes = "SELECT seq, octet_length(message)::bigint AS size FROM conversation_messages \
                 WHERE seq = ANY($1)";
    let rows = sql::query(sizes).bind(&wanted[..]).fetch_all(conn).await.map_err(failed(READING))?;
    rows.iter().map(|row| Ok((get(row, "seq")?, count(row, "size")?))).collect()
}

pub(super) async fn list(
    conn: &mut PgConnection,
    owner: &str,
    thread: &ThreadId,
    query: &CheckpointQuery,
) -> Result<Vec<Checkpoint>> {
    let Some(seq) = find_thread(conn, owner, thread).await? else { return Ok(Vec::new()) };
    let mut chosen = matching(conn, seq, query).await?;
    let sizes = format!(
        "SELECT ({SIZE})::bigint AS size FROM conversation_checkpoints WHERE seq = ANY($1) ORDER BY seq DESC"
    );
    let rows = sql::query(&sizes).bind(&chosen[..]).fetch_all(&mut *conn).await.map_err(failed(READING))?;
    let sizes = rows.iter().map(|row| count(row, "size")).collect::<Result<Vec<_>>>()?;
    chosen.truncate(fitting(sizes));
    let some = format!("{ROWS} WHERE seq = ANY($1) ORDER BY seq DESC");
    let rows = sql::query(&some).bind(&chosen[..]).fetch_all(&mut *conn).await;
    let mut found: Vec<_> =
        rows.map_err(failed(READING))?.iter().map(|row| read(row, thread)).collect::<Result<_>>()?;
    let sizes = sizes_of(conn, &found).await?;
    // Each has all of its messages, those of its parent among them.
    let size = |number| sizes.get(number).copied().unwrap_or_default();
    found.truncate(fitting(found.iter().map(|(_, numbers)| numbers.iter().map(size).sum())));
    fill(conn, found).await
}
