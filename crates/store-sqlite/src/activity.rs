//! What happened in sandboxes.

use crate::{SqliteStore, error::failed, row, write::number};
use async_trait::async_trait;
use atoll_store::{
    ACTIVITIES_KEPT, Activities, Activity, ActivityEntry, Counted, Result, SandboxId, StoreError, Thing,
};
use sqlx::SqliteConnection;

/// Adds to the counters and takes the next number. SQLite would turn a sum that is too large into a
/// fraction, so each half is kept below half of what it can keep.
async fn count(conn: &mut SqliteConnection, activity: &Activity) -> Result<(i64, i64)> {
    let Counted { execs, exec_ms, uploaded, downloaded } = activity.counted();
    let most = 1_i64 << 62;
    let half = |value: u64| number(value).min(most - 1);
    sqlx::query_as(
        "UPDATE sandboxes SET exec_count = exec_count + ?2, exec_total_ms = min(exec_total_ms, ?7) + ?3, \
         bytes_uploaded = min(bytes_uploaded, ?7) + ?4, bytes_downloaded = min(bytes_downloaded, ?7) + ?5, \
         last_activity_at = max(last_activity_at, ?6), activity_count = activity_count + 1 \
         WHERE id = ?1 RETURNING seq, activity_count",
    )
    .bind(&activity.sandbox.uuid().as_bytes()[..])
    .bind(half(execs))
    .bind(half(exec_ms))
    .bind(half(uploaded))
    .bind(half(downloaded))
    .bind(activity.at)
    .bind(most)
    .fetch_optional(conn)
    .await
    .map_err(failed("counting an activity"))?
    .ok_or(StoreError::NotFound(Thing::Sandbox))
}

pub(crate) async fn record(conn: &mut SqliteConnection, activity: Activity) -> Result<()> {
    let doing = "recording an activity";
    let (seq, place) = count(conn, &activity).await?;
    let Activity { sandbox: _, kind, at, detail: _, exit_code, duration_ms, bytes } = activity;
    sqlx::query(
        "INSERT INTO activities (sandbox, number, kind, at, detail, exit_code, duration_ms, bytes) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(seq)
    .bind(place)
    .bind(kind.as_str())
    .bind(at)
    .bind(activity.kept_detail())
    .bind(exit_code)
    .bind(duration_ms.map(number))
    .bind(bytes.map(number))
    .execute(&mut *conn)
    .await
    .map_err(failed(doing))?;
    let last_forgotten = place - number(ACTIVITIES_KEPT);
    if last_forgotten > 0 {
        sqlx::query("DELETE FROM activities WHERE sandbox = ? AND number <= ?")
            .bind(seq)
            .bind(last_forgotten)
            .execute(conn)
            .await
            .map_err(failed(doing))?;
    }
    Ok(())
}

#[async_trait]
impl Activities for SqliteStore {
    async fn record_activity(&self, activity: Activity) -> Result<()> {
        self.writer.write("recording an activity", |conn| Box::pin(record(conn, activity))).await
    }

    async fn activities(
        &self,
        sandbox: SandboxId,
        limit: u32,
        before: Option<u64>,
    ) -> Result<Vec<ActivityEntry>> {
        let rows = sqlx::query(
            "SELECT number, kind, at, detail, exit_code, duration_ms, bytes FROM activities \
             WHERE sandbox = (SELECT seq FROM sandboxes WHERE id = ?) AND number < ? \
             ORDER BY number DESC LIMIT ?",
        )
        .bind(&sandbox.uuid().as_bytes()[..])
        .bind(before.map_or(i64::MAX, number))
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("listing activities"))?;
        rows.iter().map(|row| row::activity(sandbox, row)).collect()
    }
}
