//! Items that a client stores beside its conversations.

use crate::App;
use atoll_http::{Failure, LookUp, Params, Raw, Who, required_json};
use atoll_types::{
    Error, Result,
    conversation::{ItemQuery, Metadata, NamespaceQuery, StoreItem},
    time::rfc3339,
};
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{post, put},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most that one page has.
const MOST: u32 = 1000;

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/store/items", put(store).get(read).delete(remove))
        .route("/store/items/search", post(search))
        .route("/store/namespaces", post(namespaces))
}

fn item(item: StoreItem) -> Value {
    let StoreItem { namespace, key, value, created_at, updated_at } = item;
    json!({
        "namespace": namespace, "key": key, "value": value, "created_at": rfc3339(created_at),
        "updated_at": rfc3339(updated_at),
    })
}

fn page(limit: Option<u32>, usual: u32) -> Result<u32> {
    match limit.unwrap_or(usual) {
        limit if (1..=MOST).contains(&limit) => Ok(limit),
        _ => Err(Error::invalid("limit", format!("limit must be between 1 and {MOST}"))),
    }
}

#[derive(Debug, Deserialize)]
struct PutBody {
    #[serde(default)]
    namespace: Vec<String>,
    key: String,
    value: Metadata,
    #[serde(default)]
    ttl: Option<Value>,
}

async fn store(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<StatusCode, Failure> {
    let PutBody { namespace, key, value, ttl } = required_json(&body)?;
    if ttl.is_some() {
        return Err(Error::invalid("ttl", "items stay until they are deleted").into());
    }
    app.agents.put_item(&caller, namespace, key, value).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
struct ReadQuery {
    key: String,
    /// The words with dots between them.
    namespace: Option<String>,
}

async fn read(
    State(app): State<App>,
    Who(caller): Who,
    Params(ReadQuery { key, namespace }): Params<ReadQuery>,
) -> Result<Json<Value>, Failure> {
    let namespace: Vec<String> = match namespace.as_deref() {
        None | Some("") => Vec::new(),
        Some(words) => words.split('.').map(str::to_owned).collect(),
    };
    let found = app.agents.item(&caller, &namespace, &key).await?;
    Ok(Json(found.map_or(Value::Null, item)))
}

#[derive(Debug, Deserialize)]
struct DeleteBody {
    #[serde(default)]
    namespace: Vec<String>,
    key: String,
}

async fn remove(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<StatusCode, Failure> {
    let DeleteBody { namespace, key } = required_json(&body)?;
    app.agents.delete_item(&caller, &namespace, &key).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SearchBody {
    namespace_prefix: Vec<String>,
    filter: Option<Metadata>,
    query: Option<String>,
    limit: Option<u32>,
    offset: Option<u32>,
}

async fn search(State(app): State<App>, LookUp(caller, body): LookUp) -> Result<Json<Value>, Failure> {
    let SearchBody { namespace_prefix, filter, query, limit, offset } = atoll_http::json(&body)?;
    let query = ItemQuery {
        prefix: namespace_prefix,
        filter: filter.unwrap_or_default(),
        text: query.filter(|text| !text.is_empty()),
        limit: page(limit, 10)?,
        offset: offset.unwrap_or(0),
    };
    let items: Vec<_> = app.agents.items(&caller, &query).await?.into_iter().map(item).collect();
    Ok(Json(json!({ "items": items })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespacesBody {
    prefix: Option<Vec<String>>,
    suffix: Option<Vec<String>>,
    max_depth: Option<u32>,
    limit: Option<u32>,
    offset: Option<u32>,
}

async fn namespaces(State(app): State<App>, LookUp(caller, body): LookUp) -> Result<Json<Value>, Failure> {
    let NamespacesBody { prefix, suffix, max_depth, limit, offset } = atoll_http::json(&body)?;
    let query = NamespaceQuery {
        prefix: prefix.unwrap_or_default(),
        suffix: suffix.unwrap_or_default(),
        depth: max_depth,
        limit: page(limit, 100)?,
        offset: offset.unwrap_or(0),
    };
    Ok(Json(json!({ "namespaces": app.agents.namespaces(&caller, &query).await? })))
}
