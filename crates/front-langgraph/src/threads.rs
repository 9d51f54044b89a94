//! Threads: conversations of the caller.

use crate::{
    App,
    assistants::{if_exists, limit, next_page},
    ids, interrupts,
    state::values,
};
use atoll_agent::{NewThreadRequest, ThreadView};
use atoll_http::{Failure, LookUp, Raw, Who, json, required_json};
use atoll_types::{
    Error, Result,
    conversation::{Metadata, ThreadQuery, ThreadSort, ThreadStatus},
    time::rfc3339,
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::HeaderMap,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most threads of one request to prune.
const MOST_PRUNED: usize = 1000;

/// `DELETE /threads/{id}` is REST's: it deletes the sessions of threads without a conversation, too.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/threads", post(create))
        .route("/threads/search", post(search))
        .route("/threads/count", post(count))
        .route("/threads/prune", post(prune))
        .route("/threads/{thread_id}", get(read).patch(patch))
        .route("/threads/{thread_id}/copy", post(copy))
}

fn item(view: &ThreadView) -> Value {
    let ThreadView { thread, head } = view;
    let pending = head.as_ref().filter(|head| !head.interrupts.is_empty());
    let interrupts = pending.map_or_else(
        || json!({}),
        |head| json!({ ids::hyphenated(head.id.uuid()): interrupts::write_list(head) }),
    );
    json!({
        "thread_id": thread.id.as_str(), "created_at": rfc3339(thread.created_at),
        "updated_at": rfc3339(thread.updated_at), "metadata": thread.metadata, "status": thread.status,
        "config": {}, "values": head.as_ref().map(|head| values(&head.state)), "interrupts": interrupts,
        "error": thread.error,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CreateBody {
    thread_id: Option<String>,
    metadata: Option<Metadata>,
    if_exists: Option<String>,
    graph_id: Option<String>,
    supersteps: Option<Vec<Value>>,
    ttl: Option<Value>,
}

/// Refuses a time to live: a client that sets one counts on the end of what it stored.
fn lives_on(ttl: Option<&Value>) -> Result<()> {
    match ttl {
        None => Ok(()),
        Some(_) => Err(Error::invalid("ttl", "threads stay until they are deleted")),
    }
}

async fn create(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<Value>, Failure> {
    let body: CreateBody = json(&body)?;
    if body.supersteps.is_some_and(|steps| !steps.is_empty()) {
        let message = "a thread is made empty; set its state with POST /threads/{thread_id}/state";
        return Err(Error::invalid("supersteps", message).into());
    }
    lives_on(body.ttl.as_ref())?;
    let mut metadata = body.metadata.unwrap_or_default();
    metadata.extend(body.graph_id.map(|graph| ("graph_id".to_owned(), graph.into())));
    let new = NewThreadRequest {
        id: body.thread_id.map(|id| id.parse()).transpose()?,
        metadata,
        if_exists: if_exists(body.if_exists.as_deref())?,
    };
    Ok(Json(item(&app.agents.create_thread(&caller, new).await?)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SearchBody {
    metadata: Option<Metadata>,
    values: Option<Metadata>,
    ids: Option<Vec<String>>,
    status: Option<String>,
    limit: Option<u32>,
    offset: Option<u32>,
    sort_by: Option<String>,
    sort_order: Option<String>,
    select: Option<Vec<String>>,
}

/// The value of a field that has a few names.
fn named<T>(text: Option<&str>, field: &str, of: fn(&str) -> Option<T>) -> Result<Option<T>> {
    let unknown = || Error::invalid(field, format!("{field} has no such value"));
    text.map(|text| of(text).ok_or_else(unknown)).transpose()
}

impl SearchBody {
    fn query(&self, owner: &str) -> Result<ThreadQuery> {
        if self.values.as_ref().is_some_and(|values| !values.is_empty()) {
            return Err(Error::invalid("values", "threads are found by their metadata, ids and status"));
        }
        let ids = self.ids.iter().flatten().map(|id| id.parse()).collect::<Result<_>>()?;
        let usual = ThreadQuery::of(owner);
        Ok(ThreadQuery {
            ids,
            metadata: self.metadata.clone().unwrap_or_default(),
            status: named(self.status.as_deref(), "status", ThreadStatus::from_name)?,
            sort: named(self.sort_by.as_deref(), "sort_by", ThreadSort::from_name)?.unwrap_or(usual.sort),
            ascending: self.sort_order.as_deref().is_some_and(|order| order.eq_ignore_ascii_case("asc")),
            limit: limit(self.limit)?,
            offset: self.offset.unwrap_or(0),
            ..usual
        })
    }
}

async fn search(
    State(app): State<App>,
    LookUp(caller, body): LookUp,
) -> Result<(HeaderMap, Json<Value>), Failure> {
    let body: SearchBody = json(&body)?;
    let query = body.query(&caller.owner)?;
    let wants = |name: &str| body.select.as_ref().is_none_or(|all| all.iter().any(|one| one == name));
    let (found, all) = if wants("values") || wants("interrupts") {
        app.agents.threads_with_states(&caller, &query).await?
    } else {
        let found = app.agents.threads(&caller, &query).await?;
        (found.into_iter().map(|thread| ThreadView { thread, head: None }).collect(), true)
    };
    // The next page begins after what this answer has room for.
    let most = if all { query.limit } else { u32::try_from(found.len()).unwrap_or(query.limit) };
    let next = next_page(query.offset, most, found.len());
    let mut items: Vec<_> = found.iter().map(item).collect();
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.retain(|name, _| wants(name));
    }
    Ok((next, Json(items.into())))
}

async fn count(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<u64>, Failure> {
    let query = json::<SearchBody>(&body)?.query(&caller.owner)?;
    Ok(Json(app.agents.count_threads(&caller, &query).await?))
}

async fn read(
    State(app): State<App>,
    Path(thread): Path<String>,
    LookUp(caller, _): LookUp,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    Ok(Json(item(&app.agents.thread(&caller, &thread).await?)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PatchBody {
    metadata: Option<Metadata>,
    ttl: Option<Value>,
}

async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    let PatchBody { metadata, ttl } = required_json(&body)?;
    lives_on(ttl.as_ref())?;
    let metadata = metadata.unwrap_or_default();
    Ok(Json(item(&app.agents.patch_thread(&caller, &thread, metadata).await?)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CopyBody {
    /// Whether the copy has forks of the sessions' sandboxes.
    sandboxes: bool,
}

async fn copy(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    // Clients of this API send nothing, or null.
    let asked =
        if body.is_empty() || &body[..] == b"null" { CopyBody::default() } else { required_json(&body)? };
    Ok(Json(item(&app.agents.copy_thread(&caller, &thread, asked.sandboxes).await?)))
}

#[derive(Debug, Deserialize)]
struct PruneBody {
    thread_ids: Vec<String>,
    strategy: Option<String>,
}

/// Deletes several threads. Those that are gone, or another owner's, are not counted.
async fn prune(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<Value>, Failure> {
    let PruneBody { thread_ids, strategy } = required_json(&body)?;
    if !matches!(strategy.as_deref(), None | Some("delete")) {
        return Err(Error::invalid("strategy", "expected delete; checkpoints of a thread are kept").into());
    }
    if thread_ids.len() > MOST_PRUNED {
        return Err(Error::invalid("thread_ids", format!("at most {MOST_PRUNED} at once")).into());
    }
    let ids = thread_ids.iter().map(|id| id.parse()).collect::<Result<Vec<_>>>()?;
    let mut pruned = 0_u32;
    for id in &ids {
        match app.agents.delete_thread(&caller, id).await {
            Ok(()) => pruned += 1,
            Err(error) if error.code == atoll_types::ErrorCode::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(json!({ "pruned_count": pruned })))
}
