//! Tool sessions, their threads and their exports.

use crate::{SqliteStore, error::failed, row, write::number};
use async_trait::async_trait;
use atoll_store::{
    Millis, Result, SessionLimits, SessionSlot, StoreError, Thing, ToolExport, ToolSession, ToolSessionId,
    ToolSessions, ToolStatus, ToolThread,
};
use atoll_types::KernelId;
use sqlx::SqliteConnection;

const WRITING: &str = "writing a tool session";
const READING: &str = "reading tool sessions";

const SESSION: &str = "SELECT s.id, t.owner, s.owner_name, t.thread, s.sandbox, s.kernel, s.language, s.dependencies, \
     s.status, s.reason, s.created_at, s.active_at FROM tool_sessions s JOIN tool_threads t ON t.seq = s.thread";

/// The row of a thread, which is made if it is new; its last use is now.
async fn thread(conn: &mut SqliteConnection, owner: &str, thread: &str, at: Millis) -> Result<i64> {
    sqlx::query_scalar(
        "INSERT INTO tool_threads (owner, thread, created_at, active_at) VALUES (?1, ?2, ?3, ?3) \
         ON CONFLICT (owner, thread) DO UPDATE SET active_at = max(active_at, ?3) RETURNING seq",
    )
    .bind(owner)
    .bind(thread)
    .bind(at)
    .fetch_one(conn)
    .await
    .map_err(failed(WRITING))
}

async fn slot(
    conn: &mut SqliteConnection,
    session: &ToolSession,
    limits: SessionLimits,
) -> Result<SessionSlot> {
    let (of_owner, of_thread): (i64, i64) = sqlx::query_as(
        "SELECT count(*), coalesce(sum(t.thread = ?2), 0) FROM tool_sessions s JOIN tool_threads t ON t.seq = s.thread \
         WHERE t.owner = ?1 AND s.status <> 'dead'",
    )
    .bind(&session.owner)
    .bind(&session.thread)
    .fetch_one(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(match limits {
        SessionLimits { of_thread: most, .. } if of_thread >= most.into() => SessionSlot::ThreadFull,
        SessionLimits { of_owner: most, .. } if of_owner >= most.into() => SessionSlot::Full,
        SessionLimits { .. } => SessionSlot::Taken,
    })
}

async fn insert(
    conn: &mut SqliteConnection,
    session: ToolSession,
    limits: SessionLimits,
) -> Result<SessionSlot> {
    let slot = slot(conn, &session, limits).await?;
    if slot != SessionSlot::Taken {
        return Ok(slot);
    }
    #[rustfmt::skip] // One a line would be longer than the rest.
    let ToolSession {
        id: ToolSessionId(id), owner, owner_name, thread: name, sandbox, kernel, language, dependencies, status,
        reason, created_at, active_at,
    } = session;
    let thread = thread(conn, &owner, &name, active_at).await?;
    let dependencies =
        serde_json::to_string(&dependencies).map_err(|e| StoreError::Internal(WRITING, e.into()))?;
    sqlx::query(
        "INSERT INTO tool_sessions (id, thread, owner_name, sandbox, kernel, language, dependencies, status, reason, \
         created_at, active_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(thread)
    .bind(owner_name)
    .bind(&sandbox.uuid().as_bytes()[..])
    .bind(kernel.map(|id| id.uuid().as_bytes().to_vec()))
    .bind(language)
    .bind(dependencies)
    .bind(status.as_str())
    .bind(reason)
    .bind(created_at)
    .bind(active_at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(SessionSlot::Taken)
}

async fn set(
    conn: &mut SqliteConnection,
    ToolSessionId(id): ToolSessionId,
    status: ToolStatus,
    reason: Option<String>,
) -> Result<bool> {
    let done = sqlx::query("UPDATE tool_sessions SET status = ?, reason = ? WHERE id = ?")
        .bind(status.as_str())
        .bind(reason)
        .bind(id)
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(done.rows_affected() > 0)
}

async fn start(
    conn: &mut SqliteConnection,
    ToolSessionId(id): ToolSessionId,
    kernel: KernelId,
) -> Result<bool> {
    let done =
        sqlx::query("UPDATE tool_sessions SET kernel = ?, status = 'running', reason = NULL WHERE id = ?")
            .bind(&kernel.uuid().as_bytes()[..])
            .bind(id)
            .execute(conn)
            .await
            .map_err(failed(WRITING))?;
    Ok(done.rows_affected() > 0)
}

async fn touch(conn: &mut SqliteConnection, ToolSessionId(id): ToolSessionId, at: Millis) -> Result<()> {
    for statement in [
        "UPDATE tool_sessions SET active_at = max(active_at, ?2) WHERE id = ?1",
        "UPDATE tool_threads SET active_at = max(active_at, ?2) \
         WHERE seq = (SELECT thread FROM tool_sessions WHERE id = ?1)",
    ] {
        sqlx::query(statement).bind(id).bind(at).execute(&mut *conn).await.map_err(failed(WRITING))?;
    }
    Ok(())
}

async fn remove(conn: &mut SqliteConnection, ToolSessionId(id): ToolSessionId) -> Result<bool> {
    let gone = sqlx::query("DELETE FROM tool_sessions WHERE id = ?")
        .bind(id)
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}

async fn remove_thread(conn: &mut SqliteConnection, owner: String, thread: String) -> Result<bool> {
    let gone = sqlx::query("DELETE FROM tool_threads WHERE owner = ? AND thread = ?")
        .bind(owner)
        .bind(thread)
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}

async fn export(conn: &mut SqliteConnection, export: ToolExport) -> Result<()> {
    let ToolExport { session: ToolSessionId(session), path, folder, size, exported_at } = export;
    let done = sqlx::query(
        "INSERT OR REPLACE INTO tool_exports (session, path, folder, size, exported_at) \
         SELECT id, ?2, ?3, ?4, ?5 FROM tool_sessions WHERE id = ?1",
    )
    .bind(session)
    .bind(path)
    .bind(folder)
    .bind(size.map(number))
    .bind(exported_at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    if done.rows_affected() > 0 { Ok(()) } else { Err(StoreError::NotFound(Thing::Session)) }
}

#[async_trait]
impl ToolSessions for SqliteStore {
    async fn insert_tool_session(&self, session: ToolSession, limits: SessionLimits) -> Result<SessionSlot> {
        self.writer.write(WRITING, move |conn| Box::pin(insert(conn, session, limits))).await
    }

    async fn tool_session(&self, ToolSessionId(id): ToolSessionId) -> Result<Option<ToolSession>> {
        let found = sqlx::query(&format!("{SESSION} WHERE s.id = ?"))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed(READING))?;
        found.as_ref().map(row::tool_session).transpose()
    }

    async fn tool_sessions(&self, of: Option<(&str, &str)>) -> Result<Vec<ToolSession>> {
        let rows = sqlx::query(&format!(
            "{SESSION} WHERE ?1 IS NULL OR (t.owner = ?1 AND t.thread = ?2) ORDER BY s.created_at, s.rowid"
        ))
        .bind(of.map(|(owner, _)| owner))
        .bind(of.map(|(_, thread)| thread))
        .fetch_all(&self.readers)
        .await
        .map_err(failed(READING))?;
        rows.iter().map(row::tool_session).collect()
    }

    async fn set_tool_session(
        &self,
        id: ToolSessionId,
        status: ToolStatus,
        reason: Option<&str>,
    ) -> Result<bool> {
        let reason = reason.map(str::to_owned);
        self.writer.write(WRITING, move |conn| Box::pin(set(conn, id, status, reason))).await
    }

    async fn start_tool_session(&self, id: ToolSessionId, kernel: KernelId) -> Result<bool> {
        self.writer.write(WRITING, move |conn| Box::pin(start(conn, id, kernel))).await
    }

    async fn touch_tool_session(&self, id: ToolSessionId, at: Millis) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(touch(conn, id, at))).await
    }

    async fn remove_tool_session(&self, id: ToolSessionId) -> Result<bool> {
        self.writer.write(WRITING, move |conn| Box::pin(remove(conn, id))).await
    }

    async fn touch_tool_thread(&self, owner: &str, name: &str, at: Millis) -> Result<()> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        let work = async move |conn: &mut SqliteConnection| thread(conn, &owner, &name, at).await.map(drop);
        self.writer.write(WRITING, move |conn| Box::pin(async move { work(conn).await })).await
    }

    async fn tool_threads(&self) -> Result<Vec<ToolThread>> {
        let rows = sqlx::query(
            "SELECT owner, thread, created_at, active_at, \
             (SELECT count(*) FROM tool_sessions s WHERE s.thread = t.seq) AS sessions \
             FROM tool_threads t ORDER BY active_at, seq",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(failed(READING))?;
        rows.iter().map(row::tool_thread).collect()
    }

    async fn remove_tool_thread(&self, owner: &str, thread: &str) -> Result<bool> {
        let (owner, thread) = (owner.to_owned(), thread.to_owned());
        self.writer.write(WRITING, move |conn| Box::pin(remove_thread(conn, owner, thread))).await
    }

    async fn put_tool_export(&self, new: ToolExport) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(export(conn, new))).await
    }

    async fn tool_exports(&self, session: ToolSessionId) -> Result<Vec<ToolExport>> {
        let rows = sqlx::query("SELECT * FROM tool_exports WHERE session = ? ORDER BY path")
            .bind(session.0)
            .fetch_all(&self.readers)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(row::tool_export).collect()
    }
}
