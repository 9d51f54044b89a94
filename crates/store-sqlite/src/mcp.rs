//! Sessions of MCP clients.

use crate::{SqliteStore, error::failed};
use async_trait::async_trait;
use atoll_store::{McpSession, McpSessions, Millis, Result};
use sqlx::SqliteConnection;

const WRITING: &str = "writing an MCP session";
const READING: &str = "reading MCP sessions";

async fn put(conn: &mut SqliteConnection, session: McpSession) -> Result<()> {
    let McpSession { id, holder, owner, owner_name, thread, params, active_at } = session;
    sqlx::query(
        "INSERT OR REPLACE INTO mcp_sessions (id, holder, owner, owner_name, thread, params, active_at) \
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(holder)
    .bind(owner)
    .bind(owner_name)
    .bind(thread)
    .bind(params)
    .bind(active_at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

async fn touch(conn: &mut SqliteConnection, ids: Vec<String>, at: Millis) -> Result<()> {
    for id in ids {
        let touched = sqlx::query("UPDATE mcp_sessions SET active_at = max(active_at, ?2) WHERE id = ?1");
        touched.bind(id).bind(at).execute(&mut *conn).await.map_err(failed(WRITING))?;
    }
    Ok(())
}

async fn remove(conn: &mut SqliteConnection, id: String) -> Result<bool> {
    let gone = sqlx::query("DELETE FROM mcp_sessions WHERE id = ?").bind(id).execute(conn).await;
    Ok(gone.map_err(failed(WRITING))?.rows_affected() > 0)
}

/// A session's columns.
type Row = (String, String, String, String, Option<String>, String, i64);

fn read((id, holder, owner, owner_name, thread, params, active_at): Row) -> McpSession {
    McpSession { id, holder, owner, owner_name, thread, params, active_at }
}

#[async_trait]
impl McpSessions for SqliteStore {
    async fn put_mcp_session(&self, session: McpSession) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(put(conn, session))).await
    }

    async fn mcp_session(&self, id: &str) -> Result<Option<McpSession>> {
        let found: Option<Row> = sqlx::query_as(
            "SELECT id, holder, owner, owner_name, thread, params, active_at FROM mcp_sessions WHERE id = ?",
        )
        .bind(id)
        .fetch_optional(&self.readers)
        .await
        .map_err(failed(READING))?;
        Ok(found.map(read))
    }

    async fn mcp_sessions(&self) -> Result<Vec<McpSession>> {
        let all: Vec<Row> = sqlx::query_as(
            "SELECT id, holder, owner, owner_name, thread, params, active_at FROM mcp_sessions ORDER BY id",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(failed(READING))?;
        Ok(all.into_iter().map(read).collect())
    }

    async fn touch_mcp_sessions(&self, ids: &[String], at: Millis) -> Result<()> {
        let ids = ids.to_vec();
        self.writer.write(WRITING, move |conn| Box::pin(touch(conn, ids, at))).await
    }

    async fn remove_mcp_session(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.write(WRITING, move |conn| Box::pin(remove(conn, id))).await
    }

    async fn count_mcp_sessions(&self, holder: &str) -> Result<(u64, u64)> {
        let counted =
            sqlx::query_as("SELECT coalesce(sum(holder = ?), 0), count(*) FROM mcp_sessions").bind(holder);
        let (own, all): (i64, i64) = counted.fetch_one(&self.readers).await.map_err(failed(READING))?;
        Ok((own.unsigned_abs(), all.unsigned_abs()))
    }
}
