//! Images: looking, importing, exporting, changing, approving and removing.

use crate::{
    App,
    builds::login,
    files::steady,
    image_builds::PackageVersion,
    parse::{Params, Raw, json, required_json},
};
use atoll_core::{
    ImageExport, ImageView, ImportImage, PatchImage, PoolBounds, PoolSize, PushImage, PushedImage,
};
use atoll_http::{Failure, Who};
use atoll_types::{ImageConfig, ImageDefaults, ImageRecord, ImageStart, ReadyCheck, time::rfc3339};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::Stream;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

type JsonResult<T> = Result<Json<T>, Failure>;

/// A root filesystem that sandboxes are made of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Image {
    /// A UUID, or `host` of the machine's own.
    id: String,
    name: String,
    /// The first tag; a sandbox asks for NAME:TAG, and for `latest` where it names no tag.
    tag: Option<String>,
    tags: Vec<String>,
    display_name: String,
    description: Option<String>,
    /// What identifies its content; none of `host`.
    digest: Option<String>,
    /// What its files hold; none of `host`.
    size_bytes: Option<u64>,
    /// Where it comes from: host, import, pull or template.
    origin: &'static str,
    /// The reference that it was pulled from, or the kind of archive that it was in.
    source: Option<String>,
    /// ready, or deleting: no sandbox is made of one that is being deleted.
    status: &'static str,
    /// Whether an admin approved it.
    approved: bool,
    /// Whether your key may make sandboxes of it.
    active: bool,
    /// Why it may not, as what follows the image's name in a sentence; none where it may.
    refusal: Option<&'static str>,
    /// It is always there.
    is_builtin: bool,
    /// Other names that mean it.
    aliases: Vec<String>,
    /// What commands start with, below the sandbox's own variables.
    env_vars: BTreeMap<String, String>,
    /// The user as the image names it. Sandboxes with the default profile run as that user, unless it is root.
    user: Option<String>,
    /// Where commands run that name no directory; /workspace where there is none.
    working_directory: Option<String>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    /// What each sandbox starts as its user, as the label `atoll.start_command` says; neither entrypoint nor command are started.
    start_command: Option<String>,
    /// What succeeds once a sandbox is ready, as the label `atoll.ready_check` says.
    ready_check: Option<String>,
    /// How long that may take.
    ready_timeout_seconds: Option<u32>,
    /// The time between two tries.
    ready_interval_ms: Option<u32>,
    labels: BTreeMap<String, String>,
    ports: Vec<String>,
    /// The memory of sandboxes whose request names none; the server's default where this is null.
    memory_mb: Option<u64>,
    /// The same of the processor.
    cpu_cores: Option<f64>,
    /// The same of the disk.
    disk_mb: Option<u64>,
    /// What is installed, as far as that is known. Those of an image that was built here are a lock for a build of the same template.
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<Vec<PackageVersion>>,
    /// What aliases promise and the image lacks.
    alias_notes: Vec<String>,
    warm_pool_min: u32,
    warm_pool_max: u32,
    created_at: Option<String>,
    /// When a sandbox was last made of it, or the last one was destroyed.
    last_used_at: Option<String>,
    /// The sandboxes that use it; for admins, and not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<Vec<Uuid>>,
}

impl Image {
    fn host() -> Self {
        Self {
            id: "host".into(),
            name: "host".into(),
            tag: None,
            tags: Vec::new(),
            display_name: "host".into(),
            description: Some("The machine's own /usr and a curated /etc".into()),
            digest: None,
            size_bytes: None,
            origin: "host",
            source: None,
            status: "ready",
            approved: true,
            active: true,
            refusal: None,
            is_builtin: true,
            aliases: Vec::new(),
            env_vars: BTreeMap::new(),
            user: None,
            working_directory: None,
            entrypoint: Vec::new(),
            command: Vec::new(),
            start_command: None,
            ready_check: None,
            ready_timeout_seconds: None,
            ready_interval_ms: None,
            labels: BTreeMap::new(),
            ports: Vec::new(),
            memory_mb: None,
            cpu_cores: None,
            disk_mb: None,
            packages: None,
            alias_notes: Vec::new(),
            warm_pool_min: 0,
            warm_pool_max: 0,
            created_at: None,
            last_used_at: None,
            used_by: None,
        }
    }
}

impl From<ImageRecord> for Image {
    fn from(record: ImageRecord) -> Self {
        let display_name = record.shown_name();
        let ImageRecord {
            id,
            name,
            tags,
            display_name: _,
            description,
            digest,
            size_bytes,
            origin,
            source,
            provider: _,
            config,
            defaults: ImageDefaults { memory_mb, cpu_millis, disk_mb },
            packages,
            package_indexes: _,
            approved,
            created_at,
            last_used_at,
            deleting,
        } = record;
        let (start_command, ready) =
            config.start().map(|ImageStart { command, ready }| (command, ready)).unzip();
        let (ready_check, ready_timeout_seconds, ready_interval_ms) = match ready.flatten() {
            Some(ReadyCheck { line, timeout_seconds, interval_ms }) => {
                (Some(line), Some(timeout_seconds), Some(interval_ms))
            }
            None => (None, None, None),
        };
        let ImageConfig { environment, user, ids: _, working_directory, entrypoint, command, labels, ports } =
            config;
        Self {
            id: id.uuid().to_string(),
            name,
            tag: tags.first().cloned(),
            tags,
            display_name,
            description,
            digest: Some(digest),
            size_bytes: Some(size_bytes),
            origin: origin.as_str(),
            source: Some(source).filter(|source| !source.is_empty()),
            status: if deleting { "deleting" } else { "ready" },
            approved,
            is_builtin: false,
            env_vars: environment,
            user,
            working_directory,
            entrypoint,
            command,
            start_command,
            ready_check,
            ready_timeout_seconds,
            ready_interval_ms,
            labels,
            ports,
            memory_mb,
            cpu_cores: cpu_millis.map(|millis| f64::from(millis) / 1000.0),
            disk_mb,
            packages: Some(packages.into_iter().map(Into::into).collect()),
            created_at: Some(rfc3339(created_at)),
            last_used_at: last_used_at.map(rfc3339),
            ..Self::host()
        }
    }
}

impl From<ImageView> for Image {
    fn from(view: ImageView) -> Self {
        let ImageView { record, aliases, alias_notes, refusal, pool: PoolSize { min, max }, used_by } = view;
        let used_by = used_by.map(|ids| ids.into_iter().map(|id| id.uuid()).collect());
        let of = record.map_or_else(Self::host, Self::from);
        let active = refusal.is_none();
        let (warm_pool_min, warm_pool_max) = (min, max);
        Self { aliases, alias_notes, active, refusal, warm_pool_min, warm_pool_max, used_by, ..of }
    }
}

/// All images.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImageList {
    items: Vec<Image>,
    total: usize,
}

/// A field that may be null: absent it stays, null removes it.
fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImagePatch {
    name: Option<String>,
    /// All of them, not some more.
    tags: Option<Vec<String>>,
    /// Null for none.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    display_name: Option<Option<String>>,
    /// Null for none.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// The memory of sandboxes whose request names none, as the next two are of processor and disk; null for the server's default.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>)]
    memory_mb: Option<Option<u64>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<f64>)]
    cpu_cores: Option<Option<f64>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>)]
    disk_mb: Option<Option<u64>>,
    approved: Option<bool>,
    /// How many are kept ready, even when no sandbox is requested.
    warm_pool_min: Option<u32>,
    /// At most, when many sandboxes are requested.
    warm_pool_max: Option<u32>,
}

impl From<ImagePatch> for PatchImage {
    fn from(body: ImagePatch) -> Self {
        let ImagePatch {
            name,
            tags,
            display_name,
            description,
            memory_mb,
            cpu_cores,
            disk_mb,
            approved,
            warm_pool_min,
            warm_pool_max,
        } = body;
        Self {
            name,
            tags,
            display_name,
            description,
            memory_mb,
            cpu_cores,
            disk_mb,
            approved,
            pool: PoolBounds { min: warm_pool_min, max: warm_pool_max },
        }
    }
}

/// Lists images by name, the machine's own first.
#[utoipa::path(get, path = "/api/v1/sandbox-images", tag = "images",
    responses((status = 200, body = ImageList)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> JsonResult<ImageList> {
    let listed = |view| Image { packages: None, ..Image::from(view) };
    let items: Vec<Image> = app.core.images.list(&caller).await?.into_iter().map(listed).collect();
    Ok(Json(ImageList { total: items.len(), items }))
}

/// How an archive becomes an image.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportParams {
    /// NAME or NAME:TAG.
    name: String,
    /// Which of several images in the archive: its tag there.
    reference: Option<String>,
    /// Take the tag from the image that has it.
    #[serde(default)]
    replace: bool,
    /// What the image may hold; as the setting `images.max_mb` where it is left out.
    disk_mb: Option<u64>,
}

/// Makes an image from an archive of `docker save`, an OCI layout or a root filesystem, each also compressed. It is unpacked in a
/// sandbox; of an archive that is refused, broke off or does not fit nothing is left. For admins.
#[utoipa::path(post, path = "/api/v1/sandbox-images/import", tag = "images", params(ImportParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "A tar archive; any content type will do"),
    responses((status = 201, body = Image), (status = 400, description = "An entry leads out of the image"), (status = 403),
        (status = 409, description = "Another image has the tag"),
        (status = 413, description = "It has more entries or bytes than an image may have"),
        (status = 422, description = "The archive is broken, broke off, has a wrong digest, or an entry that is refused"),
        (status = 429, description = "No room on the machine"), (status = 501, description = "It needs what this server cannot do"),
        (status = 507, description = "The archive or its files do not fit into the image's disk")))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<ImportParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Image>), Failure> {
    let ImportParams { name, reference, replace, disk_mb } = params;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let request = ImportImage { name, reference, replace, disk_mb, length };
    let made = app.core.images.import(&caller, request, steady(body)).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// One image.
#[utoipa::path(get, path = "/api/v1/sandbox-images/{image}", tag = "images",
    params(("image" = String, Path, description = "NAME, NAME:TAG, a digest, an id or an alias; a slash as %2F")),
    responses((status = 200, body = Image), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(image): Path<String>,
) -> JsonResult<Image> {
    Ok(Json(app.core.images.get(&caller, &image).await?.into()))
}

/// Reads an image as an OCI layout in a tar archive, with its files as one layer. For admins.
#[utoipa::path(get, path = "/api/v1/sandbox-images/{image}/export", tag = "images",
    params(("image" = String, Path, description = "NAME, NAME:TAG, a digest, an id or an alias; a slash as %2F")),
    responses((status = 200, content_type = "application/x-tar", body = Vec<u8>,
        description = "An archive that breaks off is shorter than its Content-Length"),
        (status = 403), (status = 404), (status = 409, description = "The image is the machine's own"),
        (status = 429, description = "Two exports of the owner are under way already, or eight on the machine"), (status = 501),
        (status = 507, description = "The disk has no room for a copy of the image")))]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    Path(image): Path<String>,
) -> Result<Response, Failure> {
    let export = app.core.images.export(&caller, &image).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"image.tar\"")),
        (header::CONTENT_LENGTH, export.length().into()),
    ];
    Ok((headers, Body::from_stream(pieces(export))).into_response())
}

fn pieces(export: ImageExport) -> impl Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(export, |mut export| async move {
        // After an error the connection breaks, so that the client does not take it for the end.
        let piece = export.next().await.map_err(std::io::Error::other)?;
        Ok(piece.map(|bytes| (bytes, export)))
    })
}

/// Where to push an image.
// Without Debug: it may hold a password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PushBody {
    /// HOST/NAME:TAG
    reference: String,
    /// Who asks the registry, with `password`; as the operator's file says without them. Neither is kept.
    username: Option<String>,
    password: Option<String>,
    /// A token that the registry takes, in the place of both.
    token: Option<String>,
}

/// An image that a registry has now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PushResult {
    reference: String,
    /// The manifest's.
    digest: String,
    /// Of the image's files as one compressed layer.
    size_bytes: u64,
}

/// Pushes an image to a registry, with its files as one layer, and answers when the registry has it. For admins.
#[utoipa::path(post, path = "/api/v1/sandbox-images/{image}/push", tag = "images",
    params(("image" = String, Path, description = "NAME, NAME:TAG, a digest, an id or an alias; a slash as %2F")),
    request_body = PushBody,
    responses((status = 200, body = PushResult), (status = 403, description = "The key may not, or the registry lets the user not in"),
        (status = 404), (status = 409, description = "The image is the machine's own"), (status = 422),
        (status = 429, description = "Two exports of the owner are under way already, or eight on the machine"), (status = 501),
        (status = 502, description = "The registry answers what it should not"), (status = 503, description = "It does not answer"),
        (status = 507, description = "The disk has no room for a copy of the image")))]
pub(crate) async fn push(
    State(app): State<App>,
    Who(caller): Who,
    Path(image): Path<String>,
    Raw(body): Raw,
) -> JsonResult<PushResult> {
    let PushBody { reference, username, password, token } = required_json(&body)?;
    let request = PushImage { reference, login: login(username, password, token)? };
    let PushedImage { reference, digest, size_bytes } =
        app.core.images.push(&caller, &image, request).await?;
    Ok(Json(PushResult { reference, digest, size_bytes }))
}

/// Changes what is known of an image, or approves it. Sandboxes that use it keep what they were made with. For admins.
#[utoipa::path(patch, path = "/api/v1/sandbox-images/{image}", tag = "images",
    params(("image" = String, Path)), request_body = ImagePatch,
    responses((status = 200, body = Image), (status = 403), (status = 404),
        (status = 409, description = "Another image has the tag, or the image is the machine's own"), (status = 422)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Path(image): Path<String>,
    Raw(body): Raw,
) -> JsonResult<Image> {
    let body: ImagePatch = json(&body)?;
    Ok(Json(app.core.images.patch(&caller, &image, body.into()).await?.into()))
}

/// Removes an image with its files. Refused while a sandbox that is not destroyed uses it. For admins.
#[utoipa::path(delete, path = "/api/v1/sandbox-images/{image}", tag = "images",
    params(("image" = String, Path)),
    responses((status = 204), (status = 403), (status = 404),
        (status = 409, description = "A sandbox uses it, or it is the machine's own")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    Path(image): Path<String>,
) -> Result<StatusCode, Failure> {
    app.core.images.delete(&caller, &image).await?;
    Ok(StatusCode::NO_CONTENT)
}
