//! Sessions of the console.

use crate::{PostgresStore, error::failed, row, sql};
use async_trait::async_trait;
use atoll_store::{
    ApiKey, CONSOLE_SESSIONS_PER_KEY, ConsoleSession, ConsoleSessions, KeyHash, KeyId, Millis, Result,
    StoreError, Thing,
};
use sqlx::PgConnection;

const WRITING: &str = "writing a console session";
const READING: &str = "finding a console session";

async fn insert(conn: &mut PgConnection, session: ConsoleSession) -> Result<()> {
    let ConsoleSession { hash: KeyHash(hash), key, created_at, expires_at } = session;
    let key = key.uuid().into_bytes().to_vec();
    let known: bool = sql::scalar("SELECT EXISTS (SELECT 1 FROM keys WHERE id = $1)")
        .bind(&key)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    if !known {
        return Err(StoreError::NotFound(Thing::Key));
    }
    let over = sql::query("DELETE FROM console_sessions WHERE expires_at <= $1").bind(created_at);
    over.execute(&mut *conn).await.map_err(failed(WRITING))?;
    sql::query("INSERT INTO console_sessions (hash, key, created_at, expires_at) VALUES ($1, $2, $3, $4)")
        .bind(&hash[..])
        .bind(&key)
        .bind(created_at)
        .bind(expires_at)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    sql::query(
        "DELETE FROM console_sessions WHERE hash IN (SELECT hash FROM console_sessions WHERE key = $1 \
         ORDER BY created_at DESC, hash = $2 DESC OFFSET $3)",
    )
    .bind(&key)
    .bind(&hash[..])
    .bind(i64::try_from(CONSOLE_SESSIONS_PER_KEY).unwrap_or(i64::MAX))
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

async fn remove(conn: &mut PgConnection, KeyHash(hash): KeyHash) -> Result<bool> {
    let gone = sql::query("DELETE FROM console_sessions WHERE hash = $1").bind(&hash[..]).execute(conn).await;
    Ok(gone.map_err(failed(WRITING))?.rows_affected() > 0)
}

#[async_trait]
impl ConsoleSessions for PostgresStore {
    async fn insert_console_session(&self, session: ConsoleSession) -> Result<()> {
        self.sessions.write(WRITING, |conn| Box::pin(insert(conn, session))).await
    }

    async fn console_session(&self, hash: KeyHash, now: Millis) -> Result<Option<(ConsoleSession, ApiKey)>> {
        let found = sql::query(
            "SELECT keys.*, console_sessions.created_at AS begun_at, console_sessions.expires_at AS ends_at \
             FROM console_sessions JOIN keys ON keys.id = console_sessions.key \
             WHERE console_sessions.hash = $1 AND console_sessions.expires_at > $2",
        )
        .bind(&hash.0[..])
        .bind(now)
        .fetch_optional(self.readers()?)
        .await
        .map_err(failed(READING))?;
        let Some(found) = found else { return Ok(None) };
        let session = ConsoleSession {
            hash,
            key: KeyId::from_uuid(row::uuid(&found, "id")?),
            created_at: sql::get(&found, "begun_at")?,
            expires_at: sql::get(&found, "ends_at")?,
        };
        let key = row::key(&found)?;
        Ok(key.is_usable(now).then_some((session, key)))
    }

    async fn remove_console_session(&self, hash: KeyHash) -> Result<bool> {
        let gone = self.sessions.write(WRITING, move |conn| Box::pin(remove(conn, hash))).await?;
        Ok(gone)
    }
}
