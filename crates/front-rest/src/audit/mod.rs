//! The audit trail: operations here, the trail as a whole in [`trail`].

mod entry;
pub(crate) mod trail;

use crate::{
    App,
    egress::EgressItem,
    parse::{Params, operation_id},
};
use atoll_http::{Failure, Who};
use atoll_types::{
    Error, KeyId, SandboxId,
    audit::{OPERATIONS_PER_PAGE, OperationQuery, Outcome},
    time::moment,
};
use axum::{
    Json,
    extract::{Path, State},
};
use entry::{AuditEntry, AuditOutputs, AuditPage, AuditSummary};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// On this sandbox, destroyed ones too.
    #[param(value_type = Option<Uuid>)]
    sandbox_id: Option<String>,
    /// An owner's name or id. Only an admin sees others' operations.
    owner: Option<String>,
    #[param(value_type = Option<Uuid>)]
    key_id: Option<String>,
    /// Such as exec, sandbox.create or file.write.
    kind: Option<String>,
    exit_code: Option<i32>,
    /// ok, failed, refused or lost.
    outcome: Option<String>,
    /// Part of the command, code or path; the case of ASCII letters makes no difference.
    text: Option<String>,
    /// Begun then or later: RFC 3339, or milliseconds since 1970.
    since: Option<String>,
    /// Begun then or earlier.
    until: Option<String>,
    /// Only what has not ended.
    open: Option<bool>,
    /// Begun in a row before this one: `next_before` of the page before.
    before: Option<u64>,
    /// 50, unless said otherwise.
    limit: Option<u32>,
}

fn wrong(field: &str, message: &str) -> Failure {
    Failure::in_query(Error::invalid(field, message))
}

/// A UUID of a query.
pub(crate) fn uuid(field: &str, text: Option<&str>) -> Result<Option<Uuid>, Failure> {
    let read = |text| Uuid::try_parse(text).map_err(|_| wrong(field, "expected a UUID"));
    text.map(read).transpose()
}

fn time(field: &str, text: Option<&str>) -> Result<Option<i64>, Failure> {
    let message = "expected a time such as 2026-11-15T12:00:00Z, or milliseconds since 1970";
    text.map(|text| moment(text).ok_or_else(|| wrong(field, message))).transpose()
}

impl TryFrom<AuditParams> for OperationQuery {
    type Error = Failure;

    fn try_from(params: AuditParams) -> Result<Self, Failure> {
        let AuditParams {
            sandbox_id,
            owner,
            key_id,
            kind,
            exit_code,
            outcome,
            text,
            since,
            until,
            open,
            before,
            limit,
        } = params;
        let outcome = outcome.as_deref().map(|name| {
            let found = Outcome::ALL.iter().copied().find(|outcome| outcome.as_str() == name);
            found.ok_or_else(|| wrong("outcome", "expected ok, failed, refused or lost"))
        });
        if limit.is_some_and(|limit| !(1..=OPERATIONS_PER_PAGE).contains(&limit)) {
            return Err(wrong("limit", &format!("limit must be between 1 and {OPERATIONS_PER_PAGE}")));
        }
        Ok(Self {
            sandbox: uuid("sandbox_id", sandbox_id.as_deref())?.map(SandboxId::from_uuid),
            owner: owner.as_deref().map(atoll_core::owner_id),
            key: uuid("key_id", key_id.as_deref())?.map(KeyId::from_uuid),
            kind,
            exit_code,
            outcome: outcome.transpose()?,
            text: text.filter(|text| !text.is_empty()),
            since: time("since", since.as_deref())?,
            until: time("until", until.as_deref())?,
            open: open.unwrap_or(false),
            before,
            limit: limit.unwrap_or(50),
        })
    }
}

/// Who did what, the last begun first.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditParams),
    responses((status = 200, body = AuditPage), (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditPage>, Failure> {
    let query = OperationQuery::try_from(params)?;
    let limit = query.limit as usize;
    let found = app.core.audit.page(&caller, query).await.map_err(Failure::in_query)?;
    let next_before = found.last().filter(|_| found.len() >= limit).map(|last| last.seq);
    Ok(Json(AuditPage { entries: found.into_iter().map(AuditEntry::from).collect(), next_before }))
}

/// What operations add up to. `before` and `limit` make no difference.
#[utoipa::path(get, path = "/api/v1/audit/summary", tag = "audit", params(AuditParams),
    responses((status = 200, body = AuditSummary), (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn summary(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditSummary>, Failure> {
    Ok(Json(app.core.audit.summary(&caller, params.try_into()?).await?.into()))
}

/// One operation.
#[utoipa::path(get, path = "/api/v1/audit/{operation_id}", tag = "audit",
    params(("operation_id" = Uuid, Path)), responses((status = 200, body = AuditEntry), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<AuditEntry>, Failure> {
    let id = operation_id(&id)?;
    let found = app.core.audit.operation(&caller, id).await?;
    let egress = app.core.egress.of_operation(&caller, id).await?;
    Ok(Json(AuditEntry::from(found).with(egress.into_iter().map(EgressItem::from).collect())))
}

/// What is kept of what an operation wrote: the first 48 KiB and the last 16 of each output, without the
/// values of secrets.
#[utoipa::path(get, path = "/api/v1/audit/{operation_id}/output", tag = "audit",
    params(("operation_id" = Uuid, Path)), responses((status = 200, body = AuditOutputs), (status = 404)))]
pub(crate) async fn output(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<AuditOutputs>, Failure> {
    Ok(Json(app.core.audit.output(&caller, operation_id(&id)?).await?.into()))
}
