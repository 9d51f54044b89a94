//! Items that owners store beside their conversations.

use super::{READING, WRITING, check_answer, page, within};
use crate::{
    error::failed,
    row::{count, json},
    sql::{self, get},
    write,
};
use atoll_store::{Bound, MOST_ITEM_BYTES, MOST_ITEMS, Result};
use atoll_types::conversation::{ItemQuery, Metadata, NamespaceQuery, StoreItem, metadata_match};
use futures_util::TryStreamExt;
use sqlx::{PgConnection, postgres::PgRow};

const ROWS: &str = "SELECT namespace, key, value, created_at, updated_at FROM conversation_items";

fn read(row: &PgRow) -> Result<StoreItem> {
    Ok(StoreItem {
        namespace: json(row, "namespace")?,
        key: get(row, "key")?,
        value: json(row, "value")?,
        created_at: get(row, "created_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

/// Refuses an item that would be more than its owner may store; one that it replaces is not counted.
async fn check_room(
    conn: &mut PgConnection,
    owner: &str,
    (namespace, key): (&str, &str),
    bytes: usize,
) -> Result<()> {
    let others = "SELECT count(*) AS items, coalesce(sum(octet_length(value)), 0) AS bytes FROM conversation_items \
                  WHERE owner = $1 AND NOT (namespace = $2 AND key = $3)";
    let others = sql::query(others).bind(owner).bind(namespace).bind(key).fetch_one(conn).await;
    let others = others.map_err(failed(READING))?;
    within(Bound::Items, count(&others, "items")? + 1, MOST_ITEMS)?;
    within(Bound::ItemBytes, count(&others, "bytes")? + bytes as u64, MOST_ITEM_BYTES)
}

pub(super) async fn put(conn: &mut PgConnection, owner: String, item: StoreItem) -> Result<()> {
    let StoreItem { namespace, key, value, created_at, updated_at } = item;
    let (namespace, value) = (write::json(&namespace)?, write::json(&value)?);
    check_room(&mut *conn, &owner, (&namespace, &key), value.len()).await?;
    sql::query(
        "INSERT INTO conversation_items (owner, namespace, key, value, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (owner, digest(namespace), digest(key)) \
         DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
    )
    .bind(owner)
    .bind(namespace)
    .bind(key)
    .bind(value)
    .bind(created_at)
    .bind(updated_at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

pub(super) async fn one(
    conn: &mut PgConnection,
    owner: &str,
    namespace: &[String],
    key: &str,
) -> Result<Option<StoreItem>> {
    let one =
        format!("{ROWS} WHERE owner = $1 AND digest(namespace) = digest($2) AND digest(key) = digest($3)");
    let found = sql::query(&one).bind(owner).bind(write::json(&namespace)?).bind(key);
    found.fetch_optional(conn).await.map_err(failed(READING))?.as_ref().map(read).transpose()
}

pub(super) async fn remove(
    conn: &mut PgConnection,
    owner: String,
    namespace: Vec<String>,
    key: String,
) -> Result<bool> {
    let gone = "DELETE FROM conversation_items WHERE owner = $1 AND digest(namespace) = digest($2) AND digest(key) = digest($3)";
    let gone = sql::query(gone).bind(owner).bind(write::json(&namespace)?).bind(key).execute(conn).await;
    Ok(gone.map_err(failed(WRITING))?.rows_affected() > 0)
}

/// The numbers of those below a prefix, the last put first.
async fn below(conn: &mut PgConnection, owner: &str, prefix: &[String]) -> Result<Vec<i64>> {
    let all = "SELECT seq, namespace, updated_at FROM conversation_items WHERE owner = $1";
    let mut rows = sql::query(all).bind(owner).fetch(conn);
    let mut found: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(failed(READING))? {
        if json::<Vec<String>>(&row, "namespace")?.starts_with(prefix) {
            found.push((get(&row, "updated_at")?, get(&row, "seq")?));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found.into_iter().map(|(_, seq)| seq).collect())
}

/// The first ones whose value is as a query wants it, as many as it needs.
async fn matching(conn: &mut PgConnection, all: Vec<i64>, query: &ItemQuery) -> Result<Vec<i64>> {
    let text = query.text.as_ref().map(|text| text.to_lowercase());
    if query.filter.is_empty() && text.is_none() {
        return Ok(all);
    }
    let enough = query.limit as usize + query.offset as usize;
    let mut found = Vec::new();
    for seq in all {
        if found.len() >= enough {
            break;
        }
        let one = sql::query("SELECT value FROM conversation_items WHERE seq = $1").bind(seq);
        // One that was removed meanwhile is not found.
        let Some(row) = one.fetch_optional(&mut *conn).await.map_err(failed(READING))? else { continue };
        let says =
            |text: &String| get::<String>(&row, "value").map(|value| value.to_lowercase().contains(text));
        if text.as_ref().map_or(Ok(true), says)?
            && metadata_match(&json::<Metadata>(&row, "value")?, &query.filter)
        {
            found.push(seq);
        }
    }
    Ok(found)
}

pub(super) async fn list(conn: &mut PgConnection, owner: &str, query: &ItemQuery) -> Result<Vec<StoreItem>> {
    let all = below(conn, owner, &query.prefix).await?;
    let (chosen, _) = page(matching(conn, all, query).await?, query.limit, query.offset);
    let sizes = "SELECT coalesce(sum(octet_length(value)), 0) FROM conversation_items \
                 WHERE seq = ANY($1)";
    check_answer(conn, sizes, &chosen).await?;
    let some = format!("{ROWS} WHERE seq = ANY($1) ORDER BY updated_at DESC, seq DESC");
    let rows = sql::query(&some).bind(&chosen[..]).fetch_all(conn).await;
    rows.map_err(failed(READING))?.iter().map(read).collect()
}

/// Whether words fit a pattern of the same length, in which `*` is any.
fn fits(words: &[String], pattern: &[String]) -> bool {
    words.iter().zip(pattern).all(|(word, wanted)| wanted == "*" || word == wanted)
}

pub(super) async fn namespaces(
    conn: &mut PgConnection,
    owner: &str,
    query: &NamespaceQuery,
) -> Result<Vec<Vec<String>>> {
    let NamespaceQuery { prefix, suffix, depth, limit, offset } = query;
    let all = "SELECT DISTINCT namespace FROM conversation_items WHERE owner = $1";
    let rows = sql::query(all).bind(owner).fetch_all(conn).await.map_err(failed(READING))?;
    let mut found: Vec<Vec<String>> = rows.iter().map(|row| json(row, "namespace")).collect::<Result<_>>()?;
    found.retain(|words| {
        let ends = words.len().checked_sub(suffix.len()).map(|at| &words[at..]);
        words.len() >= prefix.len() && fits(words, prefix) && ends.is_some_and(|ends| fits(ends, suffix))
    });
    if let Some(depth) = depth {
        found.iter_mut().for_each(|words| words.truncate(*depth as usize));
    }
    found.sort();
    found.dedup();
    Ok(page(found, *limit, *offset).0)
}
