//! Snapshots of a container's files.

use super::{done, shapes::SnapshotItem};
use crate::{App, ids::container_id};
use atoll_core::{LARGEST_PAGE, NewSnapshot, RollbackOptions};
use atoll_http::{Failure, Raw, Who, json as read_json};
use atoll_types::{Error, ErrorCode, SnapshotId, SnapshotQuery};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SnapshotBody {
    label: Option<String>,
}

fn snapshot_id(text: &str) -> Result<SnapshotId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "the container has no snapshot with this id");
    Ok(SnapshotId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// All of them, the newest first.
pub(super) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let sandbox = container_id(&id)?;
    let mut all: Vec<SnapshotItem> = Vec::new();
    loop {
        let query = SnapshotQuery { sandbox, offset: all.len() as u64, limit: LARGEST_PAGE };
        let page = app.core.snapshots.list(&caller, query).await?;
        let last = page.items.len() < LARGEST_PAGE as usize;
        all.extend(page.items.into_iter().map(SnapshotItem::from));
        if last {
            return Ok(Json(json!({ "snapshots": all })));
        }
    }
}

pub(super) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<SnapshotItem>), Failure> {
    let sandbox = container_id(&id)?;
    let SnapshotBody { label } = read_json(&body)?;
    let made = app.core.snapshots.create(&caller, sandbox, NewSnapshot { label, kernels: false }).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

pub(super) async fn roll_back(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, snapshot)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let (sandbox, to) = (container_id(&id)?, snapshot_id(&snapshot)?);
    app.core.sandboxes.roll_back(&caller, sandbox, to, RollbackOptions::default()).await?;
    Ok(done(format!("{id} has the files of the snapshot {snapshot}; those of before are in a snapshot")))
}

pub(super) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, snapshot)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    app.core.snapshots.delete(&caller, container_id(&id)?, snapshot_id(&snapshot)?).await?;
    Ok(done(format!("the snapshot {snapshot} is deleted")))
}
