//! Lists. The page is found by its row numbers alone and only then read, so that sorting ten thousand
//! records does not carry their wide columns about.

use crate::{
    error::failed,
    row::{self, SANDBOX},
};
use atoll_store::{ListQuery, Needle, Page, Result, SortBy, Status};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};
use std::collections::BTreeMap;

const DOING: &str = "listing sandboxes";

/// One page, all of it from one moment: both reads are in one transaction.
pub(crate) async fn page(readers: &SqlitePool, query: &ListQuery) -> Result<Page> {
    let mut tx = readers.begin().await.map_err(failed(DOING))?;
    let status_counts = counts(&mut tx, query).await?;
    let mut sql = items(query);
    let rows = sql.build().fetch_all(&mut *tx).await.map_err(failed(DOING))?;
    tx.commit().await.map_err(failed(DOING))?;
    let items = rows.iter().map(row::sandbox).collect::<Result<_>>()?;
    Ok(Page { items, total: query.total(&status_counts), status_counts })
}

async fn counts(conn: &mut SqliteConnection, query: &ListQuery) -> Result<BTreeMap<Status, u64>> {
    let mut sql = QueryBuilder::new("SELECT status, count(*) AS count FROM sandboxes WHERE TRUE");
    filter(&mut sql, query);
    sql.push(" GROUP BY status");
    let rows = sql.build().fetch_all(conn).await.map_err(failed(DOING))?;
    rows.iter().map(|row| Ok((row::status(row)?, row::count(row, "count")?))).collect()
}

fn items(query: &ListQuery) -> QueryBuilder<'_, Sqlite> {
    let (column, way) = (column(query.sort_by), if query.descending { "DESC" } else { "ASC" });
    let order = format!(" ORDER BY {column} {way}, id {way}");
    let mut sql = QueryBuilder::new(format!(
        "SELECT {SANDBOX} FROM sandboxes WHERE seq IN (SELECT seq FROM sandboxes WHERE TRUE"
    ));
    filter(&mut sql, query);
    if !query.statuses.is_empty() {
        sql.push(" AND status IN (");
        let mut list = sql.separated(", ");
        for status in &query.statuses {
            list.push_bind(status.as_str());
        }
        sql.push(")");
    }
    sql.push(&order).push(" LIMIT ").push_bind(query.limit);
    sql.push(" OFFSET ").push_bind(i64::try_from(query.offset).unwrap_or(i64::MAX));
    sql.push(")").push(order);
    sql
}

fn column(sort: SortBy) -> &'static str {
    match sort {
        SortBy::CreatedAt => "created_at",
        SortBy::LastActivityAt => "last_activity_at",
        SortBy::Status => "status",
        SortBy::Image => "image",
        SortBy::ExecCount => "exec_count",
    }
}

/// Everything but the statuses.
fn filter<'q>(sql: &mut QueryBuilder<'q, Sqlite>, query: &'q ListQuery) {
    let ListQuery {
        owner,
        statuses: _,
        images,
        session_key,
        labels,
        label,
        text,
        sort_by: _,
        descending: _,
        offset: _,
        limit: _,
        include_destroyed: _,
        with_lifetime,
    } = query;
    for (column, wanted) in [("owner", owner), ("session_key", session_key)] {
        if let Some(wanted) = wanted {
            sql.push(format_args!(" AND {column} = ")).push_bind(wanted);
        }
    }
    if !images.is_empty() {
        sql.push(" AND image IN (");
        let mut list = sql.separated(", ");
        for image in images {
            list.push_bind(image);
        }
        sql.push(")");
    }
    if !query.shows_destroyed() {
        sql.push(" AND status <> 'destroyed'");
    }
    if *with_lifetime {
        sql.push(" AND max_lifetime_seconds IS NOT NULL");
    }
    for (name, value) in labels {
        sql.push(" AND seq IN (SELECT sandbox FROM labels WHERE name = ").push_bind(name);
        sql.push(" AND value = ").push_bind(value).push(")");
    }
    if let Some(name) = label {
        sql.push(" AND seq IN (SELECT sandbox FROM labels WHERE name = ").push_bind(name).push(")");
    }
    if let Some(Needle { text, id }) = text.as_deref().and_then(Needle::new) {
        // Not LIKE: here no character of the text means anything but itself.
        sql.push(" AND (instr(search, ").push_bind(text).push(")");
        if let Some(id) = id {
            sql.push(" OR instr(lower(hex(id)), ").push_bind(id).push(")");
        }
        sql.push(")");
    }
}
