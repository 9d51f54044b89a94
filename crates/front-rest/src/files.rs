//! Files. Listing and bytes live under `files`; everything else under `fs`, so that no file's name is
//! shadowed by an operation.

use crate::{
    App,
    parse::{Params, Raw, json, sandbox_id},
};
use atoll_core::{Download, FILES_PER_PAGE};
use atoll_http::{Failure, Who};
use atoll_types::{
    Error, ErrorCode,
    files::{Entry, EntryKind, WriteOptions},
    time::rfc3339,
};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// A file, folder or link.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileItem {
    name: String,
    /// Absolute, as it was asked for: no link on the way is resolved.
    path: String,
    /// file, directory, symlink or other.
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    is_directory: bool,
    /// Permission bits, in octal.
    mode: String,
    uid: u32,
    gid: u32,
    modified_at: String,
    /// Where a link leads.
    target: Option<String>,
}

impl FileItem {
    /// What is in a folder.
    pub(crate) fn inside(folder: &str, entry: Entry) -> Self {
        let path = format!("{}/{}", absolute(folder).trim_end_matches('/'), entry.name);
        Self::new(path, entry)
    }

    /// What is at a path.
    pub(crate) fn at(path: &str, entry: Entry) -> Self {
        Self::new(absolute(path), entry)
    }

    fn new(path: String, entry: Entry) -> Self {
        let Entry { name, kind, size, mode, uid, gid, modified_unix_ns, target } = entry;
        let is_directory = kind == EntryKind::Directory;
        let kind = kind.as_str();
        let modified_at = rfc3339(modified_unix_ns.div_euclid(1_000_000));
        let mode = format!("{mode:04o}");
        Self { name, path, kind, size, is_directory, mode, uid, gid, modified_at, target }
    }
}

/// A path inside as the sandbox reads it: relative ones begin in the workspace.
fn absolute(path: &str) -> String {
    let workspace = (!path.starts_with('/')).then_some("workspace");
    let parts = workspace.into_iter().chain(path.split('/')).filter(|part| !matches!(*part, "" | "."));
    let joined: String = parts.flat_map(|part| ["/", part]).collect();
    if joined.is_empty() { "/".into() } else { joined }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathParams {
    /// Absolute, or relative to /workspace.
    path: Option<String>,
    /// Most entries.
    limit: Option<usize>,
    /// Only names after this one.
    after: Option<String>,
}

/// Says that a listing has not all there is; to go on, ask again with `after` and the last name.
const TRUNCATED: HeaderName = HeaderName::from_static("atoll-truncated");

/// Lists a folder, by name. Where there is more than one answer lists, it has the header `Atoll-Truncated: true`, and
/// `after` with the last name goes on.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/files", tag = "files",
    params(("id" = uuid::Uuid, Path), PathParams),
    responses((status = 200, body = Vec<FileItem>, headers(("Atoll-Truncated" = bool, description = "There is more"))),
        (status = 400), (status = 404), (status = 409), (status = 422), (status = 429)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<PathParams>,
) -> Result<Response, Failure> {
    let PathParams { path, limit, after } = params;
    let (path, limit) = (path.as_deref().unwrap_or("/workspace"), limit.unwrap_or(FILES_PER_PAGE));
    let listed = app.core.files.list(&caller, sandbox_id(&id)?, path, after.as_deref(), limit).await;
    let (entries, more) = listed.map_err(Failure::in_query)?;
    let items: Vec<FileItem> = entries.into_iter().map(|entry| FileItem::inside(path, entry)).collect();
    let told = more.then_some([(TRUNCATED, HeaderValue::from_static("true"))]);
    Ok(match told {
        Some(told) => (told, Json(items)).into_response(),
        None => Json(items).into_response(),
    })
}

/// The part of a file that a `Range` header asks for: its first byte and, where it says, its last.
fn range_of(headers: &HeaderMap) -> Result<Option<(u64, Option<u64>)>, Failure> {
    let Some(value) = headers.get(header::RANGE) else { return Ok(None) };
    let wrong = || Failure::in_header(Error::invalid("Range", "expected bytes=FIRST-LAST or bytes=FIRST-"));
    let text = value.to_str().ok().and_then(|v| v.strip_prefix("bytes=")).ok_or_else(wrong)?;
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let first: u64 = first.parse().map_err(|_| wrong())?;
    let last = match last {
        "" => None,
        text => Some(text.parse::<u64>().ok().filter(|l| *l >= first).ok_or_else(wrong)?),
    };
    Ok(Some((first, last)))
}

/// Reads a file, or a part of it.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/files/{*path}", tag = "files",
    params(("id" = uuid::Uuid, Path), ("path" = String, Path, description = "Below /workspace, or absolute with a leading //")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = 206), (status = 400),
        (status = 404), (status = 409)))]
pub(crate) async fn download(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let range = range_of(&headers)?;
    let (first, last) = range.unwrap_or((0, None));
    let length = last.map_or(0, |last| last - first + 1);
    let download = app.core.files.download(&caller, sandbox_id(&id)?, &path, first, length).await;
    let download = download.map_err(Failure::in_path)?;
    let size = download.entry.size;
    if first > 0 && first >= size {
        let message = format!("the file has {size} bytes");
        return Err(Failure::in_header(Error::invalid("Range", message)));
    }
    let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
    let left = download.left();
    let mut response = Body::from_stream(pieces(download)).into_response();
    let set = response.headers_mut();
    let mut put = |name, value: String| value.parse().map(|value| set.insert(name, value)).is_ok();
    put(header::CONTENT_TYPE, "application/octet-stream".into());
    put(header::CONTENT_DISPOSITION, "attachment".into());
    put(header::ACCEPT_RANGES, "bytes".into());
    // Without it a file is sent in chunks. Where it becomes shorter on the way, the connection breaks.
    if let Some(left) = left {
        put(header::CONTENT_LENGTH, left.to_string());
    }
    if range.is_some() {
        put(header::CONTENT_RANGE, format!("bytes {first}-{}/{size}", end.saturating_sub(1)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn pieces(download: Download) -> impl futures_util::Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(download, |mut download| async move {
        match download.next().await {
            Ok(Some(bytes)) => Ok(Some((bytes, download))),
            Ok(None) => Ok(None),
            // The connection breaks, so that the client does not take this for the end.
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadParams {
    /// `force` replaces a file that the sandbox's user may not write.
    #[param(inline)]
    overwrite: Option<Overwrite>,
}

#[derive(Debug, Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overwrite {
    Force,
}

/// Writes a file, whole or not at all. Folders above it are made.
#[utoipa::path(put, path = "/api/v1/sandboxes/{id}/files/{*path}", tag = "files",
    params(("id" = uuid::Uuid, Path), ("path" = String, Path), UploadParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204), (status = 400), (status = 403), (status = 404), (status = 409), (status = 507)))]
pub(crate) async fn upload(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, path)): Path<(String, String)>,
    Params(params): Params<UploadParams>,
    body: Body,
) -> Result<StatusCode, Failure> {
    let force = params.overwrite == Some(Overwrite::Force);
    let options = WriteOptions { create_parents: true, force, ..WriteOptions::default() };
    let written = app.core.files.upload(&caller, sandbox_id(&id)?, &path, options, steady(body)).await;
    written.map_err(Failure::in_path)?;
    Ok(StatusCode::NO_CONTENT)
}

/// How long an upload may send nothing.
const STILL: Duration = Duration::from_secs(60);

/// The pieces of a body; an error where it breaks off or sends nothing for too long.
pub(crate) fn steady(body: Body) -> impl Stream<Item = atoll_types::Result<bytes::Bytes>> + Send + 'static {
    futures_util::stream::unfold(Some(body.into_data_stream()), |stream| async {
        let mut stream = stream?;
        let cut = |why| (Err(Error::new(ErrorCode::Unavailable, why)), None);
        match tokio::time::timeout(STILL, stream.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(stream))),
            Ok(Some(Err(_))) => Some(cut("the upload was cut off")),
            Err(_) => Some(cut("no data came for too long")),
        }
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatParams {
    /// Absolute, or relative to /workspace.
    path: String,
    /// Whether a link in the last place is followed.
    follow: Option<bool>,
}

/// What a path stands for.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/fs/stat", tag = "files",
    params(("id" = uuid::Uuid, Path), StatParams),
    responses((status = 200, body = FileItem), (status = 400), (status = 404), (status = 409)))]
pub(crate) async fn stat(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<StatParams>,
) -> Result<Json<FileItem>, Failure> {
    let (id, follow) = (sandbox_id(&id)?, params.follow.unwrap_or(false));
    let entry = app.core.files.stat(&caller, id, &params.path, follow).await.map_err(Failure::in_query)?;
    Ok(Json(FileItem::at(&params.path, entry)))
}

/// A folder to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MkdirBody {
    path: String,
    /// Whether to make the folders above it too.
    #[serde(default)]
    parents: bool,
}

/// Makes a folder.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fs/mkdir", tag = "files", params(("id" = uuid::Uuid, Path)),
    request_body = MkdirBody,
    responses((status = 201, body = FileItem), (status = 400), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn mkdir(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<FileItem>), Failure> {
    let id = sandbox_id(&id)?;
    let MkdirBody { path, parents } = json(&body)?;
    let entry = app.core.files.make_dir(&caller, id, &path, parents).await?;
    Ok((StatusCode::CREATED, Json(FileItem::at(&path, entry))))
}

/// A file or folder to rename.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveBody {
    from: String,
    to: String,
    #[serde(default)]
    overwrite: bool,
}

/// Gives a file or folder another name.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fs/move", tag = "files", params(("id" = uuid::Uuid, Path)),
    request_body = MoveBody,
    responses((status = 200, body = FileItem), (status = 400), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn rename(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Json<FileItem>, Failure> {
    let id = sandbox_id(&id)?;
    let MoveBody { from, to, overwrite } = json(&body)?;
    let entry = app.core.files.rename(&caller, id, &from, &to, overwrite).await?;
    Ok(Json(FileItem::at(&to, entry)))
}

/// A file or folder to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveBody {
    path: String,
    /// A folder with all that is in it.
    #[serde(default)]
    recursive: bool,
}

/// Deletes a file or folder.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fs/remove", tag = "files", params(("id" = uuid::Uuid, Path)),
    request_body = RemoveBody, responses((status = 204), (status = 400), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<StatusCode, Failure> {
    let id = sandbox_id(&id)?;
    let RemoveBody { path, recursive } = json(&body)?;
    app.core.files.remove(&caller, id, &path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}
