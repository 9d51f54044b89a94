//! Assistants and their versions.

use super::{READING, WRITING, check_answer, page};
use crate::{
    error::failed,
    row::{self, json},
    sql::{self, get},
    write,
};
use atoll_store::{Millis, Result};
use atoll_types::{
    AssistantId,
    conversation::{Assistant, AssistantQuery, Metadata, NewAssistant, metadata_match},
};
use futures_util::TryStreamExt;
use sqlx::{PgConnection, postgres::PgRow};

const ROWS: &str = "SELECT a.id, v.graph, v.name, v.description, v.config, v.context, v.metadata, v.version, \
     a.created_at, v.updated_at FROM assistants a JOIN assistant_versions v ON v.assistant = a.seq";

fn read(row: &PgRow) -> Result<Assistant> {
    Ok(Assistant {
        id: AssistantId::from_uuid(row::uuid(row, "id")?),
        graph: get(row, "graph")?,
        name: get(row, "name")?,
        description: get(row, "description")?,
        config: json(row, "config")?,
        context: json(row, "context")?,
        metadata: json(row, "metadata")?,
        version: get(row, "version")?,
        created_at: get(row, "created_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

async fn write_version(
    conn: &mut PgConnection,
    seq: i64,
    version: i64,
    new: NewAssistant,
    at: Millis,
) -> Result<()> {
    let NewAssistant { id: _, graph, name, description, config, context, metadata } = new;
    sql::query(
        "INSERT INTO assistant_versions (assistant, version, graph, name, description, config, context, metadata, \
         updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(seq)
    .bind(version)
    .bind(graph)
    .bind(name)
    .bind(description)
    .bind(write::json(&config)?)
    .bind(write::json(&context)?)
    .bind(write::json(&metadata)?)
    .bind(at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

pub(super) async fn insert(
    conn: &mut PgConnection,
    owner: String,
    new: NewAssistant,
    at: Millis,
) -> Result<Assistant> {
    let adding =
        "INSERT INTO assistants (owner, id, version, created_at) VALUES ($1, $2, 1, $3) RETURNING seq";
    let seq: i64 = sql::scalar(adding)
        .bind(&owner)
        .bind(&new.id.uuid().as_bytes()[..])
        .bind(at)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    let id = new.id;
    write_version(conn, seq, 1, new, at).await?;
    let one = one(conn, &owner, id).await?;
    one.ok_or_else(|| atoll_store::StoreError::Internal(WRITING, "a new assistant is gone".into()))
}

async fn row_of(conn: &mut PgConnection, owner: &str, id: AssistantId) -> Result<Option<i64>> {
    sql::scalar("SELECT seq FROM assistants WHERE owner = $1 AND id = $2")
        .bind(owner)
        .bind(&id.uuid().as_bytes()[..])
        .fetch_optional(conn)
        .await
        .map_err(failed(READING))
}

async fn point(conn: &mut PgConnection, seq: i64, version: i64) -> Result<()> {
    let moved = sql::query("UPDATE assistants SET version = $1 WHERE seq = $2").bind(version).bind(seq);
    moved.execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

pub(super) async fn add_version(
    conn: &mut PgConnection,
    owner: String,
    new: NewAssistant,
    at: Millis,
) -> Result<Option<Assistant>> {
    let id = new.id;
    let Some(seq) = row_of(conn, &owner, id).await? else { return Ok(None) };
    let version: i64 = sql::scalar("SELECT max(version) + 1 FROM assistant_versions WHERE assistant = $1")
        .bind(seq)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(READING))?;
    write_version(conn, seq, version, new, at).await?;
    point(conn, seq, version).await?;
    one(conn, &owner, id).await
}

pub(super) async fn set_version(
    conn: &mut PgConnection,
    owner: String,
    id: AssistantId,
    version: u32,
    at: Millis,
) -> Result<Option<Assistant>> {
    let Some(seq) = row_of(conn, &owner, id).await? else { return Ok(None) };
    let touched =
        sql::query("UPDATE assistant_versions SET updated_at = $1 WHERE assistant = $2 AND version = $3");
    let touched = touched.bind(at).bind(seq).bind(version).execute(&mut *conn).await;
    if touched.map_err(failed(WRITING))?.rows_affected() == 0 {
        return Ok(None);
    }
    point(conn, seq, version.into()).await?;
    one(conn, &owner, id).await
}

pub(super) async fn one(conn: &mut PgConnection, owner: &str, id: AssistantId) -> Result<Option<Assistant>> {
    let one = format!("{ROWS} AND v.version = a.version WHERE a.owner = $1 AND a.id = $2");
    let found = sql::query(&one).bind(owner).bind(&id.uuid().as_bytes()[..]).fetch_optional(conn).await;
    found.map_err(failed(READING))?.as_ref().map(read).transpose()
}

const SIZES: &str = "SELECT coalesce(sum(octet_length(config) + octet_length(context) + octet_length(metadata)), 0) \
     FROM assistants a JOIN assistant_versions v ON v.assistant = a.seq";

pub(super) async fn versions(
    conn: &mut PgConnection,
    owner: &str,
    id: AssistantId,
) -> Result<Vec<Assistant>> {
    let Some(seq) = row_of(conn, owner, id).await? else { return Ok(Vec::new()) };
    let sizes = format!("{SIZES} WHERE a.seq = ANY($1)");
    check_answer(conn, &sizes, &[seq]).await?;
    let all = format!("{ROWS} WHERE a.seq = $1 ORDER BY v.version DESC");
    let rows = sql::query(&all).bind(seq).fetch_all(conn).await;
    rows.map_err(failed(READING))?.iter().map(read).collect()
}

/// The numbers of those that a query finds, the last made first.
async fn matching(conn: &mut PgConnection, owner: &str, query: &AssistantQuery) -> Result<Vec<i64>> {
    let metadata = if query.metadata.is_empty() { "'{}' AS metadata" } else { "v.metadata" };
    let all = format!(
        "SELECT a.seq, v.graph, v.name, {metadata} FROM assistants a JOIN assistant_versions v \
         ON v.assistant = a.seq AND v.version = a.version WHERE a.owner = $1"
    );
    let mut rows = sql::query(&all).bind(owner).fetch(conn);
    let name = query.name.as_ref().map(|name| name.to_lowercase());
    let mut found: Vec<i64> = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(failed(READING))? {
        let (graph, called): (String, String) = (get(&row, "graph")?, get(&row, "name")?);
        if query.graph.as_ref().is_none_or(|wanted| *wanted == graph)
            && name.as_ref().is_none_or(|name| called.to_lowercase().contains(name))
            && metadata_match(&json::<Metadata>(&row, "metadata")?, &query.metadata)
        {
            found.push(get(&row, "seq")?);
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

pub(super) async fn list(
    conn: &mut PgConnection,
    owner: &str,
    query: &AssistantQuery,
) -> Result<(Vec<Assistant>, u64)> {
    let (chosen, total) = page(matching(conn, owner, query).await?, query.limit, query.offset);
    let these = "AND v.version = a.version WHERE a.seq = ANY($1)";
    check_answer(conn, &format!("{SIZES} {these}"), &chosen).await?;
    let some = format!("{ROWS} {these} ORDER BY a.seq DESC");
    let rows = sql::query(&some).bind(&chosen[..]).fetch_all(conn).await;
    let found = rows.map_err(failed(READING))?.iter().map(read).collect::<Result<_>>()?;
    Ok((found, total))
}

pub(super) async fn remove(conn: &mut PgConnection, owner: String, id: AssistantId) -> Result<bool> {
    let gone = sql::query("DELETE FROM assistants WHERE owner = $1 AND id = $2").bind(owner);
    let gone = gone.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}
