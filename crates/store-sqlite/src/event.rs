//! Events.
//!
//! A change of a sandbox's status and its event are one transaction: no event reports a change that did not
//! happen, and no change happens without its event. Ids are rows of the database, so they survive a restart.

use crate::{SqliteStore, error::failed, row, write::number};
use async_trait::async_trait;
use atoll_store::{EVENTS_KEPT, EventPage, EventQuery, Events, NewEvent, Result, StoreError};
use serde_json::{Value, json};
use sqlx::{QueryBuilder, SqliteConnection};

const DOING: &str = "writing an event";
const READING: &str = "reading events";

/// Appends events in one statement, removes the oldest that are too many, and returns the newest id, where
/// one was added.
pub(crate) async fn append(conn: &mut SqliteConnection, events: &[NewEvent]) -> Result<Option<u64>> {
    if events.is_empty() {
        return Ok(None);
    }
    let row = |event: &NewEvent| {
        let NewEvent { at, owner, sandbox, kind, reason, data } = event;
        json!([at, owner, sandbox, kind, reason, data])
    };
    let rows: Vec<Value> = events.iter().map(row).collect();
    let added = sqlx::query(
        "INSERT INTO events (at, owner, sandbox, kind, reason, data) SELECT value ->> 0, value ->> 1, \
         unhex(value ->> 2), value ->> 3, value ->> 4, value ->> 5 FROM json_each(?) ORDER BY key",
    )
    .bind(Value::Array(rows).to_string())
    .execute(&mut *conn)
    .await
    .map_err(failed(DOING))?;
    let newest = added.last_insert_rowid();
    if newest > number(EVENTS_KEPT) {
        sqlx::query("DELETE FROM events WHERE id <= ?")
            .bind(newest - number(EVENTS_KEPT))
            .execute(conn)
            .await
            .map_err(failed(DOING))?;
    }
    Ok(Some(newest.unsigned_abs()))
}

#[async_trait]
impl Events for SqliteStore {
    async fn append_events(&self, events: Vec<NewEvent>) -> Result<()> {
        let newest = self
            .writer
            .write(DOING, move |conn| Box::pin(async move { append(conn, &events).await }))
            .await?;
        self.tell(newest);
        Ok(())
    }

    async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        let mut tx = self.readers.begin().await.map_err(failed(READING))?;
        // The last one is never removed, so there is one if there ever was.
        let (oldest, newest): (i64, i64) = sqlx::query_as(
            "SELECT coalesce((SELECT min(id) FROM events), 1), coalesce((SELECT max(id) FROM events), 0)",
        )
        .fetch_one(&mut *tx)
        .await
        .map_err(failed(READING))?;
        let after = query.after.map_or(oldest - 1, number);
        let EventQuery { after: _, sandbox, owner, kinds, limit } = query;
        let mut sql = QueryBuilder::new("SELECT * FROM events WHERE id > ");
        sql.push_bind(after);
        if let Some(id) = sandbox {
            sql.push(" AND sandbox = ").push_bind(id.uuid().as_bytes().to_vec());
        }
        if let Some(owner) = owner {
            sql.push(" AND owner = ").push_bind(owner);
        }
        if let Some(kinds) = kinds {
            sql.push(" AND kind IN (");
            let mut list = sql.separated(", ");
            for kind in kinds {
                list.push_bind(kind.as_str());
            }
            sql.push(")");
        }
        sql.push(" ORDER BY id LIMIT ").push_bind(limit);
        let rows = sql.build().fetch_all(&mut *tx).await.map_err(failed(READING))?;
        tx.commit().await.map_err(failed(READING))?;
        let items = rows.iter().map(row::event).collect::<Result<_>>()?;
        Ok(EventPage { items, missed: after + 1 < oldest || after > newest, newest: newest.unsigned_abs() })
    }

    async fn await_event(&self, after: u64) -> Result<()> {
        let mut news = self.news.subscribe();
        // Before the first event of this process only the database knows the newest.
        let newest: i64 = sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM events")
            .fetch_one(&self.readers)
            .await
            .map_err(failed(READING))?;
        if newest.unsigned_abs() > after {
            return Ok(());
        }
        let waited = news.wait_for(|newest| *newest > after).await;
        waited.map(|_| ()).map_err(|e| StoreError::Internal(READING, e.into()))
    }
}
