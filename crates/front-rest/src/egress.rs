//! What sandboxes may reach, and what they asked for.

use crate::{
    App,
    parse::{Params, Raw, json, required_json, sandbox_id, seconds},
};
use atoll_core::{EgressEntry, EgressPreset, EgressView, ListedEntry, Policy, Refusals};
use atoll_http::{Failure, Who};
use atoll_types::{
    Error,
    audit::{Egress, EgressQuery, EgressRow, EgressTotals},
    time::rfc3339,
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What a sandbox may reach.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // The policy itself is read and written by its own crate.
pub(crate) struct EgressPolicy {
    /// none, allowlist or full.
    #[schema(example = "allowlist", required = false)]
    mode: String,
    /// Named lists, such as python, node, rust, debian, r, github; see /api/v1/egress/presets.
    #[schema(required = false)]
    presets: Vec<String>,
    /// Hosts, *.suffix, host:port, addresses and ranges. In the mode full: addresses that are out of reach
    /// otherwise.
    #[schema(required = false)]
    allow: Vec<EgressEntryShape>,
    /// What is not reachable, whatever else is written.
    #[schema(required = false)]
    deny: Vec<EgressEntryShape>,
    #[schema(required = false)]
    limits: EgressLimits,
}

/// A text, or an object for some requests of HTTP only.
#[derive(ToSchema)]
#[schema(as = EgressEntry)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum EgressEntryShape {
    Text(String),
    Requests {
        to: String,
        #[schema(required = false)]
        methods: Vec<String>,
        /// Prefixes of paths.
        #[schema(required = false)]
        paths: Vec<String>,
    },
}

/// What a sandbox may use of the network; without a bound where one is left out.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(crate) struct EgressLimits {
    /// At one time.
    #[schema(minimum = 1)]
    connections: Option<u32>,
    #[schema(minimum = 1)]
    connections_per_second: Option<u32>,
    /// In both directions together, as long as the sandbox runs.
    #[schema(minimum = 1)]
    bytes: Option<u64>,
    #[schema(minimum = 1)]
    bytes_per_second: Option<u64>,
    /// How long one connection may last. A fraction counts as a second more.
    #[schema(value_type = Option<f64>)]
    connection_seconds: Option<u32>,
}

/// An entry in force, and where it comes from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EffectiveEntry {
    #[schema(value_type = EgressEntryShape)]
    entry: EgressEntry,
    /// allow, or a preset.
    by: String,
}

/// What was refused for one host.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedHost {
    host: String,
    port: Option<u16>,
    /// The rule that decided the last time.
    rule: String,
    count: u64,
    last_at: String,
}

/// What a sandbox may reach, and what it did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EgressInfo {
    #[schema(value_type = EgressPolicy)]
    policy: Policy,
    /// What is allowed, with presets filled in.
    allow: Vec<EffectiveEntry>,
    /// Whether the server serves its proxy: while it runs.
    served: bool,
    /// Whether tools that know no proxy get out too; none while it does not run.
    transparent: Option<bool>,
    /// Why nothing gets out though it should.
    problem: Option<String>,
    connections_open: u64,
    /// Decisions.
    allowed: u64,
    refused: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// The last ones, by host.
    refusals: Vec<RefusedHost>,
}

impl From<EgressView> for EgressInfo {
    fn from(view: EgressView) -> Self {
        let EgressView { policy, allow, served, transparent, problem, open, totals, refusals } = view;
        let EgressTotals { allowed, refused, sent, received } = totals;
        let of_host = |r: Refusals| {
            let Refusals { host, port, rule, count, last_at } = r;
            RefusedHost { host, port, rule, count, last_at: rfc3339(last_at) }
        };
        Self {
            policy,
            allow: allow.into_iter().map(|(by, entry)| EffectiveEntry { entry, by }).collect(),
            served,
            transparent,
            problem,
            connections_open: open,
            allowed,
            refused,
            bytes_sent: sent,
            bytes_received: received,
            refusals: refusals.into_iter().map(of_host).collect(),
        }
    }
}

/// A token to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EgressTokenBody {
    /// For how long. Four hours, where nothing is said.
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    ttl_seconds: Option<u32>,
}

/// What a sandbox that reaches the proxy over a network signs in with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EgressTokenItem {
    /// The user of the proxy.
    username: &'static str,
    /// Its password: the token.
    password: String,
    expires_at: String,
}

/// Makes a token with which a sandbox reaches the proxy over a network, under its own policy.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/egress/tokens", tag = "egress", params(("id" = uuid::Uuid, Path)),
    request_body = EgressTokenBody,
    responses((status = 201, body = EgressTokenItem), (status = 404), (status = 422, description = "A field is wrong")))]
pub(crate) async fn token(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<EgressTokenItem>), Failure> {
    let EgressTokenBody { ttl_seconds } = json(&body)?;
    let made = app.core.egress.issue_token(&caller, sandbox_id(&id)?, ttl_seconds).await?;
    let (password, expires_at) = (format!("jwt_{}", made.token), rfc3339(made.expires_at));
    Ok((StatusCode::CREATED, Json(EgressTokenItem { username: "sandbox", password, expires_at })))
}

/// A decision.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EgressItem {
    /// The row of the audit trail.
    seq: u64,
    at: String,
    sandbox_id: Uuid,
    /// The operation that caused it, where that is known.
    operation_id: Option<Uuid>,
    /// connect, http, socks, transparent, name; or several, for what was too much to be told one by one.
    via: String,
    host: String,
    port: Option<u16>,
    /// The address that was connected to.
    address: Option<String>,
    method: Option<String>,
    path: Option<String>,
    /// allowed or refused.
    verdict: &'static str,
    /// The rule that decided.
    rule: String,
    /// What went wrong after it was allowed.
    error: Option<String>,
    bytes_sent: u64,
    bytes_received: u64,
    duration_ms: f64,
    /// How many equal decisions this one stands for.
    count: u64,
}

impl From<EgressRow> for EgressItem {
    fn from(row: EgressRow) -> Self {
        let EgressRow { seq, operation, at, facts } = row;
        let Egress {
            sandbox,
            via,
            host,
            port,
            address,
            method,
            path,
            allowed,
            rule,
            error,
            sent,
            received,
            duration_us,
            count,
        } = facts;
        // Beyond centuries.
        let duration_ms = duration_us as f64 / 1000.0;
        Self {
            seq,
            at: rfc3339(at),
            sandbox_id: sandbox.uuid(),
            operation_id: operation.map(|id| id.uuid()),
            via,
            host,
            port,
            address,
            method,
            path,
            verdict: if allowed { "allowed" } else { "refused" },
            rule,
            error,
            bytes_sent: sent,
            bytes_received: received,
            duration_ms,
            count,
        }
    }
}

/// Some decisions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EgressLog {
    entries: Vec<EgressItem>,
    /// Where the next page begins: its `before`. None after the last page.
    next_before: Option<u64>,
}

/// What a sandbox may reach, and what it did.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/egress", tag = "egress", params(("id" = Uuid, Path)),
    responses((status = 200, body = EgressInfo), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<EgressInfo>, Failure> {
    Ok(Json(app.core.egress.view(&caller, sandbox_id(&id)?).await?.into()))
}

/// Here the policy is the whole body.
fn whole(error: Error) -> Error {
    match &error.field {
        Some(field) => match field.strip_prefix("egress.") {
            Some(inner) => Error { field: Some(inner.to_owned()), ..error },
            None => error,
        },
        None => error,
    }
}

/// Replaces what a sandbox may reach; without a body nothing is changed. It applies to a running sandbox at once, open connections included.
#[utoipa::path(put, path = "/api/v1/sandboxes/{id}/egress", tag = "egress", params(("id" = Uuid, Path)),
    request_body = EgressPolicy,
    responses((status = 200, body = EgressInfo), (status = 403, description = "The key's tier does not allow it"),
        (status = 404), (status = 422)))]
pub(crate) async fn put(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Json<EgressInfo>, Failure> {
    let id = sandbox_id(&id)?;
    let policy: Policy = required_json(&body)?;
    Ok(Json(app.core.egress.set(&caller, id, policy).await.map_err(whole)?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParams {
    /// allowed or refused.
    verdict: Option<String>,
    /// For this host; the case of ASCII letters makes no difference.
    host: Option<String>,
    /// In a row before this one: `next_before` of the page before.
    before: Option<u64>,
    /// 50, unless said otherwise.
    limit: Option<u32>,
}

/// What a sandbox asked for and what was decided, the latest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/egress/log", tag = "egress",
    params(("id" = Uuid, Path), LogParams),
    responses((status = 200, body = EgressLog), (status = 404), (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn log(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<LogParams>,
) -> Result<Json<EgressLog>, Failure> {
    let LogParams { verdict, host, before, limit } = params;
    let allowed = match verdict.as_deref() {
        None => None,
        Some("allowed") => Some(true),
        Some("refused") => Some(false),
        Some(_) => {
            return Err(Failure::in_query(Error::invalid("verdict", "expected allowed or refused")));
        }
    };
    let limit = limit.unwrap_or(50);
    let sandbox = Some(sandbox_id(&id)?);
    let query = EgressQuery { sandbox, operation: None, allowed, host, before, limit };
    let found = app.core.egress.log(&caller, query).await.map_err(Failure::in_query)?;
    let next_before = found.last().filter(|_| found.len() >= limit as usize).map(|last| last.seq);
    Ok(Json(EgressLog { entries: found.into_iter().map(EgressItem::from).collect(), next_before }))
}

/// A named list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PresetInfo {
    name: String,
    entries: Vec<PresetEntry>,
    /// What an operator should know.
    notes: Vec<String>,
}

/// An entry of a named list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PresetEntry {
    #[schema(value_type = EgressEntryShape)]
    entry: EgressEntry,
    /// Where it was learned.
    origin: String,
}

impl From<EgressPreset> for PresetInfo {
    fn from(preset: EgressPreset) -> Self {
        let EgressPreset { name, entries, notes } = preset;
        let entry = |ListedEntry { entry, origin }| PresetEntry { entry, origin: origin.to_string() };
        Self { name, entries: entries.into_iter().map(entry).collect(), notes }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PresetParams {
    /// For sandboxes of this image.
    image: Option<String>,
}

/// The named lists of hosts, and where each was learned.
#[utoipa::path(get, path = "/api/v1/egress/presets", tag = "egress", params(PresetParams),
    responses((status = 200, body = Vec<PresetInfo>)))]
pub(crate) async fn presets(
    State(app): State<App>,
    Who(_caller): Who,
    Params(params): Params<PresetParams>,
) -> Result<Json<Vec<PresetInfo>>, Failure> {
    let found = app.core.egress.presets(params.image.as_deref());
    Ok(Json(found.into_iter().map(PresetInfo::from).collect()))
}
