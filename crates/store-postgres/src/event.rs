//! Events.
//!
//! A change of a sandbox's status and its event are one transaction: no event reports a change that did not
//! happen, and no change happens without its event. Ids are rows of the database, so they survive a restart.

use crate::{
    PostgresStore,
    error::failed,
    lock::EVENTS,
    row,
    sql::{self, Builder},
    write::number,
};
use async_trait::async_trait;
use atoll_store::{EVENTS_KEPT, EventPage, EventQuery, Events, NewEvent, Result, SandboxId, StoreError};
use sqlx::PgConnection;

const DOING: &str = "writing an event";
const READING: &str = "reading events";

/// Appends events in one statement, removes the oldest that are too many, and returns the newest id, where
/// one was added.
pub(crate) async fn append(conn: &mut PgConnection, events: &[NewEvent]) -> Result<Option<u64>> {
    if events.is_empty() {
        return Ok(None);
    }
    // Held until the transaction ends, so that numbers become visible in their order. By itself: a statement sees what was
    // committed before it began.
    sql::query("SELECT pg_advisory_xact_lock($1)")
        .bind(EVENTS)
        .execute(&mut *conn)
        .await
        .map_err(failed(DOING))?;
    let bytes = |id: &SandboxId| id.uuid().as_bytes().to_vec();
    let newest: Option<i64> = sql::scalar(
        "WITH added AS (INSERT INTO events (id, at, owner, sandbox, kind, reason, data) \
         SELECT n + coalesce((SELECT max(id) FROM events), 0), at, owner, sandbox, kind, reason, data \
         FROM unnest($1, $2, $3, $4, $5, $6) WITH ORDINALITY AS e (at, owner, sandbox, kind, reason, data, n) \
         RETURNING id) SELECT max(id) FROM added",
    )
    .bind(events.iter().map(|event| event.at).collect::<Vec<i64>>())
    .bind(events.iter().map(|event| event.owner.clone()).collect::<Vec<String>>())
    .bind(events.iter().map(|event| event.sandbox.as_ref().map(bytes)).collect::<Vec<Option<Vec<u8>>>>())
    .bind(events.iter().map(|event| event.kind.to_string()).collect::<Vec<String>>())
    .bind(events.iter().map(|event| event.reason.clone()).collect::<Vec<Option<String>>>())
    .bind(events.iter().map(|event| event.data.clone()).collect::<Vec<String>>())
    .fetch_one(&mut *conn)
    .await
    .map_err(failed(DOING))?;
    let newest = newest.unwrap_or_default();
    if newest > number(EVENTS_KEPT) {
        sql::query("DELETE FROM events WHERE id <= $1")
            .bind(newest - number(EVENTS_KEPT))
            .execute(conn)
            .await
            .map_err(failed(DOING))?;
    }
    Ok(Some(newest.unsigned_abs()))
}

#[async_trait]
impl Events for PostgresStore {
    async fn append_events(&self, events: Vec<NewEvent>) -> Result<()> {
        let newest = self
            .sessions
            .write(DOING, move |conn| Box::pin(async move { append(conn, &events).await }))
            .await?;
        self.tell(newest);
        Ok(())
    }

    async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        let mut tx = self.readers()?.begin().await.map_err(failed(READING))?;
        // The last one is never removed, so there is one if there ever was.
        let ends = sql::query(
            "SELECT coalesce((SELECT min(id) FROM events), 1) AS oldest, \
             coalesce((SELECT max(id) FROM events), 0) AS newest",
        );
        let ends = ends.fetch_one(&mut *tx).await.map_err(failed(READING))?;
        let (oldest, newest): (i64, i64) = (sql::get(&ends, "oldest")?, sql::get(&ends, "newest")?);
        let after = query.after.map_or(oldest - 1, number);
        let EventQuery { after: _, sandbox, owner, kinds, limit } = query;
        let mut page = Builder::new("SELECT * FROM events WHERE id > ");
        page.push_bind(after);
        if let Some(id) = sandbox {
            page.push(" AND sandbox = ").push_bind(id.uuid().as_bytes().to_vec());
        }
        if let Some(owner) = owner {
            page.push(" AND owner = ").push_bind(owner);
        }
        if let Some(kinds) = kinds {
            let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            page.push(" AND kind IN (SELECT unnest(").push_bind(names).push("))");
        }
        page.push(" ORDER BY id LIMIT ").push_bind(limit);
        let rows = page.query().fetch_all(&mut *tx).await.map_err(failed(READING))?;
        tx.commit().await.map_err(failed(READING))?;
        let items = rows.iter().map(row::event).collect::<Result<_>>()?;
        Ok(EventPage { items, missed: after + 1 < oldest || after > newest, newest: newest.unsigned_abs() })
    }

    async fn await_event(&self, after: u64) -> Result<()> {
        let mut news = self.news.subscribe();
        // Before the first event of this process only the database knows the newest.
        let newest: i64 = sql::scalar("SELECT coalesce(max(id), 0) FROM events")
            .fetch_one(self.readers()?)
            .await
            .map_err(failed(READING))?;
        if newest.unsigned_abs() > after {
            return Ok(());
        }
        let waited = news.wait_for(|newest| *newest > after).await;
        waited.map(|_| ()).map_err(|e| StoreError::Internal(READING, e.into()))
    }
}
