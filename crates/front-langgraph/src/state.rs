//! States of threads: what a conversation is at a checkpoint, and its history.

use crate::{App, ids, interrupts, messages};
use atoll_agent::StateUpdate;
use atoll_http::{Failure, LookUp, Params, Raw, Who, json, required_json};
use atoll_types::{
    Error, Result, ThreadId,
    conversation::{Checkpoint, CheckpointQuery, ConversationState, Metadata, Node},
    time::rfc3339,
};
use axum::{
    Json, Router,
    extract::{Path, State},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/threads/{thread_id}/state", get(read).post(update))
        .route("/threads/{thread_id}/state/checkpoint", post(read_at_body))
        .route("/threads/{thread_id}/state/{checkpoint_id}", get(read_at))
        .route("/threads/{thread_id}/history", get(history_by_query).post(history))
}

/// The values of a state.
pub(crate) fn values(state: &ConversationState) -> Value {
    let mut values = state.values.clone();
    values.insert("messages".into(), messages::write_list(&state.messages));
    Value::Object(values)
}

/// How a checkpoint is named.
pub(crate) fn reference(thread: &ThreadId, id: Option<atoll_types::ThreadCheckpointId>) -> Value {
    json!({
        "thread_id": thread.as_str(), "checkpoint_ns": "", "checkpoint_map": null,
        "checkpoint_id": id.map(|id| ids::hyphenated(id.uuid())),
    })
}

/// What is known about a checkpoint beside its state.
pub(crate) fn metadata(checkpoint: &Checkpoint) -> Value {
    let mut known = checkpoint.metadata.clone();
    known.insert("source".into(), checkpoint.source.as_str().into());
    known.insert("step".into(), checkpoint.step.into());
    known.insert("parents".into(), json!({}));
    known.insert("thread_id".into(), checkpoint.thread.as_str().into());
    known.extend(checkpoint.run.map(|run| ("run_id".to_owned(), ids::hyphenated(run.uuid()).into())));
    Value::Object(known)
}

/// What comes next at a checkpoint, as a task. Its id is the checkpoint's.
pub(crate) fn tasks(checkpoint: &Checkpoint) -> Vec<Value> {
    let task = |node: Node| {
        json!({
            "id": ids::hyphenated(checkpoint.id.uuid()), "name": node, "path": ["__pregel_pull", node],
            "error": null, "interrupts": interrupts::write_list(checkpoint), "checkpoint": null, "state": null,
            "result": null,
        })
    };
    checkpoint.next.map(task).into_iter().collect()
}

/// The state at a checkpoint.
pub(crate) fn state(checkpoint: &Checkpoint) -> Value {
    let thread = &checkpoint.thread;
    json!({
        "values": values(&checkpoint.state),
        "next": checkpoint.next.into_iter().collect::<Vec<_>>(),
        "tasks": tasks(checkpoint),
        "checkpoint": reference(thread, Some(checkpoint.id)),
        "metadata": metadata(checkpoint),
        "created_at": rfc3339(checkpoint.created_at),
        "parent_checkpoint": checkpoint.parent.map(|parent| reference(thread, Some(parent))),
        "interrupts": interrupts::write_list(checkpoint),
    })
}

/// The state of a thread in which nothing was said.
fn no_state(thread: &ThreadId) -> Value {
    json!({
        "values": { "messages": [] }, "next": [], "tasks": [], "checkpoint": reference(thread, None),
        "metadata": {}, "created_at": null, "parent_checkpoint": null, "interrupts": [],
    })
}

async fn read(
    State(app): State<App>,
    Path(thread): Path<String>,
    LookUp(caller, _): LookUp,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    let head = app.agents.state(&caller, &thread, None).await?;
    Ok(Json(head.map_or_else(|| no_state(&thread), |head| state(&head))))
}

async fn read_at(
    State(app): State<App>,
    Path((thread, checkpoint)): Path<(String, String)>,
    LookUp(caller, _): LookUp,
) -> Result<Json<Value>, Failure> {
    let (thread, at) = (ids::thread_of(&thread)?, ids::checkpoint_id(&checkpoint).map_err(Failure::in_path)?);
    let found = app.agents.state(&caller, &thread, Some(at)).await?;
    Ok(Json(state(&found.ok_or_else(|| ids::not_found("checkpoint"))?)))
}

/// A checkpoint as a client names it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CheckpointRef {
    pub(crate) checkpoint_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AtBody {
    checkpoint: CheckpointRef,
}

async fn read_at_body(
    State(app): State<App>,
    Path(thread): Path<String>,
    LookUp(caller, body): LookUp,
) -> Result<Json<Value>, Failure> {
    let AtBody { checkpoint } = required_json(&body)?;
    let thread = ids::thread_of(&thread)?;
    let at = checkpoint.checkpoint_id.as_deref().map(ids::checkpoint_id).transpose()?;
    let found = app.agents.state(&caller, &thread, at).await?;
    Ok(Json(found.map_or_else(|| no_state(&thread), |found| state(&found))))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UpdateBody {
    values: Value,
    as_node: Option<String>,
    checkpoint: Option<CheckpointRef>,
    checkpoint_id: Option<String>,
}

/// Messages, those to remove and other values of an update.
fn update_of(values: Value) -> Result<(Vec<atoll_types::conversation::Message>, Vec<String>, Metadata)> {
    let mut values = match values {
        Value::Null => Metadata::new(),
        Value::Object(values) => values,
        _ => return Err(Error::invalid("values", "values must be an object")),
    };
    let given = values.remove("messages").unwrap_or_default();
    let is_removal =
        |one: &Value| ["type", "role"].iter().any(|name| one.get(name).is_some_and(|kind| kind == "remove"));
    let list = match given {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        one => vec![one],
    };
    let (removed, kept): (Vec<_>, Vec<_>) = list.into_iter().partition(is_removal);
    let removed = removed.iter().filter_map(|one| one.get("id")?.as_str().map(str::to_owned)).collect();
    Ok((messages::read_list(&kept.into(), "values.messages")?, removed, values))
}

fn node(name: &str) -> Result<Option<Node>> {
    match name {
        "__start__" | "__input__" | "__copy__" => Ok(None),
        name => Node::from_name(name)
            .map(Some)
            .ok_or_else(|| Error::invalid("as_node", "expected agent or tools")),
    }
}

async fn update(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    let UpdateBody { values, as_node, checkpoint, checkpoint_id } = required_json(&body)?;
    let at = checkpoint_id.or(checkpoint.and_then(|at| at.checkpoint_id));
    let (messages, removed, values) = update_of(values)?;
    let update = StateUpdate {
        messages,
        removed,
        values,
        at: at.as_deref().map(ids::checkpoint_id).transpose()?,
        as_node: as_node.as_deref().map(node).transpose()?.flatten(),
        metadata: Metadata::new(),
    };
    let made = app.agents.update_state(&caller, &thread, update).await?;
    let reference = reference(&thread, Some(made.id));
    Ok(Json(
        json!({ "checkpoint": reference, "configurable": reference, "checkpoint_id": ids::hyphenated(made.id.uuid()) }),
    ))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HistoryBody {
    limit: Option<u32>,
    before: Option<Value>,
    metadata: Option<Metadata>,
}

/// The id of a checkpoint that is named by itself, by a reference or by a configuration.
fn before_of(before: &Value) -> Option<&str> {
    before
        .as_str()
        .or_else(|| before.get("checkpoint_id")?.as_str())
        .or_else(|| before.get("configurable")?.get("checkpoint_id")?.as_str())
}

async fn history_of(
    app: &App,
    caller: &atoll_core::Caller,
    thread: &str,
    body: HistoryBody,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(thread)?;
    let before = body.before.as_ref().and_then(before_of).map(ids::checkpoint_id).transpose()?;
    let limit = crate::assistants::limit(body.limit)?;
    let query = CheckpointQuery { before, run: None, metadata: body.metadata.unwrap_or_default(), limit };
    let found = app.agents.history(caller, &thread, &query).await?;
    Ok(Json(found.iter().map(state).collect()))
}

async fn history(
    State(app): State<App>,
    Path(thread): Path<String>,
    LookUp(caller, body): LookUp,
) -> Result<Json<Value>, Failure> {
    history_of(&app, &caller, &thread, json(&body)?).await
}

#[derive(Debug, Deserialize)]
struct HistoryQuery {
    limit: Option<u32>,
    before: Option<String>,
}

async fn history_by_query(
    State(app): State<App>,
    Path(thread): Path<String>,
    Params(HistoryQuery { limit, before }): Params<HistoryQuery>,
    LookUp(caller, _): LookUp,
) -> Result<Json<Value>, Failure> {
    let body = HistoryBody { limit, before: before.map(Value::from), ..HistoryBody::default() };
    history_of(&app, &caller, &thread, body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_no_message() {
        let values = json!({ "messages": [{ "type": "remove", "id": "m1" }, { "role": "user", "content": "x" }], "n": 1 });
        let (messages, removed, others) = update_of(values).unwrap();
        assert_eq!((messages.len(), removed, others.len()), (1, vec!["m1".to_owned()], 1));
        assert!(update_of(json!([])).is_err());
    }

    #[test]
    fn a_checkpoint_is_named_in_three_ways() {
        for before in
            [json!("x"), json!({ "checkpoint_id": "x" }), json!({ "configurable": { "checkpoint_id": "x" } })]
        {
            assert_eq!(before_of(&before), Some("x"));
        }
        assert_eq!(before_of(&json!({})), None);
    }
}
