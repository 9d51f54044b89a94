//! Activities of sandboxes.

use crate::{SqliteStore, error::failed, row, write::number};
use async_trait::async_trait;
use atoll_store::{
    ACTIVITIES_KEPT, Activities, Activity, ActivityEntry, Counted, Result, SandboxId, StoreError, Thing,
};
use sqlx::SqliteConnection;
use std::sync::LazyLock;

/// Adds to the counters, takes the next number, and removes what is too old, in one statement: each one by
/// itself costs a round trip to the connection's thread. SQLite would turn a sum that overflows into a float,
/// so each half is kept below half of the largest integer.
static RECORD: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE sandboxes SET exec_count = exec_count + ?2, \
     exec_total_ms = min(exec_total_ms, ?7) + ?3, bytes_uploaded = min(bytes_uploaded, ?7) + ?4, \
     bytes_downloaded = min(bytes_downloaded, ?7) + ?5, last_activity_at = max(last_activity_at, ?6), \
     activity_count = activity_count + 1 WHERE id = ?1; \
     INSERT INTO activities (sandbox, number, kind, at, detail, exit_code, duration_ms, bytes) \
     SELECT seq, activity_count, ?8, ?6, ?9, ?10, ?11, ?12 FROM sandboxes WHERE id = ?1; \
     DELETE FROM activities WHERE sandbox = (SELECT seq FROM sandboxes WHERE id = ?1) \
     AND number <= (SELECT activity_count - {ACTIVITIES_KEPT} FROM sandboxes WHERE id = ?1)"
    )
});

pub(crate) async fn record(conn: &mut SqliteConnection, activity: Activity) -> Result<()> {
    let Counted { execs, exec_ms, uploaded, downloaded } = activity.counted();
    let most = 1_i64 << 62;
    let half = |value: u64| number(value).min(most - 1);
    let Activity { sandbox, kind, at, detail: _, exit_code, duration_ms, bytes } = &activity;
    let done = sqlx::query(&RECORD)
        .bind(&sandbox.uuid().as_bytes()[..])
        .bind(half(execs))
        .bind(half(exec_ms))
        .bind(half(uploaded))
        .bind(half(downloaded))
        .bind(at)
        .bind(most)
        .bind(kind.as_str())
        .bind(activity.kept_detail())
        .bind(exit_code)
        .bind(duration_ms.map(number))
        .bind(bytes.map(number))
        .execute(conn)
        .await
        .map_err(failed("recording an activity"))?;
    if done.rows_affected() == 0 { Err(StoreError::NotFound(Thing::Sandbox)) } else { Ok(()) }
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
