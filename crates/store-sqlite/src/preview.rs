//! Preview tokens. Removing one waits for the disk.

use crate::{SqliteStore, error::failed, row};
use async_trait::async_trait;
use atoll_store::{
    Bound, MOST_PREVIEW_TOKENS, Millis, PreviewTokenId, PreviewTokenRecord, PreviewTokens, Result, SandboxId,
    StoreError, Thing,
};
use sqlx::SqliteConnection;

const WRITING: &str = "writing a preview token";
const READING: &str = "reading preview tokens";

/// Those of a sandbox that are valid.
const VALID: &str =
    "FROM preview_tokens WHERE sandbox = (SELECT seq FROM sandboxes WHERE id = ?) AND expires_at > ?";

async fn insert(conn: &mut SqliteConnection, token: PreviewTokenRecord) -> Result<()> {
    let PreviewTokenRecord { id, sandbox, port, created_at, expires_at } = token;
    let over = sqlx::query("DELETE FROM preview_tokens WHERE expires_at <= ?").bind(created_at);
    over.execute(&mut *conn).await.map_err(failed(WRITING))?;
    let have: u32 = sqlx::query_scalar(&format!("SELECT count(*) {VALID}"))
        .bind(&sandbox.uuid().as_bytes()[..])
        .bind(created_at)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    if have >= MOST_PREVIEW_TOKENS {
        return Err(StoreError::Beyond(Bound::PreviewTokens));
    }
    let inserted = sqlx::query(
        "INSERT INTO preview_tokens (id, sandbox, port, created_at, expires_at) \
         SELECT ?, seq, ?, ?, ? FROM sandboxes WHERE id = ? AND status <> 'destroyed'",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(port)
    .bind(created_at)
    .bind(expires_at)
    .bind(&sandbox.uuid().as_bytes()[..])
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    if inserted.rows_affected() == 0 { Err(StoreError::NotFound(Thing::Sandbox)) } else { Ok(()) }
}

async fn remove(conn: &mut SqliteConnection, sandbox: SandboxId, id: PreviewTokenId) -> Result<bool> {
    let gone = sqlx::query(
        "DELETE FROM preview_tokens WHERE id = ? AND sandbox = (SELECT seq FROM sandboxes WHERE id = ?)",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(&sandbox.uuid().as_bytes()[..])
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}

#[async_trait]
impl PreviewTokens for SqliteStore {
    async fn insert_preview_token(&self, token: PreviewTokenRecord) -> Result<()> {
        self.writer.write(WRITING, |conn| Box::pin(insert(conn, token))).await
    }

    async fn preview_token(
        &self,
        sandbox: SandboxId,
        id: PreviewTokenId,
        now: Millis,
    ) -> Result<Option<PreviewTokenRecord>> {
        let found = sqlx::query(&format!("SELECT * {VALID} AND id = ?"))
            .bind(&sandbox.uuid().as_bytes()[..])
            .bind(now)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(failed(READING))?;
        found.map(|found| row::preview_token(sandbox, &found)).transpose()
    }

    async fn preview_tokens(&self, sandbox: SandboxId, now: Millis) -> Result<Vec<PreviewTokenRecord>> {
        let rows = sqlx::query(&format!("SELECT * {VALID} ORDER BY created_at DESC, id"))
            .bind(&sandbox.uuid().as_bytes()[..])
            .bind(now)
            .fetch_all(&self.readers)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(|found| row::preview_token(sandbox, found)).collect()
    }

    async fn remove_preview_token(&self, sandbox: SandboxId, id: PreviewTokenId) -> Result<bool> {
        let gone = self.writer.write(WRITING, move |conn| Box::pin(remove(conn, sandbox, id))).await?;
        self.reach_disk().await?;
        Ok(gone)
    }
}
