//! Skills: making, uploading, looking, changing, deleting, and installing in a sandbox.

use crate::{
    App,
    parse::{Params, Raw, required_json, sandbox_id, skill_id},
};
use atoll_core::{ExtractionError, InstallOutcome, PackageDownload, SKILLS_PER_PAGE, SkillFields};
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{
    Error, InstalledSkill, SkillId, SkillName, SkillPage, SkillQuery, SkillRecord, SkillSource, time::rfc3339,
};
use axum::{
    Json,
    body::Body,
    extract::{DefaultBodyLimit, FromRequest, Multipart, Path, Request, State, multipart::MultipartError},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

type JsonResult<T> = Result<Json<T>, Failure>;

/// How long an upload may make no progress.
const STILL: Duration = Duration::from_secs(60);
/// Pieces of a package on their way.
const AHEAD: usize = 4;

/// A skill in a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxSkill {
    /// The skill, which may have been deleted since.
    id: Uuid,
    /// The folder below /workspace/skills.
    name: String,
    installed_at: String,
}

impl From<InstalledSkill> for SandboxSkill {
    fn from(skill: InstalledSkill) -> Self {
        let InstalledSkill { id, name, digest: _, installed_at } = skill;
        Self { id: id.uuid(), name: name.into(), installed_at: rfc3339(installed_at) }
    }
}

/// A skill.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillItem {
    id: Uuid,
    user_id: String,
    user_name: String,
    name: String,
    description: String,
    /// manual or upload.
    source_type: &'static str,
    /// The fields of its front matter beside name and description.
    skill_metadata: Map<String, Value>,
    package_size_bytes: u64,
    files: u32,
    /// The SHA-256 of its package.
    digest: String,
    /// Its SKILL.md; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill_md_content: Option<String>,
    created_at: String,
    updated_at: String,
}

impl From<SkillRecord> for SkillItem {
    fn from(record: SkillRecord) -> Self {
        let SkillRecord {
            id,
            owner,
            owner_name,
            name,
            description,
            source,
            metadata,
            digest,
            package_bytes,
            files,
            created_at,
            updated_at,
        } = record;
        Self {
            id: id.uuid(),
            user_id: owner,
            user_name: owner_name,
            name: name.into(),
            description,
            source_type: source.as_str(),
            skill_metadata: serde_json::from_str(&metadata).unwrap_or_default(),
            package_size_bytes: package_bytes,
            files,
            digest: digest.to_string(),
            skill_md_content: None,
            created_at: rfc3339(created_at),
            updated_at: rfc3339(updated_at),
        }
    }
}

impl SkillItem {
    pub(crate) fn with((record, text): (SkillRecord, String)) -> Self {
        Self { skill_md_content: Some(text), ..Self::from(record) }
    }
}

/// Some skills, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillList {
    items: Vec<SkillItem>,
    total: u64,
    offset: u64,
    limit: u32,
}

/// A skill to make. What the fields say wins over the front matter of the text, and is written there.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillBody {
    /// One of yours: the folder in a sandbox.
    name: String,
    /// Instructions in Markdown, with a YAML front matter or without.
    skill_md_content: String,
    /// What it is for; the name, where neither this nor a front matter is there.
    description: Option<String>,
    /// More fields of the front matter.
    skill_metadata: Option<Map<String, Value>>,
}

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillChange {
    name: Option<String>,
    description: Option<String>,
    /// Another SKILL.md; the other files of the package stay.
    skill_md_content: Option<String>,
    /// All fields of the front matter beside name and description.
    skill_metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// In name or description.
    search: Option<String>,
    source_type: Option<String>,
    /// An owner's name or id. Only an admin sees others' skills.
    owner: Option<String>,
    offset: Option<u64>,
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadParams {
    /// Whether your skill of the same name is replaced, which keeps its id.
    replace: Option<bool>,
}

#[derive(ToSchema)]
#[allow(dead_code)] // Only described.
pub(crate) struct SkillUpload {
    /// A ZIP archive with a SKILL.md at its top or in one folder.
    #[schema(content_media_type = "application/octet-stream")]
    file: Vec<u8>,
}

/// Makes a skill from instructions.
#[utoipa::path(post, path = "/api/v1/skills", tag = "skills", request_body = SkillBody,
    responses((status = 201, body = SkillItem), (status = 409, description = "You have one with this name"),
        (status = 422, description = "A field is wrong, or the front matter of the text"),
        (status = 429, description = "The owner's plan allows no more")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let SkillBody { name, skill_md_content, description, skill_metadata } = required_json(&body)?;
    let repeat = Repeat::of(&headers, "skill", &body)?;
    let fields = SkillFields { name: Some(name), description, metadata: skill_metadata };
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let made = core.skills.create(&asker, skill_md_content, fields).await?;
        Ok((StatusCode::CREATED, SkillItem::with(made)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

/// Lists skills by name: yours, or with an admin key those of all owners.
#[utoipa::path(get, path = "/api/v1/skills", tag = "skills", params(ListParams),
    responses((status = 200, body = SkillList), (status = 404)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<ListParams>,
) -> JsonResult<SkillList> {
    let ListParams { search, source_type, owner, offset, limit } = params;
    let unknown = || Error::invalid("source_type", "source_type is manual or upload");
    let source = source_type.map(|name| SkillSource::from_name(&name).ok_or_else(unknown)).transpose();
    let source = source.map_err(Failure::in_query)?;
    let (offset, limit) = (offset.unwrap_or(0), limit.unwrap_or(SKILLS_PER_PAGE.min(100)));
    let query = SkillQuery { owner, search, source, offset, limit };
    let SkillPage { items, total } = app.core.skills.list(&caller, query).await.map_err(Failure::in_query)?;
    let items = items.into_iter().map(SkillItem::from).collect();
    Ok(Json(SkillList { items, total, offset, limit }))
}

/// Makes a skill from a package: `multipart/form-data` with a ZIP archive as the field `file`.
#[utoipa::path(post, path = "/api/v1/skills/upload", tag = "skills", params(UploadParams),
    request_body(content = SkillUpload, content_type = "multipart/form-data"),
    responses((status = 200, body = SkillItem, description = "It replaced one"), (status = 201, body = SkillItem),
        (status = 409, description = "You have one with this name"),
        (status = 413, description = "It has more than 10 MiB, 100 files, or 50 MiB of files"),
        (status = 422, description = "It is no ZIP archive, has an entry that is refused, or no right SKILL.md"),
        (status = 429, description = "The owner's plan allows no more")))]
pub(crate) async fn upload(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<UploadParams>,
    mut request: Request,
) -> Result<(StatusCode, Json<SkillItem>), Failure> {
    // The size of a package is bounded as it comes.
    DefaultBodyLimit::disable().apply(&mut request);
    let (send, receive) = mpsc::channel(AHEAD);
    // What is wrong with the form is told to the operation: the key is judged before it, and the refusal has its rows.
    let reading = async move {
        if let Err(error) = read_package(request, &send).await {
            // Where the operation has ended, nothing is waiting for this.
            let _ = send.send(Err(error)).await;
        }
    };
    let body = stream::unfold(receive, |mut receive| async { Some((receive.recv().await?, receive)) });
    let upload = app.core.skills.upload(&caller, params.replace.unwrap_or(false), body);
    let ((), made) = tokio::join!(reading, upload);
    let (record, text, new) = made?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(SkillItem::with((record, text)))))
}

type Pieces = mpsc::Sender<atoll_types::Result<Bytes>>;

/// Passes on the part of a form that is the package.
async fn read_package(request: Request, pieces: &Pieces) -> atoll_types::Result<()> {
    let expected = || Error::invalid("file", "expected multipart/form-data with a field `file`");
    let late = |_| Error::invalid("file", "the upload made no progress for too long");
    let mut parts = Multipart::from_request(request, &()).await.map_err(|_| expected())?;
    loop {
        let field = tokio::time::timeout(STILL, parts.next_field()).await.map_err(late)?;
        let mut field = field.map_err(|e| cut(&e))?.ok_or_else(expected)?;
        if field.name() != Some("file") {
            continue;
        }
        while let Some(piece) =
            tokio::time::timeout(STILL, field.chunk()).await.map_err(late)?.map_err(|e| cut(&e))?
        {
            if pieces.send(Ok(piece)).await.is_err() {
                break;
            }
        }
        return Ok(());
    }
}

fn cut(error: &MultipartError) -> Error {
    Error::invalid("file", error.body_text().chars().take(200).collect::<String>())
}

/// One skill, with its SKILL.md.
#[utoipa::path(get, path = "/api/v1/skills/{skill_id}", tag = "skills", params(("skill_id" = Uuid, Path)),
    responses((status = 200, body = SkillItem), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<SkillItem> {
    Ok(Json(SkillItem::with(app.core.skills.get(&caller, skill_id(&id)?).await?)))
}

/// Changes a skill. Sandboxes that have it keep what they have until it is installed again.
#[utoipa::path(patch, path = "/api/v1/skills/{skill_id}", tag = "skills", params(("skill_id" = Uuid, Path)),
    request_body = SkillChange,
    responses((status = 200, body = SkillItem), (status = 404), (status = 409, description = "You have one with this name"),
        (status = 422, description = "A field is wrong, or the front matter of the text"), (status = 429)))]
pub(crate) async fn update(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> JsonResult<SkillItem> {
    let id = skill_id(&id)?;
    let SkillChange { name, description, skill_md_content, skill_metadata } = required_json(&body)?;
    let fields = SkillFields { name, description, metadata: skill_metadata };
    let changed = app.core.skills.update(&caller, id, skill_md_content, fields).await?;
    Ok(Json(SkillItem::with(changed)))
}

/// Deletes a skill. What was installed of it stays.
#[utoipa::path(delete, path = "/api/v1/skills/{skill_id}", tag = "skills", params(("skill_id" = Uuid, Path)),
    responses((status = 204), (status = 404)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    app.core.skills.delete(&caller, skill_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Downloads a skill's package.
#[utoipa::path(get, path = "/api/v1/skills/{skill_id}/package", tag = "skills", params(("skill_id" = Uuid, Path)),
    responses((status = 200, content_type = "application/zip", body = Vec<u8>), (status = 404)))]
pub(crate) async fn package(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let download = app.core.skills.download(&caller, skill_id(&id)?).await?;
    // A skill's name needs no quoting.
    let disposition = format!("attachment; filename=\"{}.zip\"", download.record.name);
    let headers = [
        (header::CONTENT_TYPE, "application/zip".to_owned()),
        (header::CONTENT_LENGTH, download.record.package_bytes.to_string()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, Body::from_stream(pieces(download))).into_response())
}

fn pieces(download: PackageDownload) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(download, |mut download| async move {
        match download.next().await {
            Ok(Some(bytes)) => Ok(Some((bytes, download))),
            Ok(None) => Ok(None),
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

/// Skills to install.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstallBody {
    skill_ids: Vec<Uuid>,
}

/// A skill that could not be unpacked in the sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExtractionErrorItem {
    skill_id: Uuid,
    name: String,
    /// As in errors of the API.
    code: &'static str,
    /// For people.
    message: String,
}

/// What became of an install.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstallResult {
    /// The names of those that are there now.
    installed: Vec<String>,
    /// The names of those that were there in their present version.
    already_installed: Vec<String>,
    /// Ids of no skill of yours.
    not_found: Vec<Uuid>,
    extraction_errors: Vec<ExtractionErrorItem>,
}

impl From<InstallOutcome> for InstallResult {
    fn from(outcome: InstallOutcome) -> Self {
        let InstallOutcome { installed, already_installed, not_found, extraction_errors, .. } = outcome;
        let names = |names: Vec<SkillName>| names.into_iter().map(String::from).collect();
        let failed = |failed: ExtractionError| {
            let ExtractionError { id, name, error } = failed;
            let code = error.code.as_str();
            ExtractionErrorItem { skill_id: id.uuid(), name: name.into(), code, message: error.message }
        };
        Self {
            installed: names(installed),
            already_installed: names(already_installed),
            not_found: not_found.into_iter().map(|id| id.uuid()).collect(),
            extraction_errors: extraction_errors.into_iter().map(failed).collect(),
        }
    }
}

/// Installs skills, each in /workspace/skills/NAME. One that is there in an older version is replaced, with all that is
/// in its folder.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/skills", tag = "skills", params(("id" = Uuid, Path)),
    request_body = InstallBody,
    responses((status = 200, body = InstallResult), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn install(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> JsonResult<InstallResult> {
    let sandbox = sandbox_id(&id)?;
    let InstallBody { skill_ids } = required_json(&body)?;
    let ids = skill_ids.into_iter().map(SkillId::from_uuid).collect();
    Ok(Json(app.core.skills.install(&caller, sandbox, ids).await?.into()))
}
