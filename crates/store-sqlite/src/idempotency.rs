//! Idempotent requests.

use crate::{SqliteStore, error::failed, row};
use async_trait::async_trait;
use atoll_store::{
    Attempt, Clash, EXPIRES_AFTER_MS, Idempotency, Millis, REPLIES_PER_OWNER, REPLY_BYTES_PER_OWNER,
    ReplyState, Result, StoreError, StoredReply, Ticket,
};
use sqlx::{SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

const DOING: &str = "writing an idempotency key";

fn attempt(row: &SqliteRow) -> Result<Attempt> {
    let status: Option<u16> = row::get(row, "status")?;
    let body: Option<Vec<u8>> = row::get(row, "body")?;
    Ok(Attempt {
        request_hash: row::bytes32(row, "request_hash")?,
        begun_at: row::get(row, "begun_at")?,
        reply: status.map(|status| StoredReply { status, body }),
    })
}

async fn found(conn: &mut SqliteConnection, owner: &str, key: &str) -> Result<Option<Attempt>> {
    let row = sqlx::query(
        "SELECT request_hash, begun_at, status, body FROM idempotent WHERE owner = ? AND key = ?",
    )
    .bind(owner)
    .bind(key)
    .fetch_optional(conn)
    .await
    .map_err(failed(DOING))?;
    row.as_ref().map(attempt).transpose()
}

async fn begin(
    conn: &mut SqliteConnection,
    owner: String,
    key: String,
    request_hash: [u8; 32],
    now: Millis,
) -> Result<ReplyState> {
    let before = found(conn, &owner, &key).await?;
    if let Some(begun) = before.and_then(|attempt| attempt.standing(request_hash, now)) {
        return Ok(begun);
    }
    let attempt = Uuid::new_v4();
    sqlx::query(
        "INSERT OR REPLACE INTO idempotent (owner, key, request_hash, attempt, begun_at) \
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&owner)
    .bind(&key)
    .bind(&request_hash[..])
    .bind(&attempt.as_bytes()[..])
    .bind(now)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(ReplyState::New(Ticket { owner, key, attempt }))
}

async fn finish(conn: &mut SqliteConnection, ticket: Ticket, reply: StoredReply) -> Result<()> {
    let StoredReply { status, body } = reply.kept();
    let done =
        sqlx::query("UPDATE idempotent SET status = ?, body = ? WHERE owner = ? AND key = ? AND attempt = ?")
            .bind(status)
            .bind(body)
            .bind(&ticket.owner)
            .bind(&ticket.key)
            .bind(&ticket.attempt.as_bytes()[..])
            .execute(&mut *conn)
            .await
            .map_err(failed(DOING))?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Conflict(Clash::Overtaken));
    }
    cap(conn, &ticket.owner).await
}

/// Removes an owner's oldest replies beyond the limits.
async fn cap(conn: &mut SqliteConnection, owner: &str) -> Result<()> {
    const NEWEST: &str = "ORDER BY begun_at DESC, rowid DESC";
    let forget = format!(
        "DELETE FROM idempotent WHERE rowid IN (SELECT rowid FROM idempotent WHERE owner = ?1 \
         AND status IS NOT NULL {NEWEST} LIMIT -1 OFFSET ?2)"
    );
    let empty = format!(
        "UPDATE idempotent SET body = NULL WHERE rowid IN (SELECT rowid FROM (SELECT rowid, \
         sum(length(body)) OVER ({NEWEST}) AS total FROM idempotent \
         WHERE owner = ?1 AND body IS NOT NULL) WHERE total > ?2)"
    );
    for (statement, most) in [(forget, i64::from(REPLIES_PER_OWNER)), (empty, REPLY_BYTES_PER_OWNER as i64)] {
        sqlx::query(&statement).bind(owner).bind(most).execute(&mut *conn).await.map_err(failed(DOING))?;
    }
    Ok(())
}

async fn abandon(conn: &mut SqliteConnection, ticket: Ticket) -> Result<()> {
    sqlx::query("DELETE FROM idempotent WHERE owner = ? AND key = ? AND attempt = ? AND status IS NULL")
        .bind(&ticket.owner)
        .bind(&ticket.key)
        .bind(&ticket.attempt.as_bytes()[..])
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(())
}

async fn sweep(conn: &mut SqliteConnection, until: Millis) -> Result<u64> {
    let gone = sqlx::query("DELETE FROM idempotent WHERE begun_at <= ?")
        .bind(until)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Idempotency for SqliteStore {
    async fn begin_idempotent(
        &self,
        owner: &str,
        key: &str,
        request_hash: [u8; 32],
        now: Millis,
    ) -> Result<ReplyState> {
        let (owner, key) = (owner.to_owned(), key.to_owned());
        self.writer.write(DOING, move |conn| Box::pin(begin(conn, owner, key, request_hash, now))).await
    }

    async fn finish_idempotent(&self, ticket: &Ticket, reply: StoredReply) -> Result<()> {
        let ticket = ticket.clone();
        self.writer.write(DOING, |conn| Box::pin(finish(conn, ticket, reply))).await
    }

    async fn abandon_idempotent(&self, ticket: &Ticket) -> Result<()> {
        let ticket = ticket.clone();
        self.writer.write(DOING, |conn| Box::pin(abandon(conn, ticket))).await
    }

    async fn sweep_idempotent(&self, now: Millis) -> Result<u64> {
        let until = now.saturating_sub(EXPIRES_AFTER_MS);
        self.writer.write(DOING, move |conn| Box::pin(sweep(conn, until))).await
    }
}
