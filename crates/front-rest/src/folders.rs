//! Work on whole folders: find, grep, archives in both directions, and watching. All of it is done by
//! programs that run inside, as the sandbox's user.

use crate::{
    App,
    files::steady,
    parse::{Params, Raw, json, sandbox_id},
};
use atoll_core::{Archive, Findings, HeldAnswer, Matches, WatchStream};
use atoll_guest_tools::{Find, Found, Grep, KindFilter, Match, Pack, Unpack, Unpacked, Watch, WatchEvent};
use atoll_http::{ChangedNothing, Failure, Who, event_stream, keep_alive};
use atoll_types::{Error, files::EntryKind, sse, time::rfc3339};
use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

const WORKSPACE: &str = "/workspace";

/// What to look for.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindKind {
    File,
    Directory,
    Symlink,
    #[default]
    Any,
}

/// Entries to find.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindBody {
    /// Absolute, or relative to /workspace, which is where it looks without one.
    path: Option<String>,
    /// A glob for the name, or with a slash in it for the path below `path`: `*`, `?`, `[a-z]`, `{a,b}`, `**`.
    pattern: Option<String>,
    #[serde(default)]
    kind: FindKind,
    /// 1 is the folder itself.
    max_depth: Option<u32>,
    /// Whether names that begin with a dot count; they do.
    hidden: Option<bool>,
    /// Bytes of a file.
    min_size: Option<u64>,
    max_size: Option<u64>,
    /// Milliseconds since 1970.
    modified_after: Option<i64>,
    /// Most entries: 1000, at most 100000.
    limit: Option<u32>,
}

impl From<FindBody> for Find {
    fn from(body: FindBody) -> Self {
        let FindBody { path, pattern, kind, max_depth, hidden, min_size, max_size, modified_after, limit } =
            body;
        let usual = Self::default();
        Self {
            path: path.unwrap_or(usual.path),
            pattern,
            kind: match kind {
                FindKind::File => KindFilter::File,
                FindKind::Directory => KindFilter::Directory,
                FindKind::Symlink => KindFilter::Symlink,
                FindKind::Any => KindFilter::Any,
            },
            max_depth,
            hidden: hidden.unwrap_or(usual.hidden),
            min_size,
            max_size,
            modified_after,
            limit: limit.unwrap_or(usual.limit),
        }
    }
}

/// An entry that was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundItem {
    /// Relative to /workspace where it is below that, else absolute.
    path: String,
    /// file, directory, symlink or other.
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    /// Permission bits, in octal.
    mode: String,
    modified_at: String,
}

impl From<Found> for FoundItem {
    fn from(found: Found) -> Self {
        let Found { path, kind, size, mode, modified } = found;
        let modified_at = rfc3339(modified);
        Self { path, kind: kind.as_str(), size, mode: format!("{mode:04o}"), modified_at }
    }
}

/// What was found, in the order of paths.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindResult {
    entries: Vec<FoundItem>,
    /// There may be more.
    truncated: bool,
    /// Folders that the sandbox's user may not read.
    skipped: u64,
}

/// An answer to a POST that changed nothing. Until it is written out, what it is made of counts.
fn looked_up<T: Serialize>(answer: Json<T>, held: HeldAnswer) -> Response {
    let answer = (Extension(ChangedNothing), answer).into_response();
    drop(held);
    answer
}

/// Finds files, folders and links below a folder. Links are not followed.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fs/find", tag = "files", params(("id" = uuid::Uuid, Path)),
    request_body = FindBody,
    responses((status = 200, body = FindResult), (status = 400), (status = 404), (status = 409),
        (status = 422, description = "A field is wrong"), (status = 504)))]
pub(crate) async fn find(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let id = sandbox_id(&id)?;
    let request: Find = json::<FindBody>(&body)?.into();
    let Findings { entries, end, held } = app.core.files.find(&caller, id, &request).await?;
    let entries = entries.into_iter().map(FoundItem::from).collect();
    let answer = Json(FindResult { entries, truncated: end.truncated, skipped: end.skipped });
    Ok(looked_up(answer, held))
}

/// Lines to find.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrepBody {
    /// A folder or a file; absolute, or relative to /workspace, which is where it looks without one.
    path: Option<String>,
    /// A regular expression for one line, in the syntax of Rust's `regex`, or with `literal` a text.
    pattern: String,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    /// Only files whose name, or with a slash in it whose path below `path`, matches this glob.
    glob: Option<String>,
    /// Whether names that begin with a dot count; they do.
    hidden: Option<bool>,
    /// Most matching lines: 1000, at most 10000.
    max_matches: Option<u32>,
    max_per_file: Option<u32>,
    /// Lines before and after each, at most 10.
    context: Option<u32>,
    /// Larger files are passed over: 10 MiB, at most 64.
    max_file_size: Option<u64>,
}

impl From<GrepBody> for Grep {
    fn from(body: GrepBody) -> Self {
        let GrepBody {
            path,
            pattern,
            literal,
            ignore_case,
            glob,
            hidden,
            max_matches,
            max_per_file,
            context,
            max_file_size,
        } = body;
        let usual = Self::default();
        Self {
            path: path.unwrap_or(usual.path),
            pattern,
            literal,
            ignore_case,
            glob,
            hidden: hidden.unwrap_or(usual.hidden),
            max_matches: max_matches.unwrap_or(usual.max_matches),
            max_per_file,
            context: context.unwrap_or(usual.context),
            max_file_size: max_file_size.unwrap_or(usual.max_file_size),
        }
    }
}

/// A line that was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MatchItem {
    /// Relative to /workspace where it is below that, else absolute.
    path: String,
    /// From 1.
    line: u64,
    /// Where the match begins, in characters from 1.
    column: u64,
    /// The line, its first 2 KiB.
    text: String,
    before: Vec<String>,
    after: Vec<String>,
}

impl From<Match> for MatchItem {
    fn from(found: Match) -> Self {
        let Match { path, line, column, text, before, after } = found;
        Self { path, line, column, text, before, after }
    }
}

/// Lines that were found, in the order of paths.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GrepResult {
    matches: Vec<MatchItem>,
    /// There may be more.
    truncated: bool,
    /// Files and folders that the sandbox's user may not read.
    skipped: u64,
}

/// Finds lines in files. Files with a NUL byte are passed over, links are not followed.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fs/grep", tag = "files", params(("id" = uuid::Uuid, Path)),
    request_body = GrepBody,
    responses((status = 200, body = GrepResult), (status = 400), (status = 404), (status = 409),
        (status = 422, description = "A field is wrong"), (status = 504)))]
pub(crate) async fn grep(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let id = sandbox_id(&id)?;
    let request: Grep = json::<GrepBody>(&body)?.into();
    let Matches { matches, end, held } = app.core.files.grep(&caller, id, &request).await?;
    let matches = matches.into_iter().map(MatchItem::from).collect();
    let answer = Json(GrepResult { matches, truncated: end.truncated, skipped: end.skipped });
    Ok(looked_up(answer, held))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PackParams {
    /// A folder or a file; absolute, or relative to /workspace, which it is without one.
    path: Option<String>,
    /// What the names in the archive begin with; without it they are relative to the folder.
    prefix: Option<String>,
}

/// Reads a folder, or a file, as a tar archive.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/fs/tar", tag = "files",
    params(("id" = uuid::Uuid, Path), PackParams),
    responses((status = 200, content_type = "application/x-tar", body = Vec<u8>,
        description = "An archive that breaks off lacks its end mark, and the connection breaks"),
        (status = 400), (status = 403), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn pack(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<PackParams>,
) -> Result<Response, Failure> {
    let PackParams { path, prefix } = params;
    let request = Pack { path: path.unwrap_or_else(|| WORKSPACE.into()), prefix };
    let archive =
        app.core.files.pack(&caller, sandbox_id(&id)?, &request).await.map_err(Failure::in_query)?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"files.tar\""),
    ];
    Ok((headers, Body::from_stream(pieces(archive))).into_response())
}

fn pieces(archive: Archive) -> impl Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(archive, |mut archive| async move {
        match archive.next().await {
            Ok(Some(bytes)) => Ok(Some((bytes, archive))),
            Ok(None) => Ok(None),
            // The connection breaks, so that the client does not take this for the end.
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UnpackParams {
    /// A folder, made if it is not there; absolute, or relative to /workspace, which it is without one.
    path: Option<String>,
}

/// What was unpacked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnpackResult {
    /// Files, links and folders.
    files: u64,
    /// Bytes of files.
    bytes: u64,
}

/// Unpacks a tar archive into a folder. Each file appears whole or not at all; of an archive that breaks off
/// or is refused, what came before is there.
#[utoipa::path(put, path = "/api/v1/sandboxes/{id}/fs/tar", tag = "files",
    params(("id" = uuid::Uuid, Path), UnpackParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "A tar archive; any content type will do"),
    responses((status = 200, body = UnpackResult), (status = 400), (status = 403), (status = 404), (status = 409),
        (status = 422, description = "The archive is broken, broke off, or leads out of the folder"),
        (status = 507, description = "The disk is full")))]
pub(crate) async fn unpack(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<UnpackParams>,
    body: Body,
) -> Result<Json<UnpackResult>, Failure> {
    let request = Unpack { path: params.path.unwrap_or_else(|| WORKSPACE.into()) };
    match app.core.files.unpack(&caller, sandbox_id(&id)?, &request, steady(body)).await {
        Ok(Unpacked { files, bytes }) => Ok(Json(UnpackResult { files, bytes })),
        Err(error) if error.field.as_deref() == Some("path") => Err(Failure::in_query(error)),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchParams {
    /// A folder; absolute, or relative to /workspace, which it is without one.
    path: Option<String>,
    /// Whether the folders below it count; they do.
    recursive: Option<bool>,
}

/// Something that happened: the `data` of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchItem {
    /// ready, created, modified, deleted, renamed, overflow, limit or error.
    event: &'static str,
    /// Relative to /workspace where it is below that, else absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The new name of what was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// file, directory, symlink or other; of what is gone only folders are told from files.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Of an error, which is the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<WatchEvent> for WatchItem {
    fn from(happened: WatchEvent) -> Self {
        let WatchEvent { event, path, to, kind } = happened;
        let kind = kind.map(EntryKind::as_str);
        Self { event: event.as_str(), path, to, kind, code: None, message: None }
    }
}

impl From<Error> for WatchItem {
    fn from(error: Error) -> Self {
        let (code, message) = (Some(error.code.as_str()), Some(error.message));
        Self { event: "error", path: None, to: None, kind: None, code, message }
    }
}

/// Follows what happens in a folder, as server-sent events; the first is `ready`.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/fs/watch", tag = "files",
    params(("id" = uuid::Uuid, Path), WatchParams),
    responses((status = 200, content_type = "text/event-stream", body = WatchItem), (status = 400), (status = 404),
        (status = 409), (status = 422)))]
pub(crate) async fn watch(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<WatchParams>,
) -> Result<Response, Failure> {
    let WatchParams { path, recursive } = params;
    let path = path.unwrap_or_else(|| WORKSPACE.into());
    let request = Watch { path, recursive: recursive.unwrap_or(true) };
    let stream =
        app.core.files.watch(&caller, sandbox_id(&id)?, &request).await.map_err(Failure::in_query)?;
    Ok(event_stream(keep_alive(events(stream))))
}

fn events(stream: WatchStream) -> impl Stream<Item = String> {
    futures_util::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        let (item, rest) = match stream.next().await {
            Ok(Some(event)) => (WatchItem::from(event), Some(stream)),
            Ok(None) => return None,
            Err(error) => (WatchItem::from(error), None),
        };
        let data = serde_json::to_string(&item).unwrap_or_default();
        let mut out = String::new();
        sse::write(&mut out, None, None, |out| out.push_str(&data));
        Some((out, rest))
    })
}
