//! Activities of sandboxes.

use crate::{PostgresStore, error::failed, row, sql, write::number};
use async_trait::async_trait;
use atoll_store::{
    ACTIVITIES_KEPT, Activities, Activity, ActivityEntry, Counted, Result, SandboxId, StoreError, Thing,
};
use sqlx::PgConnection;

const DOING: &str = "recording an activity";

/// Adds to the counters and takes the next number, in one statement: each costs a round trip. A sum that overflows would be
/// an error, so each half is kept below half of the largest integer.
const RECORD: &str = "WITH counted AS (UPDATE sandboxes SET exec_count = exec_count + $2, \
     exec_total_ms = least(exec_total_ms, $7) + $3, bytes_uploaded = least(bytes_uploaded, $7) + $4, \
     bytes_downloaded = least(bytes_downloaded, $7) + $5, last_activity_at = greatest(last_activity_at, $6), \
     activity_count = activity_count + 1 WHERE id = $1 RETURNING seq, activity_count) \
     INSERT INTO activities (sandbox, number, kind, at, detail, exit_code, duration_ms, bytes) \
     SELECT seq, activity_count, $8, $6, $9, $10, $11, $12 FROM counted RETURNING sandbox, number";

pub(crate) async fn record(conn: &mut PgConnection, activity: Activity) -> Result<()> {
    let Counted { execs, exec_ms, uploaded, downloaded } = activity.counted();
    let most = 1_i64 << 62;
    let half = |value: u64| number(value).min(most - 1);
    let Activity { sandbox, kind, at, detail: _, exit_code, duration_ms, bytes } = &activity;
    let done = sql::query(RECORD)
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
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed(DOING))?;
    let Some(done) = done else { return Err(StoreError::NotFound(Thing::Sandbox)) };
    let (seq, number): (i64, i64) = (sql::get(&done, "sandbox")?, sql::get(&done, "number")?);
    let old = number.saturating_sub(i64::try_from(ACTIVITIES_KEPT).unwrap_or(i64::MAX));
    if old > 0 {
        let gone =
            sql::query("DELETE FROM activities WHERE sandbox = $1 AND number <= $2").bind(seq).bind(old);
        gone.execute(conn).await.map_err(failed(DOING))?;
    }
    Ok(())
}

#[async_trait]
impl Activities for PostgresStore {
    async fn record_activity(&self, activity: Activity) -> Result<()> {
        self.records.write(DOING, |conn| Box::pin(record(conn, activity))).await
    }

    async fn activities(
        &self,
        sandbox: SandboxId,
        limit: u32,
        before: Option<u64>,
    ) -> Result<Vec<ActivityEntry>> {
        let rows = sql::query(
            "SELECT number, kind, at, detail, exit_code, duration_ms, bytes FROM activities \
             WHERE sandbox = (SELECT seq FROM sandboxes WHERE id = $1) AND number < $2 \
             ORDER BY number DESC LIMIT $3",
        )
        .bind(&sandbox.uuid().as_bytes()[..])
        .bind(before.map_or(i64::MAX, number))
        .bind(limit)
        .fetch_all(self.readers()?)
        .await
        .map_err(failed("listing activities"))?;
        rows.iter().map(|row| row::activity(sandbox, row)).collect()
    }
}
