//! Records into rows. Every record is destructured without `..`, so that a new field without a column breaks
//! the build.

use crate::error::failed;
use atoll_store::{Result, SandboxRecord, Sealed, StoreError, search_text};
use serde::Serialize;
use sqlx::SqliteConnection;
use std::collections::BTreeMap;

/// A number as SQLite stores it, saturated at its largest.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| StoreError::Internal("writing JSON", e.into()))
}

const INSERT: &str = "INSERT INTO sandboxes (id, owner, owner_name, status, status_reason, idle_pause, image, profile, container, \
     volume, limits, idle_timeout_seconds, max_lifetime_seconds, network_enabled, egress, session_key, labels, environment, created_at, \
     last_activity_at, stopped_at, destroyed_at, exec_count, exec_total_ms, bytes_uploaded, \
     bytes_downloaded, revision, search, provider, auto_snapshot, skills, death, start_due) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
     ON CONFLICT (owner, session_key, image) WHERE session_key IS NOT NULL AND status <> 'destroyed' \
     DO NOTHING RETURNING seq";

/// Adds a record, and returns its row's number; `None` when its session has one already.
pub(crate) async fn insert(conn: &mut SqliteConnection, record: &SandboxRecord) -> Result<Option<i64>> {
    #[rustfmt::skip] // One a line would be longer than the rest.
    let SandboxRecord {
        id, owner, owner_name, status, status_reason, idle_pause, death, start_due, image, provider, profile, container, volume, limits,
        idle_timeout_seconds, max_lifetime_seconds, network_enabled, egress, session_key, auto_snapshot, labels, environment: Sealed(environment), skills,
        created_at, last_activity_at, stopped_at, destroyed_at, exec_count, exec_total_ms,
        bytes_uploaded, bytes_downloaded, revision,
    } = record;
    sqlx::query_scalar(INSERT)
        .bind(&id.uuid().as_bytes()[..])
        .bind(owner)
        .bind(owner_name)
        .bind(status.as_str())
        .bind(status_reason)
        .bind(idle_pause)
        .bind(image)
        .bind(json(profile)?)
        .bind(container.map(|c| c.uuid().as_bytes().to_vec()))
        .bind(&volume.uuid().as_bytes()[..])
        .bind(json(limits)?)
        .bind(idle_timeout_seconds)
        .bind(max_lifetime_seconds)
        .bind(network_enabled)
        .bind(egress)
        .bind(session_key)
        .bind(json(labels)?)
        .bind(environment)
        .bind(created_at)
        .bind(last_activity_at)
        .bind(stopped_at)
        .bind(destroyed_at)
        .bind(number(*exec_count))
        .bind(number(*exec_total_ms))
        .bind(number(*bytes_uploaded))
        .bind(number(*bytes_downloaded))
        .bind(number(*revision))
        .bind(search_text(record))
        .bind(provider.as_str())
        .bind(auto_snapshot.as_str())
        .bind(json(skills)?)
        .bind(death.as_ref().map(json).transpose()?)
        .bind(start_due)
        .fetch_optional(conn)
        .await
        .map_err(failed("adding a sandbox"))
}

/// Writes what a change can change.
pub(crate) async fn update(conn: &mut SqliteConnection, seq: i64, record: &SandboxRecord) -> Result<()> {
    sqlx::query(
        "UPDATE sandboxes SET status = ?, status_reason = ?, idle_pause = ?, container = ?, limits = ?, profile = ?, \
         idle_timeout_seconds = ?, network_enabled = ?, egress = ?, labels = ?, search = ?, environment = ?, \
         last_activity_at = ?, stopped_at = ?, destroyed_at = ?, revision = ?, auto_snapshot = ?, death = ?, \
         start_due = ? WHERE seq = ?",
    )
    .bind(record.status.as_str())
    .bind(&record.status_reason)
    .bind(record.idle_pause)
    .bind(record.container.map(|c| c.uuid().as_bytes().to_vec()))
    .bind(json(&record.limits)?)
    .bind(json(&record.profile)?)
    .bind(record.idle_timeout_seconds)
    .bind(record.network_enabled)
    .bind(&record.egress)
    .bind(json(&record.labels)?)
    .bind(search_text(record))
    .bind(&record.environment.0)
    .bind(record.last_activity_at)
    .bind(record.stopped_at)
    .bind(record.destroyed_at)
    .bind(number(record.revision))
    .bind(record.auto_snapshot.as_str())
    .bind(record.death.as_ref().map(json).transpose()?)
    .bind(record.start_due)
    .bind(seq)
    .execute(conn)
    .await
    .map_err(failed("changing a sandbox"))?;
    Ok(())
}

/// Replaces the labels of a sandbox.
pub(crate) async fn labels(
    conn: &mut SqliteConnection,
    seq: i64,
    labels: &BTreeMap<String, String>,
) -> Result<()> {
    let doing = "writing labels";
    sqlx::query("DELETE FROM labels WHERE sandbox = ?")
        .bind(seq)
        .execute(&mut *conn)
        .await
        .map_err(failed(doing))?;
    for (name, value) in labels {
        sqlx::query("INSERT INTO labels (sandbox, name, value) VALUES (?, ?, ?)")
            .bind(seq)
            .bind(name)
            .bind(value)
            .execute(&mut *conn)
            .await
            .map_err(failed(doing))?;
    }
    Ok(())
}
