//! Assistants: configurations of the agent. `sandbox-agent` and `agent` exist from the start, for every owner.

use crate::{App, graph, ids};
use atoll_agent::{IfExists, NewAssistantRequest, PatchAssistant};
use atoll_http::{Failure, LookUp, Raw, Who, json, required_json};
use atoll_types::{
    Error, Result,
    conversation::{Assistant, AssistantQuery, Metadata},
    time::rfc3339,
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/assistants", post(create))
        .route("/assistants/search", post(search))
        .route("/assistants/count", post(count))
        .route("/assistants/{assistant_id}", get(read).patch(patch).delete(remove))
        .route("/assistants/{assistant_id}/graph", get(drawing))
        .route("/assistants/{assistant_id}/schemas", get(schemas))
        .route("/assistants/{assistant_id}/subgraphs", get(subgraphs))
        .route("/assistants/{assistant_id}/subgraphs/{namespace}", get(subgraphs_below))
        .route("/assistants/{assistant_id}/versions", post(versions))
        .route("/assistants/{assistant_id}/latest", post(latest))
}

fn item(assistant: &Assistant) -> Value {
    let Assistant {
        id,
        graph,
        name,
        description,
        config,
        context,
        metadata,
        version,
        created_at,
        updated_at,
    } = assistant;
    json!({
        "assistant_id": ids::hyphenated(id.uuid()), "graph_id": graph, "name": name, "description": description,
        "config": config, "context": context, "metadata": metadata, "version": version,
        "created_at": rfc3339(*created_at), "updated_at": rfc3339(*updated_at),
    })
}

/// What is done where the thing exists.
pub(crate) fn if_exists(text: Option<&str>) -> Result<IfExists> {
    match text {
        None | Some("raise") => Ok(IfExists::Raise),
        Some("do_nothing") => Ok(IfExists::DoNothing),
        Some(_) => Err(Error::invalid("if_exists", "expected raise or do_nothing")),
    }
}

/// The page's size within its bounds.
pub(crate) fn limit(limit: Option<u32>) -> Result<u32> {
    match limit.unwrap_or(10) {
        limit if (1..=1000).contains(&limit) => Ok(limit),
        _ => Err(Error::invalid("limit", "limit must be between 1 and 1000")),
    }
}

/// Says where the next page begins, if this one is full.
pub(crate) fn next_page(offset: u32, limit: u32, found: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if found >= limit as usize {
        headers.insert("x-pagination-next", offset.saturating_add(limit).into());
    }
    headers
}

#[derive(Debug, Deserialize)]
struct CreateBody {
    graph_id: String,
    assistant_id: Option<String>,
    config: Option<Value>,
    context: Option<Value>,
    #[serde(default)]
    metadata: Option<Metadata>,
    if_exists: Option<String>,
    name: Option<String>,
    description: Option<String>,
}

fn object(value: Option<Value>, field: &str) -> Result<Option<Value>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) if value.is_object() => Ok(Some(value)),
        Some(_) => Err(Error::invalid(field, format!("{field} must be an object"))),
    }
}

async fn create(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<Value>, Failure> {
    let body: CreateBody = required_json(&body)?;
    let empty = || Value::Object(Metadata::new());
    let new = NewAssistantRequest {
        id: body.assistant_id.as_deref().map(ids::assistant_id).transpose()?,
        graph: body.graph_id,
        name: body.name,
        description: body.description,
        config: object(body.config, "config")?.unwrap_or_else(empty),
        context: object(body.context, "context")?.unwrap_or_else(empty),
        metadata: body.metadata.unwrap_or_default(),
        if_exists: if_exists(body.if_exists.as_deref())?,
    };
    Ok(Json(item(&app.agents.create_assistant(&caller, new).await?)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SearchBody {
    graph_id: Option<String>,
    name: Option<String>,
    metadata: Option<Metadata>,
    limit: Option<u32>,
    offset: Option<u32>,
}

impl SearchBody {
    fn query(self) -> Result<AssistantQuery> {
        Ok(AssistantQuery {
            graph: self.graph_id,
            name: self.name,
            metadata: self.metadata.unwrap_or_default(),
            limit: limit(self.limit)?,
            offset: self.offset.unwrap_or(0),
        })
    }
}

async fn search(
    State(app): State<App>,
    LookUp(caller, body): LookUp,
) -> Result<(HeaderMap, Json<Value>), Failure> {
    let query = json::<SearchBody>(&body)?.query()?;
    let found = app.agents.assistants(&caller, &query).await?;
    let next = next_page(query.offset, query.limit, found.len());
    Ok((next, Json(found.iter().map(item).collect())))
}

async fn count(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<u64>, Failure> {
    let query = json::<SearchBody>(&body)?.query()?;
    Ok(Json(app.agents.count_assistants(&caller, &query).await?))
}

async fn read(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(item(&app.agents.assistant(&caller, &id).await?)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PatchBody {
    graph_id: Option<String>,
    config: Option<Value>,
    context: Option<Value>,
    metadata: Option<Metadata>,
    name: Option<String>,
    description: Option<String>,
}

async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let body: PatchBody = required_json(&body)?;
    let patch = PatchAssistant {
        graph: body.graph_id,
        name: body.name,
        description: body.description,
        config: object(body.config, "config")?,
        context: object(body.context, "context")?,
        metadata: body.metadata,
    };
    Ok(Json(item(&app.agents.patch_assistant(&caller, &id, patch).await?)))
}

async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id = app.agents.assistant(&caller, &id).await?.id;
    app.agents.delete_assistant(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn drawing(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.agents.assistant(&caller, &id).await?;
    Ok(Json(graph::drawing()))
}

async fn schemas(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(graph::schemas(&app.agents.assistant(&caller, &id).await?)))
}

/// The agent has none.
async fn subgraphs(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.agents.assistant(&caller, &id).await?;
    Ok(Json(json!({})))
}

async fn subgraphs_below(
    state: State<App>,
    who: Who,
    Path((id, _namespace)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    subgraphs(state, who, Path(id)).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VersionsBody {
    metadata: Option<Metadata>,
    limit: Option<u32>,
    offset: Option<u32>,
}

async fn versions(
    State(app): State<App>,
    Path(id): Path<String>,
    LookUp(caller, body): LookUp,
) -> Result<Json<Value>, Failure> {
    let VersionsBody { metadata, limit: most, offset } = json(&body)?;
    let (metadata, most) = (metadata.unwrap_or_default(), limit(most)?);
    let all = app.agents.assistant_versions(&caller, &id).await?;
    let fits = |one: &&Assistant| atoll_types::conversation::metadata_match(&one.metadata, &metadata);
    let page = all.iter().filter(fits).skip(offset.unwrap_or(0) as usize).take(most as usize);
    Ok(Json(page.map(item).collect()))
}

#[derive(Debug, Deserialize)]
struct LatestBody {
    version: u32,
}

async fn latest(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let LatestBody { version } = required_json(&body)?;
    let id = app.agents.assistant(&caller, &id).await?.id;
    Ok(Json(item(&app.agents.set_assistant_version(&caller, id, version).await?)))
}
