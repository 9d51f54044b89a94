//! Sandboxes of all owners, for admins.

use crate::{
    App,
    parse::{Params, Raw, required_json},
    sandboxes::{ListParams, labels_of, page_asked, page_of},
    shapes::{SandboxPage, statuses_of},
};
use atoll_core::{BulkAction, BulkOutcome, BulkTarget, OwnerQuery, OwnerView};
use atoll_http::{Failure, Who};
use atoll_types::{Error, ErrorCode, ListQuery, SandboxId};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Lists sandboxes of all owners, with the same filters as the list of one's own. For admins.
#[utoipa::path(get, path = "/api/v1/admin/sandboxes", tag = "admin", params(ListParams),
    responses((status = 200, body = SandboxPage)))]
pub(crate) async fn sandboxes(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<ListParams>,
) -> Result<Json<SandboxPage>, Failure> {
    let (query, page, size) = params.query()?;
    let found = app.core.sandboxes.list_all(&caller, query).await.map_err(Failure::in_query)?;
    Ok(Json(page_of(found, page, size)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OwnersParams {
    page: Option<u64>,
    page_size: Option<u32>,
    /// Part of a name or an id.
    search: Option<String>,
}

/// An owner and what it has.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OwnerItem {
    owner_id: String,
    owner: String,
    /// The name of its plan.
    plan: String,
    /// Keys that are neither revoked nor expired.
    keys: u64,
    /// Sandboxes that are not destroyed.
    sandboxes: u32,
    /// Those of them that count as running at a time.
    sandboxes_at_a_time: u32,
    volumes: u32,
    /// The limits of the disks of its sandboxes and of its volumes together.
    disk_mb: u64,
    skills: u64,
    /// Of the packages of its skills.
    skills_bytes: u64,
}

impl From<OwnerView> for OwnerItem {
    fn from(view: OwnerView) -> Self {
        let OwnerView { id, name, plan, keys, sandboxes, live, volumes, disk_bytes, skills, skills_bytes } =
            view;
        Self {
            owner_id: id,
            owner: name,
            plan,
            keys,
            sandboxes,
            sandboxes_at_a_time: live,
            volumes,
            disk_mb: disk_bytes >> 20,
            skills,
            skills_bytes,
        }
    }
}

/// Owners, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OwnerPage {
    items: Vec<OwnerItem>,
    total: u64,
    page: u64,
    page_size: u32,
}

/// Lists owners by name: those with a key, a sandbox, a volume, or a plan that a setting gives them; each with what it has.
/// For admins.
#[utoipa::path(get, path = "/api/v1/admin/owners", tag = "admin", params(OwnersParams),
    responses((status = 200, body = OwnerPage), (status = 422)))]
pub(crate) async fn owners(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<OwnersParams>,
) -> Result<Json<OwnerPage>, Failure> {
    let OwnersParams { page, page_size, search } = params;
    let (page, page_size) = page_asked(page, page_size)?;
    let query =
        OwnerQuery { search, offset: (page - 1).saturating_mul(u64::from(page_size)), limit: page_size };
    let (found, total) = app.core.owners.list(&caller, &query).await.map_err(Failure::in_query)?;
    let items = found.into_iter().map(OwnerItem::from).collect();
    Ok(Json(OwnerPage { items, total, page, page_size }))
}

/// What is to become of them.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkVerb {
    /// Their containers end; their volumes wait.
    #[default]
    Stop,
    /// They end with their volumes.
    Destroy,
}

/// Which sandboxes are meant; all of it must match, and `{}` means every one.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub(crate) struct BulkFilter {
    /// An owner's name or id.
    owner: Option<String>,
    /// One or several, separated by commas.
    status: Option<String>,
    image: Option<String>,
    /// `name=value`, several separated by commas.
    labels: Option<String>,
}

atoll_types::object_only!(read BulkFilter);

/// Sandboxes to stop or to destroy: either `ids` or `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkBody {
    ids: Option<Vec<Uuid>>,
    filter: Option<BulkFilter>,
    /// stop where nothing is said.
    #[serde(default)]
    action: BulkVerb,
}

/// One that it could not be done to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BulkProblem {
    id: Uuid,
    #[schema(value_type = String)]
    code: ErrorCode,
    message: String,
}

/// What became of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BulkResult {
    stopped: u64,
    destroyed: u64,
    /// Those that were stopped or destroyed already.
    skipped: u64,
    errors: Vec<BulkProblem>,
}

impl From<BulkOutcome> for BulkResult {
    fn from(outcome: BulkOutcome) -> Self {
        let BulkOutcome { stopped, destroyed, skipped, errors } = outcome;
        let problem = |(id, error): (SandboxId, Error)| BulkProblem {
            id: id.uuid(),
            code: error.code,
            message: error.message,
        };
        Self { stopped, destroyed, skipped, errors: errors.into_iter().map(problem).collect() }
    }
}

impl BulkFilter {
    fn query(self) -> Result<ListQuery, Failure> {
        let Self { owner, status, image, labels } = self;
        let mut statuses = Vec::new();
        for name in status.as_deref().unwrap_or_default().split(',').filter(|s| !s.is_empty()) {
            let found = statuses_of(name);
            statuses.extend(found.ok_or_else(|| Error::invalid("filter.status", "there is no such status"))?);
        }
        let wrong = |_| Error::invalid("filter.labels", "expected name=value, separated by commas");
        let labels = labels_of(labels.as_deref()).map_err(wrong)?;
        let owner = owner.as_deref().map(atoll_core::owner_id);
        Ok(ListQuery { owner, statuses, images: image.into_iter().collect(), labels, ..ListQuery::default() })
    }
}

/// Stops or destroys many sandboxes. Each of them is an operation of its own in the audit trail, and what
/// cannot be done to one stops nothing. For admins.
#[utoipa::path(post, path = "/api/v1/admin/sandboxes/bulk-stop", tag = "admin", request_body = BulkBody,
    responses((status = 200, body = BulkResult)))]
pub(crate) async fn bulk_stop(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<BulkResult>, Failure> {
    let BulkBody { ids, filter, action } = required_json(&body)?;
    let target = match (ids, filter) {
        (Some(ids), None) => BulkTarget::Ids(ids.into_iter().map(SandboxId::from_uuid).collect()),
        (None, Some(filter)) => BulkTarget::Found(Box::new(filter.query()?)),
        _ => return Err(Error::invalid("ids", "name the sandboxes by ids or by a filter").into()),
    };
    let action = match action {
        BulkVerb::Stop => BulkAction::Stop,
        BulkVerb::Destroy => BulkAction::Destroy,
    };
    Ok(Json(app.core.sandboxes.bulk(&caller, target, action).await?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_an_object() {
        let read = |text: &str| serde_json::from_str::<BulkBody>(text).map(|body| body.filter.is_some());
        assert!(read(r#"{"filter":{}}"#).unwrap() && read(r#"{"filter":{"owner":"ann"}}"#).unwrap());
        assert!(!read("{}").unwrap() && !read(r#"{"filter":null}"#).unwrap());
        // A list of fields would be `{}`, which means every sandbox.
        for wrong in [r#"{"filter":[]}"#, r#"{"filter":[null,null]}"#, r#"{"filter":{"name":"x"}}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
