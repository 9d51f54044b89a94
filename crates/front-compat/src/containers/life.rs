//! Containers: listing, stopping, restarting, destroying.

use super::{
    done, removed,
    shapes::{ContainerItem, detail as detail_of},
};
use crate::{App, ids::container_id};
use atoll_core::{Caller, LARGEST_PAGE, SCOPE_LABEL, UsageNow};
use atoll_http::{Failure, Who};
use atoll_types::{Error, ErrorCode, ListQuery, Result, SandboxId, SandboxRecord, Status};
use axum::{
    Json,
    extract::{Path, State},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

/// Containers whose usage is read at a time.
const AT_ONCE: usize = 8;
const ACTIVE: &[Status] = &[Status::Provisioning, Status::Ready, Status::Paused];

/// The caller's own sandboxes of these statuses, the newest first; an admin's key lists its owner's too.
pub(super) async fn own(app: &App, caller: &Caller, statuses: &[Status]) -> Result<Vec<SandboxRecord>> {
    let mut all = Vec::new();
    loop {
        let query = ListQuery {
            owner: Some(caller.owner.clone()),
            statuses: statuses.to_vec(),
            offset: all.len() as u64,
            limit: LARGEST_PAGE,
            ..ListQuery::default()
        };
        let page = app.core.sandboxes.list(caller, query).await?;
        let last = page.items.len() < LARGEST_PAGE as usize;
        all.extend(page.items);
        if last {
            return Ok(all);
        }
    }
}

/// What a sandbox uses now; none where that is not known.
async fn usage(app: &App, caller: &Caller, id: SandboxId) -> Option<UsageNow> {
    app.core.usage.metrics(caller, id, None, 0).await.ok()?.now
}

/// One that exists: a destroyed one is no container any more.
async fn existing(app: &App, caller: &Caller, id: &str) -> Result<SandboxRecord, Failure> {
    let record = app.core.sandboxes.get(caller, container_id(id)?).await?;
    match record.status {
        Status::Destroyed => {
            let message = format!("the container {id} is destroyed");
            Err(Error::new(ErrorCode::NotFound, message).into())
        }
        _ => Ok(record),
    }
}

pub(super) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    let all = own(&app, &caller, ACTIVE).await?;
    let item = |record: SandboxRecord| {
        let (app, caller) = (&app, &caller);
        async move { ContainerItem::new(&record, usage(app, caller, record.id).await) }
    };
    let containers: Vec<_> = stream::iter(all).map(item).buffered(AT_ONCE).collect().await;
    Ok(Json(json!({ "containers": containers })))
}

pub(super) async fn detail(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let record = existing(&app, &caller, &id).await?;
    let started = app.core.sandboxes.started_at(&caller, record.id).await?;
    Ok(Json(detail_of(&record, usage(&app, &caller, record.id).await, started)))
}

pub(super) async fn stop(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.core.sandboxes.stop(&caller, container_id(&id)?).await?;
    Ok(done(format!("{id} is stopped; its files are kept")))
}

/// A new container on the same files, whether the old one lives or not.
pub(super) async fn restart(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.core.owner_configs.must_be_on(&caller).await?;
    let record = existing(&app, &caller, &id).await?;
    app.core.sandboxes.stop(&caller, record.id).await?;
    app.core.sandboxes.resume(&caller, record.id).await.map_err(|mut error| {
        error.message = format!("{id} is stopped, and was not started again: {}", error.message);
        error
    })?;
    Ok(done(format!("{id} is restarted")))
}

pub(super) async fn destroy(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.core.sandboxes.destroy(&caller, container_id(&id)?).await?;
    Ok(done(format!("{id} is destroyed with its files")))
}

/// Destroys the caller's containers that this API made and that are stopped, dead, or paused for being idle.
pub(super) async fn cleanup(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    let all = own(&app, &caller, &[Status::Stopped, Status::Dead, Status::Paused]).await?;
    let idle = |record: &SandboxRecord| record.status != Status::Paused || record.idle_pause;
    let ours = |record: &SandboxRecord| record.labels.contains_key(SCOPE_LABEL);
    let mut count = 0;
    for record in all.into_iter().filter(|record| idle(record) && ours(record)) {
        match app.core.sandboxes.destroy_unchanged(&caller, &record).await {
            Ok(()) => count += 1,
            // Another request destroyed it, or resumed it: it is in use again.
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed(count))
}
