//! Containers and snapshots on the wire.

use crate::{at, ids::container_text};
use atoll_core::{AGENT_LABEL, UsageNow, scope_of};
use atoll_types::{Death, DeathKind, Millis, SandboxRecord, SnapshotRecord, Status};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

const MIB: u64 = 1 << 20;

/// A container, with what it uses now.
#[derive(Debug, Serialize)]
pub(super) struct ContainerItem {
    id: String,
    agent_id: Option<String>,
    /// session, agent or shared.
    scope: String,
    status: &'static str,
    created_at: String,
    /// Of one core; none where that is not known yet.
    cpu_percent: Option<f64>,
    memory_mb: Option<u64>,
    executions_count: u64,
}

impl ContainerItem {
    pub(super) fn new(record: &SandboxRecord, now: Option<UsageNow>) -> Self {
        let sample = now.map(|now| now.sample);
        let percent = |cores: f32| (f64::from(cores) * 1000.0).round() / 10.0;
        Self {
            id: container_text(record.id),
            agent_id: record.labels.get(AGENT_LABEL).cloned(),
            // A sandbox of another API is a session of its own.
            scope: scope_of(record).unwrap_or("session").to_owned(),
            status: record.status.shown(),
            created_at: at(record.created_at),
            cpu_percent: sample.and_then(|sample| sample.cpu_cores).map(percent),
            memory_mb: sample.and_then(|sample| sample.memory_bytes).map(|bytes| bytes.div_ceil(MIB)),
            executions_count: record.exec_count,
        }
    }
}

/// A container in detail. What this server does not know of one is null: the process id is the launcher's business. One that
/// was stopped on request has no exit code.
pub(super) fn detail(record: &SandboxRecord, now: Option<UsageNow>, started_at: Option<Millis>) -> Value {
    let mut item = json!(ContainerItem::new(record, now));
    let lives = matches!(record.status, Status::Ready | Status::Paused);
    let limits = &record.limits;
    let death = record.death.as_ref();
    let more = json!({
        "state": record.status.shown(),
        "running": lives,
        "pid": null,
        "started_at": started_at.map(at),
        "finished_at": record.destroyed_at.or(record.stopped_at).filter(|_| !lives).map(at),
        "exit_code": death.and_then(Death::exit_code),
        "oom_killed": death.is_some_and(|death| death.kind == DeathKind::OutOfMemory),
        "reason": record.status_reason,
        "image": record.image,
        "network_enabled": record.network_enabled,
        "resource_limits": {
            "cpu_cores": f64::from(limits.cpu_millis) / 1000.0,
            "memory_mb": limits.memory_bytes / MIB,
            "disk_mb": limits.disk_bytes / MIB,
            "max_processes": limits.processes,
        },
    });
    if let (Value::Object(item), Value::Object(more)) = (&mut item, more) {
        item.extend(more);
    }
    json!({ "container": item })
}

/// A snapshot.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotItem {
    id: Uuid,
    container_id: String,
    label: Option<String>,
    size_bytes: u64,
    created_at: String,
}

impl From<SnapshotRecord> for SnapshotItem {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord { id, sandbox, label, created_at, size_bytes, .. } = record;
        let (container_id, created_at) = (container_text(sandbox), at(created_at));
        Self { id: id.uuid(), container_id, label, size_bytes, created_at }
    }
}
