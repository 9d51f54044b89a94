//! Sessions of MCP clients.

use crate::{
    PostgresStore,
    error::failed,
    row,
    sql::{self, get},
};
use async_trait::async_trait;
use atoll_store::{McpSession, McpSessions, Millis, Result};
use sqlx::{PgConnection, postgres::PgRow};

const WRITING: &str = "writing an MCP session";
const READING: &str = "reading MCP sessions";

fn read(row: &PgRow) -> Result<McpSession> {
    Ok(McpSession {
        id: get(row, "id")?,
        holder: get(row, "holder")?,
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        thread: get(row, "thread")?,
        params: get(row, "params")?,
        active_at: get(row, "active_at")?,
    })
}

async fn put(conn: &mut PgConnection, session: McpSession) -> Result<()> {
    let McpSession { id, holder, owner, owner_name, thread, params, active_at } = session;
    sql::query(
        "INSERT INTO mcp_sessions (id, holder, owner, owner_name, thread, params, active_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, \
         owner = excluded.owner, owner_name = excluded.owner_name, thread = excluded.thread, params = excluded.params, \
         active_at = excluded.active_at",
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

async fn touch(conn: &mut PgConnection, ids: Vec<String>, at: Millis) -> Result<()> {
    let touched =
        sql::query("UPDATE mcp_sessions SET active_at = greatest(active_at, $2) WHERE id = ANY($1)");
    touched.bind(ids).bind(at).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

async fn remove(conn: &mut PgConnection, id: String) -> Result<bool> {
    let gone = sql::query("DELETE FROM mcp_sessions WHERE id = $1").bind(id).execute(conn).await;
    Ok(gone.map_err(failed(WRITING))?.rows_affected() > 0)
}

#[async_trait]
impl McpSessions for PostgresStore {
    async fn put_mcp_session(&self, session: McpSession) -> Result<()> {
        self.sessions.write(WRITING, move |conn| Box::pin(put(conn, session))).await
    }

    async fn mcp_session(&self, id: &str) -> Result<Option<McpSession>> {
        let found = sql::query(
            "SELECT id, holder, owner, owner_name, thread, params, active_at FROM mcp_sessions WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(self.readers()?)
        .await
        .map_err(failed(READING))?;
        found.as_ref().map(read).transpose()
    }

    async fn mcp_sessions(&self) -> Result<Vec<McpSession>> {
        let rows = sql::query(
            "SELECT id, holder, owner, owner_name, thread, params, active_at FROM mcp_sessions ORDER BY id",
        );
        let rows = rows.fetch_all(self.readers()?).await.map_err(failed(READING))?;
        rows.iter().map(read).collect()
    }

    async fn touch_mcp_sessions(&self, ids: &[String], at: Millis) -> Result<()> {
        let ids = ids.to_vec();
        self.sessions.write(WRITING, move |conn| Box::pin(touch(conn, ids, at))).await
    }

    async fn remove_mcp_session(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.sessions.write(WRITING, move |conn| Box::pin(remove(conn, id))).await
    }

    async fn count_mcp_sessions(&self, holder: &str) -> Result<(u64, u64)> {
        let counted = sql::query(
            "SELECT count(*) FILTER (WHERE holder = $1) AS own, count(*) AS every FROM mcp_sessions",
        );
        let counted = counted.bind(holder).fetch_one(self.readers()?).await.map_err(failed(READING))?;
        Ok((row::count(&counted, "own")?, row::count(&counted, "every")?))
    }
}
