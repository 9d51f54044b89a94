//! Making, listing and revoking preview tokens, and looking which ports there are to preview.

use crate::{
    App,
    parse::{Raw, json, preview_token_id, sandbox_id, seconds},
};
use atoll_http::{Failure, ServerAddress, Who};
use atoll_types::{PreviewTokenRecord, time::rfc3339};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A token to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewTokenBody {
    /// The one port that it opens; all, where none is named.
    #[schema(minimum = 1, maximum = 65535)]
    port: Option<u16>,
    /// For how long. An hour, where nothing is said.
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    ttl_seconds: Option<u32>,
}

/// A token that opens a port, or all of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewTokenItem {
    /// By which it is listed and revoked.
    id: Uuid,
    token: String,
    port: Option<u16>,
    created_at: String,
    expires_at: String,
    /// Where the port's page is, below this server's own address. Only with a port.
    url: Option<String>,
    /// The same by a name of its own. Only with a port, and where there is a preview domain that
    /// the caller's machine reaches.
    host_url: Option<String>,
}

/// Makes a token that opens one port, or all of them, to anyone who has it.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/preview-tokens", tag = "preview", params(("id" = uuid::Uuid, Path)),
    request_body = PreviewTokenBody,
    responses((status = 201, body = PreviewTokenItem), (status = 404), (status = 422, description = "A field is wrong")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    address: ServerAddress,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<PreviewTokenItem>), Failure> {
    let id = sandbox_id(&id)?;
    let PreviewTokenBody { port, ttl_seconds } = json(&body)?;
    let made = app.core.ports.preview_token(&caller, id, port, ttl_seconds).await?;
    let ServerAddress { scheme, host } = &address;
    let token = made.token;
    let path = |port| format!("{scheme}://{host}/api/v1/sandboxes/{}/ports/{port}~{token}/", id.uuid());
    let named = |port| {
        let domain = app.preview.domain.as_ref().filter(|domain| domain.is_reached_from(host))?;
        Some(format!("{}/?atoll_token={token}", domain.url(scheme, host, port, id)))
    };
    let (url, host_url) = (port.map(path), port.and_then(named));
    let ValidPreviewToken { id, port, created_at, expires_at } = made.record.into();
    Ok((
        StatusCode::CREATED,
        Json(PreviewTokenItem { id, token, port, created_at, expires_at, url, host_url }),
    ))
}

/// A preview token that is valid. What a browser sends is not kept.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValidPreviewToken {
    id: Uuid,
    /// The one port that it opens; null for all.
    #[schema(minimum = 1, maximum = 65535)]
    port: Option<u16>,
    created_at: String,
    expires_at: String,
}

impl From<PreviewTokenRecord> for ValidPreviewToken {
    fn from(record: PreviewTokenRecord) -> Self {
        let PreviewTokenRecord { id, sandbox: _, port, created_at, expires_at } = record;
        Self { id: id.uuid(), port, created_at: rfc3339(created_at), expires_at: rfc3339(expires_at) }
    }
}

/// Lists the preview tokens of a sandbox that are valid, the newest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/preview-tokens", tag = "preview", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Vec<ValidPreviewToken>), (status = 404)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Vec<ValidPreviewToken>>, Failure> {
    let tokens = app.core.ports.preview_tokens(&caller, sandbox_id(&id)?).await?;
    Ok(Json(tokens.into_iter().map(Into::into).collect()))
}

/// Revokes a preview token. It opens nothing from then on, and the connections that it opened are closed.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/preview-tokens/{token_id}", tag = "preview",
    params(("id" = uuid::Uuid, Path), ("token_id" = uuid::Uuid, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, token_id)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let (id, token_id) = (sandbox_id(&id)?, preview_token_id(&token_id)?);
    app.core.ports.revoke_preview_token(&caller, id, token_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ports of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortItem {
    port: u16,
}

/// Lists the ports that something listens on inside, on its loopback.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/ports", tag = "preview", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Vec<PortItem>), (status = 404), (status = 409)))]
pub(crate) async fn ports(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Vec<PortItem>>, Failure> {
    let ports = app.core.ports.listening(&caller, sandbox_id(&id)?).await?;
    Ok(Json(ports.into_iter().map(|port| PortItem { port }).collect()))
}
