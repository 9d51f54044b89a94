//! Conversations: the six tools by plain HTTP, what their sessions export, and what people upload for them.
//! A tool answers 200 whatever comes of it: what went wrong is for the model, in the answer.

use crate::{App, parse::Params};
use atoll_core::Caller;
use atoll_http::{Failure, LARGEST_CALL, ServerAddress, Who, read_request};
use atoll_tool_sessions::{
    Export, ExportBody, ThreadId, Uploaded,
    tools::output::{ActiveSession, SessionStatus},
};
use atoll_types::{Error, ErrorCode};
use axum::{
    Json,
    body::Body,
    extract::{
        DefaultBodyLimit, FromRequest, Multipart, Path, Request, State,
        multipart::{Field, MultipartError},
    },
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Most files of one upload.
pub(crate) const MOST_FILES: usize = 100;
/// How long an upload may make no progress.
const STILL: Duration = Duration::from_secs(60);

fn who(caller: Caller, thread: &str) -> Result<atoll_tool_sessions::ToolCaller, Failure> {
    let thread: ThreadId = thread.parse().map_err(Failure::in_path)?;
    Ok(atoll_tool_sessions::ToolCaller { caller, thread, address: None })
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolItem {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input_schema: Value,
    output_schema: Value,
}

/// The six tools, as a model is told of them.
#[utoipa::path(get, path = "/tools", tag = "threads", responses((status = 200, body = Vec<ToolItem>)))]
pub(crate) async fn tools(Who(_caller): Who) -> Json<Vec<ToolItem>> {
    let item = |tool: &atoll_tool_sessions::ToolDescription| ToolItem {
        name: tool.name,
        title: tool.title,
        description: tool.description,
        input_schema: Value::Object(tool.input.clone()),
        output_schema: Value::Object(tool.output.clone()),
    };
    Json(atoll_tool_sessions::describe().iter().map(item).collect())
}

/// Calls one of the six tools. The answer is always 200: an error of a tool is an answer for the model.
#[utoipa::path(post, path = "/threads/{thread_id}/tools/{tool}", tag = "threads",
    params(("thread_id" = String, Path), ("tool" = String, Path)), request_body = Value,
    responses((status = 200, body = Value), (status = 413), (status = 422, description = "The thread or the body is wrong")))]
pub(crate) async fn call(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, tool)): Path<(String, String)>,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let mut who = who(caller, &thread)?;
    who.address = address.map(|address| address.url());
    let body = read_request(request, LARGEST_CALL).await?;
    let arguments = match body.trim_ascii() {
        b"" => Value::Null,
        text => serde_json::from_slice(text).map_err(|e| Error::invalid("body", e.to_string()))?,
    };
    Ok(Json(app.sessions.call(&who, &tool, arguments).await.value))
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionItem {
    session_id: String,
    /// python, node or r.
    runtime: &'static str,
    /// starting, running or dead.
    status: &'static str,
}

impl From<ActiveSession> for SessionItem {
    fn from(session: ActiveSession) -> Self {
        let ActiveSession { session_id, runtime, status } = session;
        let status = match status {
            SessionStatus::Starting => "starting",
            SessionStatus::Running => "running",
            SessionStatus::Dead => "dead",
        };
        Self { session_id, runtime: runtime.as_str(), status }
    }
}

/// The sessions of a thread, the oldest first.
#[utoipa::path(get, path = "/threads/{thread_id}/sessions", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 200, body = Vec<SessionItem>), (status = 422)))]
pub(crate) async fn sessions(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
) -> Result<Json<Vec<SessionItem>>, Failure> {
    let sessions = app.sessions.sessions(&who(caller, &thread)?).await?;
    Ok(Json(sessions.into_iter().map(SessionItem::from).collect()))
}

/// Something that a session exported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExportItem {
    session_id: String,
    path: String,
    is_directory: bool,
    /// Bytes of a file when it was exported.
    size: Option<u64>,
    exported_at: String,
}

impl From<Export> for ExportItem {
    fn from(export: Export) -> Self {
        let Export { session_id, path, is_folder, size, exported_at } = export;
        let exported_at = atoll_types::time::rfc3339(exported_at);
        Self { session_id, path, is_directory: is_folder, size, exported_at }
    }
}

/// What the sessions of a thread have exported.
#[utoipa::path(get, path = "/threads/{thread_id}/files", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 200, body = Vec<ExportItem>), (status = 422)))]
pub(crate) async fn exports(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
) -> Result<Json<Vec<ExportItem>>, Failure> {
    let exports = app.sessions.exports(&who(caller, &thread)?).await?;
    Ok(Json(exports.into_iter().map(ExportItem::from).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DownloadParams {
    session_id: String,
    /// As export_files returned it, or below an exported folder.
    path: String,
}

/// Downloads what a session exported: a file as it is, a folder as a tar archive.
#[utoipa::path(get, path = "/threads/{thread_id}/files/download", tag = "threads",
    params(("thread_id" = String, Path), DownloadParams),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 400, description = "The path is wrong"), (status = 403, description = "It is not exported"),
        (status = 404), (status = 409), (status = 422), (status = 501), (status = 502), (status = 504), (status = 507)))]
pub(crate) async fn download(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    Params(params): Params<DownloadParams>,
) -> Result<Response, Failure> {
    let who = who(caller, &thread)?;
    let body = app.sessions.read_export(&who, &params.session_id, &params.path).await;
    let body = body.map_err(|error| match error.code {
        // A path that cannot be right is as bad as one that leads out.
        ErrorCode::InvalidArgument => Error::new(ErrorCode::PathOutsideRoot, error.message),
        _ => error,
    })?;
    let (size, folder, name) = (body.size, body.is_folder, body.name.clone());
    let mut response = Body::from_stream(pieces(body)).into_response();
    let set = response.headers_mut();
    let mut put = |name, value: String| value.parse().map(|value| set.insert(name, value)).is_ok();
    let kind = if folder { "application/x-tar" } else { "application/octet-stream" };
    put(header::CONTENT_TYPE, kind.into());
    put(header::CONTENT_DISPOSITION, disposition(&name));
    if let Some(size) = size {
        put(header::CONTENT_LENGTH, size.to_string());
    }
    Ok(response)
}

/// What the file is to be called, for old and new clients.
fn disposition(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && !"\"\\%;".contains(c) || c == ' ' { c } else { '_' })
        .collect();
    let exact: String = name
        .bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

fn pieces(body: ExportBody) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(body, |mut body| async move {
        match body.next().await {
            Ok(Some(bytes)) => Ok(Some((bytes, body))),
            Ok(None) => Ok(None),
            // The connection breaks, so that the client does not take this for the end.
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

/// Something that was uploaded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadItem {
    name: String,
    /// What import_files takes as `source`.
    path: String,
    size: u64,
}

impl From<Uploaded> for UploadItem {
    fn from(uploaded: Uploaded) -> Self {
        let Uploaded { name, path, size } = uploaded;
        Self { name, path, size }
    }
}

#[derive(ToSchema)]
#[allow(dead_code)] // Only described.
pub(crate) struct UploadBody {
    #[schema(content_media_type = "application/octet-stream")]
    files: Vec<Vec<u8>>,
}

fn cut(error: &MultipartError) -> Error {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Error::new(ErrorCode::TooLarge, "the upload is too large"),
        _ => Error::invalid("files", error.body_text().chars().take(200).collect::<String>()),
    }
}

/// Uploads files for the sessions of a thread, as `multipart/form-data` with fields `files`.
#[utoipa::path(post, path = "/threads/{thread_id}/files/upload", tag = "threads",
    params(("thread_id" = String, Path)),
    request_body(content = UploadBody, content_type = "multipart/form-data"),
    responses((status = 200, body = Vec<UploadItem>), (status = 413), (status = 422), (status = 429)))]
pub(crate) async fn upload(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    mut request: Request,
) -> Result<Json<Vec<UploadItem>>, Failure> {
    let who = who(caller, &thread)?;
    // What uploads may have together is held as they come.
    DefaultBodyLimit::disable().apply(&mut request);
    let parts = Multipart::from_request(request, &()).await;
    let mut parts =
        parts.map_err(|_| Error::invalid("files", "expected multipart/form-data with fields `files`"))?;
    let mut kept = Vec::new();
    while let Some(field) = next_field(&mut parts).await? {
        if field.name() != Some("files") {
            continue;
        }
        if kept.len() >= MOST_FILES {
            return Err(Error::invalid("files", format!("an upload may have {MOST_FILES} files")).into());
        }
        let Some(name) = field.file_name().map(ToOwned::to_owned) else {
            return Err(Error::invalid("files", "a part without a file name is no file").into());
        };
        kept.push(UploadItem::from(app.sessions.upload(&who, &name, chunks(field)).await?));
    }
    match kept.is_empty() {
        true => Err(Error::invalid("files", "there is no field `files`").into()),
        false => Ok(Json(kept)),
    }
}

async fn next_field(parts: &mut Multipart) -> Result<Option<Field<'_>>, Failure> {
    let late = |_| Error::invalid("files", "no data came for too long");
    Ok(tokio::time::timeout(STILL, parts.next_field()).await.map_err(late)?.map_err(|e| cut(&e))?)
}

fn chunks(field: Field<'_>) -> impl Stream<Item = atoll_types::Result<Bytes>> + Send {
    futures_util::stream::unfold(Some(field), |field| async {
        let mut field = field?;
        match tokio::time::timeout(STILL, field.chunk()).await {
            Ok(Ok(None)) => None,
            Ok(Ok(Some(bytes))) => Some((Ok(bytes), Some(field))),
            Ok(Err(error)) => Some((Err(cut(&error)), None)),
            Err(_) => Some((Err(Error::invalid("files", "no data came for too long")), None)),
        }
    })
}

/// Deletes a thread: its conversation with the agent, its sessions, their exports and what was uploaded to it.
#[utoipa::path(delete, path = "/threads/{thread_id}", tag = "threads", params(("thread_id" = String, Path)),
    responses((status = 204), (status = 422)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
) -> Result<StatusCode, Failure> {
    let who = who(caller, &thread)?;
    match app.agents.delete_thread(&who.caller, &who.thread).await {
        // The tools have threads that never were a conversation with the agent.
        Err(error) if error.code == ErrorCode::NotFound => {
            app.sessions.delete_thread(&who, "its conversation was deleted").await?;
        }
        deleted => deleted?,
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_header() {
        let set = disposition("é\"x\r\n;%.tar");
        assert_eq!(set, "attachment; filename=\"__x____.tar\"; filename*=UTF-8''%C3%A9%22x%0D%0A%3B%25.tar");
    }
}
