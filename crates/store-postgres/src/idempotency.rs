//! Idempotent requests.

use crate::{PostgresStore, error::failed, row, sql};
use async_trait::async_trait;
use atoll_store::{
    Attempt, Clash, EXPIRES_AFTER_MS, Idempotency, Millis, REPLIES_PER_OWNER, REPLY_BYTES_PER_OWNER,
    ReplyState, Result, StoreError, StoredReply, Ticket,
};
use sqlx::{PgConnection, postgres::PgRow};
use uuid::Uuid;

const DOING: &str = "writing an idempotency key";

fn attempt(row: &PgRow) -> Result<Attempt> {
    let status: Option<u16> = sql::get(row, "status")?;
    let body: Option<Vec<u8>> = sql::get(row, "body")?;
    Ok(Attempt {
        request_hash: row::bytes32(row, "request_hash")?,
        begun_at: sql::get(row, "begun_at")?,
        reply: status.map(|status| StoredReply { status, body }),
    })
}

async fn found(conn: &mut PgConnection, owner: &str, key: &str) -> Result<Option<Attempt>> {
    let row = sql::query(
        "SELECT request_hash, begun_at, status, body FROM idempotent WHERE owner = $1 AND key = $2",
    )
    .bind(owner)
    .bind(key)
    .fetch_optional(conn)
    .await
    .map_err(failed(DOING))?;
    row.as_ref().map(attempt).transpose()
}

async fn begin(
    conn: &mut PgConnection,
    owner: String,
    key: String,
    request_hash: [u8; 32],
    now: Millis,
) -> Result<ReplyState> {
    let before = found(conn, &owner, &key).await?;
    if let Some(begun) = before.and_then(|attempt| attempt.standing(request_hash, now)) {
        return Ok(begun);
    }
    // Not changed but made anew: its number is that of the newest attempt.
    sql::query("DELETE FROM idempotent WHERE owner = $1 AND key = $2")
        .bind(&owner)
        .bind(&key)
        .execute(&mut *conn)
        .await
        .map_err(failed(DOING))?;
    let attempt = Uuid::new_v4();
    sql::query(
        "INSERT INTO idempotent (owner, key, request_hash, attempt, begun_at) \
         VALUES ($1, $2, $3, $4, $5)",
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

async fn finish(conn: &mut PgConnection, ticket: Ticket, reply: StoredReply) -> Result<()> {
    let StoredReply { status, body } = reply.kept();
    let done = sql::query(
        "UPDATE idempotent SET status = $1, body = $2 WHERE owner = $3 AND key = $4 AND attempt = $5",
    )
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
async fn cap(conn: &mut PgConnection, owner: &str) -> Result<()> {
    const NEWEST: &str = "ORDER BY begun_at DESC, seq DESC";
    let forget = format!(
        "DELETE FROM idempotent WHERE seq IN (SELECT seq FROM idempotent WHERE owner = $1 \
         AND status IS NOT NULL {NEWEST} OFFSET $2)"
    );
    let empty = format!(
        "UPDATE idempotent SET body = NULL WHERE seq IN (SELECT seq FROM (SELECT seq, \
         sum(length(body)) OVER ({NEWEST}) AS total FROM idempotent \
         WHERE owner = $1 AND body IS NOT NULL) AS sizes WHERE total > $2)"
    );
    for (statement, most) in [(forget, i64::from(REPLIES_PER_OWNER)), (empty, REPLY_BYTES_PER_OWNER as i64)] {
        sql::query(&statement).bind(owner).bind(most).execute(&mut *conn).await.map_err(failed(DOING))?;
    }
    Ok(())
}

async fn abandon(conn: &mut PgConnection, ticket: Ticket) -> Result<()> {
    sql::query("DELETE FROM idempotent WHERE owner = $1 AND key = $2 AND attempt = $3 AND status IS NULL")
        .bind(&ticket.owner)
        .bind(&ticket.key)
        .bind(&ticket.attempt.as_bytes()[..])
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(())
}

async fn sweep(conn: &mut PgConnection, until: Millis) -> Result<u64> {
    let gone = sql::query("DELETE FROM idempotent WHERE begun_at <= $1")
        .bind(until)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Idempotency for PostgresStore {
    async fn begin_idempotent(
        &self,
        owner: &str,
        key: &str,
        request_hash: [u8; 32],
        now: Millis,
    ) -> Result<ReplyState> {
        let (owner, key) = (owner.to_owned(), key.to_owned());
        self.sessions.write(DOING, move |conn| Box::pin(begin(conn, owner, key, request_hash, now))).await
    }

    async fn finish_idempotent(&self, ticket: &Ticket, reply: StoredReply) -> Result<()> {
        let ticket = ticket.clone();
        self.sessions.write(DOING, |conn| Box::pin(finish(conn, ticket, reply))).await
    }

    async fn abandon_idempotent(&self, ticket: &Ticket) -> Result<()> {
        let ticket = ticket.clone();
        self.sessions.write(DOING, |conn| Box::pin(abandon(conn, ticket))).await
    }

    async fn sweep_idempotent(&self, now: Millis) -> Result<u64> {
        let until = now.saturating_sub(EXPIRES_AFTER_MS);
        self.sessions.write(DOING, move |conn| Box::pin(sweep(conn, until))).await
    }
}
