//! Volumes of owners: making, looking, resizing, deleting; and how a sandbox names them.

use crate::{
    App,
    parse::{Params, Raw, required_json},
    sandboxes::page_asked,
};
use atoll_core::{AttachVolume, LARGEST_PAGE, NewVolume, VolumeView};
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{Error, PathRules, VolumeMount, VolumeRecord, time::rfc3339};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

type JsonResult<T> = Result<Json<T>, Failure>;

/// A volume to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeBody {
    /// One of yours; it never changes.
    name: String,
    /// What it may hold; as much as a sandbox's disk where it is left out.
    disk_mb: Option<u64>,
}

/// What a volume may hold from now on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResizeBody {
    disk_mb: u64,
}

/// A volume. It outlives every sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Volume {
    name: String,
    user_id: String,
    user_name: String,
    /// The tenant whose storage it is.
    tenant_id: Option<String>,
    disk_mb: u64,
    created_at: String,
    /// It is being deleted, and cannot be attached any more.
    deleting: bool,
    /// What it holds; not in lists, and null where the kernel does not count it, as on plain folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    used_bytes: Option<Option<u64>>,
    /// The sandboxes that have it, running or stopped; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    attached_to: Option<Vec<Uuid>>,
}

impl From<VolumeRecord> for Volume {
    fn from(record: VolumeRecord) -> Self {
        let VolumeRecord {
            id: _,
            owner,
            owner_name,
            name,
            tenant,
            provider: _,
            disk_bytes,
            created_at,
            deleting,
        } = record;
        Self {
            name: name.into(),
            user_id: owner,
            user_name: owner_name,
            tenant_id: tenant,
            disk_mb: disk_bytes >> 20,
            created_at: rfc3339(created_at),
            deleting,
            used_bytes: None,
            attached_to: None,
        }
    }
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Self {
        let VolumeView { record, used_bytes, attached } = view;
        let attached_to = attached.into_iter().map(|id| id.uuid()).collect();
        Self { used_bytes: Some(used_bytes), attached_to: Some(attached_to), ..Self::from(record) }
    }
}

/// A volume in a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct Attachment {
    name: String,
    /// Where it appears: an absolute path inside, made if it is missing.
    path: String,
    /// Whether the sandbox may only read it.
    #[serde(default)]
    #[schema(required = false)]
    read_only: bool,
}

atoll_types::object_only!(Attachment);

impl From<Attachment> for AttachVolume {
    fn from(asked: Attachment) -> Self {
        let Attachment { name, path, read_only } = asked;
        Self { name, path, read_only }
    }
}

impl From<VolumeMount> for Attachment {
    fn from(mount: VolumeMount) -> Self {
        let VolumeMount { name, volume: _, path, read_only, whole: _ } = mount;
        Self { name: name.into(), path, read_only }
    }
}

/// Paths inside with a rule, made if they are missing. The rule of the innermost path holds.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub(crate) struct Filesystem {
    /// What commands may only read; file requests still write there.
    #[schema(required = false)]
    read_only: Vec<String>,
    /// What commands may write, also below a path that is read-only.
    #[schema(required = false)]
    read_write: Vec<String>,
    /// What cannot be reached, by root neither.
    #[schema(required = false)]
    blocked: Vec<String>,
}

atoll_types::object_only!(Filesystem);

impl From<Filesystem> for PathRules {
    fn from(rules: Filesystem) -> Self {
        let Filesystem { read_only, read_write, blocked } = rules;
        Self { read_only, read_write, blocked }
    }
}

impl From<PathRules> for Filesystem {
    fn from(rules: PathRules) -> Self {
        let PathRules { read_only, read_write, blocked } = rules;
        Self { read_only, read_write, blocked }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OwnerParams {
    /// An owner's name or id. Only an admin sees others' volumes.
    owner: Option<String>,
}

/// Makes a volume.
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = VolumeBody,
    responses((status = 201, body = Volume),
        (status = 403, description = "Above what the key's tier, the owner's plan or the machine allows"),
        (status = 409, description = "There is one with this name"), (status = 422),
        (status = 429, description = "No room on the machine")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let VolumeBody { name, disk_mb } = required_json(&body)?;
    let repeat = Repeat::of(&headers, "volume", &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let made = core.volumes.create(&asker, NewVolume { name, disk_mb }).await?;
        Ok((StatusCode::CREATED, Volume::from(made)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct VolumeParams {
    /// An owner's name or id. Only an admin sees others' volumes.
    owner: Option<String>,
    page: Option<u64>,
    page_size: Option<u32>,
}

/// One page of volumes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VolumeList {
    items: Vec<Volume>,
    total: u64,
    page: u64,
    page_size: u32,
}

/// Lists volumes by name: yours, or with an admin key those of all owners.
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes", params(VolumeParams),
    responses((status = 200, body = VolumeList), (status = 404), (status = 422)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<VolumeParams>,
) -> JsonResult<VolumeList> {
    let (page, page_size) = page_asked(params.page, params.page_size)?;
    if !(1..=LARGEST_PAGE).contains(&page_size) {
        let message = format!("page_size must be between 1 and {LARGEST_PAGE}");
        return Err(Failure::in_query(Error::invalid("page_size", message)));
    }
    let all = app.core.volumes.list(&caller, params.owner.as_deref()).await?;
    let (total, before) = (all.len() as u64, (page - 1).saturating_mul(u64::from(page_size)));
    let rest = all.into_iter().skip(usize::try_from(before).unwrap_or(usize::MAX));
    let items = rest.take(page_size as usize).map(Volume::from).collect();
    Ok(Json(VolumeList { items, total, page, page_size }))
}

/// One volume.
#[utoipa::path(get, path = "/api/v1/volumes/{name}", tag = "volumes",
    params(("name" = String, Path), OwnerParams), responses((status = 200, body = Volume), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(name): Path<String>,
    Params(params): Params<OwnerParams>,
) -> JsonResult<Volume> {
    Ok(Json(app.core.volumes.get(&caller, params.owner.as_deref(), &name).await?.into()))
}

/// Gives a volume another limit, in use or not; never below what it holds.
#[utoipa::path(patch, path = "/api/v1/volumes/{name}", tag = "volumes",
    params(("name" = String, Path), OwnerParams), request_body = ResizeBody,
    responses((status = 200, body = Volume), (status = 403), (status = 404), (status = 409), (status = 422),
        (status = 429)))]
pub(crate) async fn resize(
    State(app): State<App>,
    Who(caller): Who,
    Path(name): Path<String>,
    Params(params): Params<OwnerParams>,
    Raw(body): Raw,
) -> JsonResult<Volume> {
    let ResizeBody { disk_mb } = required_json(&body)?;
    let resized = app.core.volumes.resize(&caller, params.owner.as_deref(), &name, disk_mb).await?;
    Ok(Json(resized.into()))
}

/// Deletes a volume with all that it holds. Refused while a sandbox has it, running or stopped.
#[utoipa::path(delete, path = "/api/v1/volumes/{name}", tag = "volumes",
    params(("name" = String, Path), OwnerParams),
    responses((status = 204), (status = 404), (status = 409, description = "A sandbox has it")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    Path(name): Path<String>,
    Params(params): Params<OwnerParams>,
) -> Result<StatusCode, Failure> {
    app.core.volumes.delete(&caller, params.owner.as_deref(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use atoll_core::bounds::PLACE_PATTERN;

    #[test]
    fn the_pattern_of_a_place_is_that_of_plain_paths() {
        let fits = |path: &str| regex::Regex::new(PLACE_PATTERN).unwrap().is_match(path);
        for path in ["/a", "/a/b", "/a/..b", "/.a", "/.a/b c", "/...", "/a\n"] {
            assert!(fits(path), "{path:?}");
        }
        for path in ["", "/", "a", "/a/", "//a", "/./a", "/a/..", "/..", "/a\0", &"/a".repeat(17)] {
            assert!(!fits(path), "{path:?}");
        }
    }
}
