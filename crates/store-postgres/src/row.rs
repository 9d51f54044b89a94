//! Rows into records. A row that cannot be parsed is damage; the error names the column.

use crate::sql::get;
use atoll_store::{
    Activity, ActivityEntry, ActivityKind, ApiKey, BegunColumns, Decoded, EgressRow, EndedColumns, EventKind,
    EventRow, Facts, KeyHash, KeyId, NewEvent, OpenOperation, OperationEnd, OperationId, OperationRow,
    PreviewTokenId, PreviewTokenRecord, Projection, RawRow, Result, SandboxId, SandboxRecord, Scope, Sealed,
    SnapshotId, SnapshotKind, SnapshotRecord, Status, StoreError, ToolExport, ToolSession, ToolSessionId,
    ToolStatus, ToolThread,
};
use atoll_types::{AutoSnapshot, ContainerId, KernelId, VolumeId};
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use uuid::Uuid;

/// The columns of a sandbox.
pub(crate) const SANDBOX: &str = "id, owner, status, image, session_key, created_at, last_activity_at, \
     exec_count, exec_total_ms, bytes_uploaded, bytes_downloaded, revision, container, volume, stopped_at, \
     destroyed_at, idle_timeout_seconds, max_lifetime_seconds, network_enabled, egress, owner_name, status_reason, idle_pause, limits, labels, profile, \
     environment, provider, auto_snapshot, skills, death, start_due";

fn damaged(column: &'static str) -> StoreError {
    StoreError::Corrupt(format!("a {column} cannot be read"), None)
}

pub(crate) fn json<T: DeserializeOwned>(row: &PgRow, column: &'static str) -> Result<T> {
    let text: String = get(row, column)?;
    serde_json::from_str(&text)
        .map_err(|e| StoreError::Corrupt(format!("a {column} cannot be read"), Some(e.into())))
}

fn optional_json<T: DeserializeOwned>(row: &PgRow, column: &'static str) -> Result<Option<T>> {
    let text: Option<String> = get(row, column)?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(|_| damaged(column))
}

pub(crate) fn bytes32(row: &PgRow, column: &'static str) -> Result<[u8; 32]> {
    get::<Vec<u8>>(row, column)?.try_into().map_err(|_| damaged(column))
}

pub(crate) fn uuid(row: &PgRow, column: &'static str) -> Result<Uuid> {
    Uuid::from_slice(&get::<Vec<u8>>(row, column)?).map_err(|_| damaged(column))
}

pub(crate) fn count(row: &PgRow, column: &'static str) -> Result<u64> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| damaged(column))
}

fn name<T>(row: &PgRow, column: &'static str, parse: fn(&str) -> Option<T>) -> Result<T> {
    parse(&get::<String>(row, column)?).ok_or_else(|| damaged(column))
}

pub(crate) fn optional_name<T>(
    row: &PgRow,
    column: &'static str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    get::<Option<String>>(row, column)?.map(|name| parse(&name).ok_or_else(|| damaged(column))).transpose()
}

pub(crate) fn optional_sandbox(row: &PgRow, column: &'static str) -> Result<Option<SandboxId>> {
    let bytes: Option<Vec<u8>> = get(row, column)?;
    let id = bytes.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(|_| damaged(column))?;
    Ok(id.map(SandboxId::from_uuid))
}

pub(crate) fn status(row: &PgRow) -> Result<Status> {
    name(row, "status", Status::from_name)
}

pub(crate) fn sandbox(row: &PgRow) -> Result<SandboxRecord> {
    let container: Option<Vec<u8>> = get(row, "container")?;
    let container =
        container.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(|_| damaged("container"))?;
    Ok(SandboxRecord {
        id: SandboxId::from_uuid(uuid(row, "id")?),
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        status: status(row)?,
        status_reason: get(row, "status_reason")?,
        idle_pause: get(row, "idle_pause")?,
        death: optional_json(row, "death")?,
        start_due: get(row, "start_due")?,
        image: get(row, "image")?,
        provider: get::<String>(row, "provider")?.parse().map_err(|_| damaged("provider"))?,
        profile: json(row, "profile")?,
        container: container.map(ContainerId::from_uuid),
        volume: VolumeId::from_uuid(uuid(row, "volume")?),
        limits: json(row, "limits")?,
        idle_timeout_seconds: get(row, "idle_timeout_seconds")?,
        max_lifetime_seconds: get(row, "max_lifetime_seconds")?,
        network_enabled: get(row, "network_enabled")?,
        egress: get(row, "egress")?,
        session_key: get(row, "session_key")?,
        auto_snapshot: name(row, "auto_snapshot", AutoSnapshot::from_name)?,
        labels: json(row, "labels")?,
        environment: Sealed(get(row, "environment")?),
        skills: json(row, "skills")?,
        created_at: get(row, "created_at")?,
        last_activity_at: get(row, "last_activity_at")?,
        stopped_at: get(row, "stopped_at")?,
        destroyed_at: get(row, "destroyed_at")?,
        exec_count: count(row, "exec_count")?,
        exec_total_ms: count(row, "exec_total_ms")?,
        bytes_uploaded: count(row, "bytes_uploaded")?,
        bytes_downloaded: count(row, "bytes_downloaded")?,
        revision: count(row, "revision")?,
    })
}

pub(crate) fn snapshot(row: &PgRow) -> Result<SnapshotRecord> {
    Ok(SnapshotRecord {
        id: SnapshotId::from_uuid(uuid(row, "id")?),
        sandbox: SandboxId::from_uuid(uuid(row, "sandbox_id")?),
        owner: get(row, "owner")?,
        kind: name(row, "kind", SnapshotKind::from_name)?,
        label: get(row, "label")?,
        made_before: get(row, "made_before")?,
        created_at: get(row, "created_at")?,
        size_bytes: count(row, "size")?,
        kernels: optional_json(row, "kernels")?,
        skills: optional_json(row, "skills")?,
        ready: get(row, "ready")?,
    })
}

pub(crate) fn preview_token(sandbox: SandboxId, row: &PgRow) -> Result<PreviewTokenRecord> {
    Ok(PreviewTokenRecord {
        id: PreviewTokenId::from_uuid(uuid(row, "id")?),
        sandbox,
        port: get(row, "port")?,
        created_at: get(row, "created_at")?,
        expires_at: get(row, "expires_at")?,
    })
}

pub(crate) fn activity(sandbox: SandboxId, row: &PgRow) -> Result<ActivityEntry> {
    let figure = |column| -> Result<Option<u64>> {
        get::<Option<i64>>(row, column)?.map(u64::try_from).transpose().map_err(|_| damaged(column))
    };
    let activity = Activity {
        sandbox,
        kind: name(row, "kind", ActivityKind::from_name)?,
        at: get(row, "at")?,
        detail: get(row, "detail")?,
        exit_code: get(row, "exit_code")?,
        duration_ms: figure("duration_ms")?,
        bytes: figure("bytes")?,
    };
    Ok(ActivityEntry { number: count(row, "number")?, activity })
}

pub(crate) fn key(row: &PgRow) -> Result<ApiKey> {
    Ok(ApiKey {
        id: KeyId::from_uuid(uuid(row, "id")?),
        name: get(row, "name")?,
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        scope: name(row, "scope", Scope::from_name)?,
        tier: get(row, "tier")?,
        prefix: get(row, "prefix")?,
        hash: KeyHash(bytes32(row, "hash")?),
        created_at: get(row, "created_at")?,
        expires_at: get(row, "expires_at")?,
        revoked_at: get(row, "revoked_at")?,
        last_used_at: get(row, "last_used_at")?,
    })
}

pub(crate) fn event(row: &PgRow) -> Result<EventRow> {
    let event = NewEvent {
        at: get(row, "at")?,
        owner: get(row, "owner")?,
        sandbox: optional_sandbox(row, "sandbox")?,
        kind: name(row, "kind", EventKind::from_name)?,
        reason: get(row, "reason")?,
        data: get(row, "data")?,
    };
    Ok(EventRow { id: count(row, "id")?, event })
}

/// A row of the audit trail, unchecked.
pub(crate) fn audit(row: &PgRow) -> Result<RawRow> {
    Ok(RawRow {
        seq: get(row, "seq")?,
        operation: get(row, "operation")?,
        part: get(row, "part")?,
        at: get(row, "at")?,
        mac: get(row, "mac")?,
        facts: get(row, "facts")?,
        output: get(row, "output")?,
        projection: projection(row)?,
    })
}

/// The paths that an end is found by.
fn paths(row: &PgRow) -> Result<Vec<String>> {
    let paths: Vec<Vec<u8>> = get(row, "paths")?;
    paths.into_iter().map(|path| String::from_utf8(path).map_err(|_| damaged("path"))).collect()
}

fn projection(row: &PgRow) -> Result<Option<Projection>> {
    let Some(seq) = get(row, "begin_seq")? else { return Ok(None) };
    let begun = BegunColumns {
        at: get(row, "begin_at")?,
        owner: get(row, "owner")?,
        key: get(row, "key")?,
        kind: get(row, "kind")?,
        sandbox: get(row, "sandbox")?,
        search: get(row, "search")?,
    };
    let (end, outcome) = (get::<Option<i64>>(row, "end_seq")?, get::<Option<String>>(row, "outcome")?);
    let (exit_code, duration_us) =
        (get::<Option<i64>>(row, "exit_code")?, get::<Option<i64>>(row, "duration_us")?);
    // Any of these columns claims an end; where no row confirms it, verification reports it.
    let claimed = end.is_some() || outcome.is_some() || exit_code.is_some() || duration_us.is_some();
    let ended = claimed.then(|| EndedColumns { seq: end.unwrap_or(-1), outcome, exit_code, duration_us });
    let operation = get(row, "begin_operation")?;
    Ok(Some(Projection { seq, operation, high: get(row, "high")?, begun, ended, paths: paths(row)? }))
}

pub(crate) fn open_operation(row: &PgRow) -> Result<OpenOperation> {
    let id = OperationId::from_uuid(uuid(row, "operation")?);
    Ok(OpenOperation { seq: count(row, "seq")?, id, at: get(row, "at")? })
}

fn decoded(row: &PgRow, column: &'static str) -> Result<Option<Decoded>> {
    let Some(facts) = get::<Option<Vec<u8>>>(row, column)? else { return Ok(None) };
    let decoded = Decoded::facts(&facts)
        .map_err(|e| StoreError::Corrupt("an audit row cannot be read".into(), Some(e.into())))?;
    Ok(Some(decoded))
}

pub(crate) fn egress(row: &PgRow) -> Result<EgressRow> {
    let Decoded { seq, entry, .. } = decoded(row, "facts")?.ok_or_else(|| damaged("facts"))?;
    let Facts::Egress(facts) = entry.facts else { return Err(damaged("facts")) };
    Ok(EgressRow { seq, operation: entry.operation, at: entry.at, facts: *facts })
}

pub(crate) fn operation(row: &PgRow) -> Result<OperationRow> {
    let begin = decoded(row, "facts")?.ok_or_else(|| damaged("facts"))?;
    let (Facts::Begin(facts), Some(id)) = (begin.entry.facts, begin.entry.operation) else {
        return Err(damaged("facts"));
    };
    let end = match decoded(row, "end_facts")? {
        None => None,
        Some(end) => match end.entry.facts {
            Facts::End(facts) => {
                Some(OperationEnd { seq: count(row, "end_seq")?, at: end.entry.at, facts: *facts })
            }
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => {
                return Err(damaged("facts"));
            }
        },
    };
    Ok(OperationRow { seq: count(row, "seq")?, id, at: begin.entry.at, begin: *facts, end })
}

fn session_id(row: &PgRow, column: &'static str) -> Result<ToolSessionId> {
    u32::try_from(get::<i64>(row, column)?).map(ToolSessionId).map_err(|_| damaged(column))
}

pub(crate) fn tool_session(row: &PgRow) -> Result<ToolSession> {
    let kernel: Option<Vec<u8>> = get(row, "kernel")?;
    let kernel = kernel.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(|_| damaged("kernel"))?;
    Ok(ToolSession {
        id: session_id(row, "id")?,
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        thread: get(row, "thread")?,
        sandbox: SandboxId::from_uuid(uuid(row, "sandbox")?),
        kernel: kernel.map(KernelId::from_uuid),
        language: get(row, "language")?,
        dependencies: json(row, "dependencies")?,
        status: name(row, "status", ToolStatus::from_name)?,
        reason: get(row, "reason")?,
        created_at: get(row, "created_at")?,
        active_at: get(row, "active_at")?,
    })
}

pub(crate) fn tool_thread(row: &PgRow) -> Result<ToolThread> {
    Ok(ToolThread {
        owner: get(row, "owner")?,
        thread: get(row, "thread")?,
        created_at: get(row, "created_at")?,
        active_at: get(row, "active_at")?,
        sessions: count(row, "sessions")?,
    })
}

pub(crate) fn tool_export(row: &PgRow) -> Result<ToolExport> {
    let size: Option<i64> = get(row, "size")?;
    Ok(ToolExport {
        session: session_id(row, "session")?,
        path: String::from_utf8(get(row, "path")?).map_err(|_| damaged("path"))?,
        folder: get(row, "folder")?,
        size: size.map(u64::try_from).transpose().map_err(|_| damaged("size"))?,
        exported_at: get(row, "exported_at")?,
    })
}
