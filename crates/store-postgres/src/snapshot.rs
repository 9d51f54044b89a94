//! Records of snapshots.

use crate::{PostgresStore, error::failed, row, sql, write::number};
use async_trait::async_trait;
use atoll_store::{
    Millis, Result, SandboxId, SnapshotId, SnapshotPage, SnapshotQuery, SnapshotRecord, Snapshots,
    StoreError, Thing,
};
use sqlx::PgConnection;

const WRITING: &str = "writing a snapshot";
const READING: &str = "reading snapshots";

/// A record with the sandbox that it is of.
const SNAPSHOT: &str = "SELECT snapshots.*, sandboxes.id AS sandbox_id, sandboxes.owner AS owner FROM snapshots \
     JOIN sandboxes ON sandboxes.seq = snapshots.sandbox ";

async fn insert(conn: &mut PgConnection, record: SnapshotRecord) -> Result<()> {
    let SnapshotRecord {
        id,
        sandbox,
        owner: _,
        kind,
        label,
        made_before,
        created_at,
        size_bytes,
        kernels,
        skills,
        ready,
    } = record;
    let unwritable = |e: serde_json::Error| StoreError::Corrupt(e.to_string(), None);
    let kernels = kernels.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?;
    let skills = skills.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?;
    let inserted = sql::query(
        "INSERT INTO snapshots (id, sandbox, kind, label, made_before, created_at, size, kernels, skills, ready) \
         SELECT $1, seq, $2, $3, $4, $5, $6, $7, $8, $9 FROM sandboxes WHERE id = $10 AND status <> 'destroyed'",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(kind.as_str())
    .bind(label)
    .bind(made_before)
    .bind(created_at)
    .bind(number(size_bytes))
    .bind(kernels)
    .bind(skills)
    .bind(ready)
    .bind(&sandbox.uuid().as_bytes()[..])
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    if inserted.rows_affected() == 0 { Err(StoreError::NotFound(Thing::Sandbox)) } else { Ok(()) }
}

async fn by_id(conn: &mut PgConnection, id: SnapshotId) -> Result<SnapshotRecord> {
    let found = sql::query(&format!("{SNAPSHOT} WHERE snapshots.id = $1"))
        .bind(&id.uuid().as_bytes()[..])
        .fetch_optional(conn)
        .await
        .map_err(failed(READING))?;
    row::snapshot(&found.ok_or(StoreError::NotFound(Thing::Snapshot))?)
}

async fn finish(
    conn: &mut PgConnection,
    id: SnapshotId,
    created_at: Millis,
    size_bytes: u64,
) -> Result<SnapshotRecord> {
    sql::query("UPDATE snapshots SET created_at = $1, size = $2, ready = TRUE WHERE id = $3")
        .bind(created_at)
        .bind(number(size_bytes))
        .bind(&id.uuid().as_bytes()[..])
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    by_id(conn, id).await
}

async fn label(
    conn: &mut PgConnection,
    sandbox: SandboxId,
    id: SnapshotId,
    label: Option<String>,
) -> Result<SnapshotRecord> {
    let changed = sql::query(
        "UPDATE snapshots SET label = $1 WHERE id = $2 AND ready \
         AND sandbox = (SELECT seq FROM sandboxes WHERE id = $3)",
    )
    .bind(label)
    .bind(&id.uuid().as_bytes()[..])
    .bind(&sandbox.uuid().as_bytes()[..])
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    if changed.rows_affected() == 0 {
        return Err(StoreError::NotFound(Thing::Snapshot));
    }
    by_id(conn, id).await
}

async fn remove(conn: &mut PgConnection, sandbox: SandboxId, id: SnapshotId) -> Result<bool> {
    let gone = sql::query(
        "DELETE FROM snapshots WHERE id = $1 AND sandbox = (SELECT seq FROM sandboxes WHERE id = $2)",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(&sandbox.uuid().as_bytes()[..])
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(gone.rows_affected() > 0)
}

/// Removes those of a sandbox that is destroyed.
pub(crate) async fn remove_all(conn: &mut PgConnection, sandbox: i64) -> Result<()> {
    let gone = sql::query("DELETE FROM snapshots WHERE sandbox = $1").bind(sandbox).execute(conn).await;
    gone.map(drop).map_err(failed(WRITING))
}

#[async_trait]
impl Snapshots for PostgresStore {
    async fn insert_snapshot(&self, record: SnapshotRecord) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(insert(conn, record))).await
    }

    async fn finish_snapshot(
        &self,
        id: SnapshotId,
        created_at: Millis,
        size_bytes: u64,
    ) -> Result<SnapshotRecord> {
        self.records.write(WRITING, move |conn| Box::pin(finish(conn, id, created_at, size_bytes))).await
    }

    async fn snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Option<SnapshotRecord>> {
        let found =
            sql::query(&format!("{SNAPSHOT} WHERE snapshots.id = $1 AND sandboxes.id = $2 AND ready"))
                .bind(&id.uuid().as_bytes()[..])
                .bind(&sandbox.uuid().as_bytes()[..])
                .fetch_optional(self.readers()?)
                .await
                .map_err(failed(READING))?;
        found.as_ref().map(row::snapshot).transpose()
    }

    async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<SnapshotPage> {
        let SnapshotQuery { sandbox, offset, limit } = query;
        let mut tx = self.readers()?.begin().await.map_err(failed(READING))?;
        let total: i64 = sql::scalar(
            "SELECT count(*) FROM snapshots WHERE ready AND sandbox = (SELECT seq FROM sandboxes WHERE id = $1)",
        )
        .bind(&sandbox.uuid().as_bytes()[..])
        .fetch_one(&mut *tx)
        .await
        .map_err(failed(READING))?;
        let page = "WHERE sandboxes.id = $1 AND ready \
                    ORDER BY snapshots.created_at DESC, snapshots.seq DESC LIMIT $2 OFFSET $3";
        let rows = sql::query(&format!("{SNAPSHOT} {page}"))
            .bind(&sandbox.uuid().as_bytes()[..])
            .bind(limit)
            .bind(number(*offset))
            .fetch_all(&mut *tx)
            .await
            .map_err(failed(READING))?;
        tx.commit().await.map_err(failed(READING))?;
        let items = rows.iter().map(row::snapshot).collect::<Result<_>>()?;
        Ok(SnapshotPage { items, total: total.unsigned_abs() })
    }

    async fn snapshots_of(&self, sandbox: SandboxId) -> Result<Vec<SnapshotRecord>> {
        let all = format!("{SNAPSHOT} WHERE sandboxes.id = $1 ORDER BY snapshots.created_at, snapshots.seq");
        let rows = sql::query(&all)
            .bind(&sandbox.uuid().as_bytes()[..])
            .fetch_all(self.readers()?)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(row::snapshot).collect()
    }

    async fn label_snapshot(
        &self,
        sandbox: SandboxId,
        id: SnapshotId,
        text: Option<String>,
    ) -> Result<SnapshotRecord> {
        self.records.write(WRITING, move |conn| Box::pin(label(conn, sandbox, id, text))).await
    }

    async fn remove_snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<bool> {
        self.records.write(WRITING, move |conn| Box::pin(remove(conn, sandbox, id))).await
    }

    async fn old_snapshots(&self, before: Millis, most: u32) -> Result<Vec<SnapshotRecord>> {
        let old = "WHERE kind <> 'manual' AND label IS NULL AND ready \
                   AND greatest(snapshots.created_at, sandboxes.created_at) <= $1 \
                   ORDER BY snapshots.created_at, snapshots.seq LIMIT $2";
        let rows = sql::query(&format!("{SNAPSHOT} {old}"))
            .bind(before)
            .bind(most)
            .fetch_all(self.readers()?)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(row::snapshot).collect()
    }
}
