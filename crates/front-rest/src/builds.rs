//! Images from registries, and the builds that make images: looking, following and cancelling.

use crate::{
    App,
    events::wants_stream,
    parse::{Params, Raw, build_id, required_json},
};
use atoll_core::{BuildLogFollow, BuildNews, BuildView, Core, PullImage, RegistryLogin};
use atoll_http::{Busy, Ending, Failure, Repeat, Who, event_stream, keep_alive, once};
use atoll_types::{BuildId, BuildProgress, BuildRecord, Error, sse, time::rfc3339};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// How far a build is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// Bytes that were fetched or unpacked in this step.
    done_bytes: u64,
    /// 0 where that is not known.
    total_bytes: u64,
    /// Which step, from 1; 0 before the first.
    step: u32,
    /// Steps in all; 0 where that is not known.
    steps: u32,
}

impl From<BuildProgress> for Progress {
    fn from(progress: BuildProgress) -> Self {
        let BuildProgress { done_bytes, total_bytes, step, steps } = progress;
        Self { done_bytes, total_bytes, step, steps }
    }
}

/// The making of an image.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Build {
    build_id: Uuid,
    /// The image that is made; it is there when the build is done.
    image_id: Uuid,
    /// What the image is to be called.
    name: String,
    tag: String,
    /// What it is made from: import, pull or template.
    origin: &'static str,
    /// The reference that is pulled, or the kind of archive or template.
    source: String,
    /// running, done, failed or cancelled.
    status: &'static str,
    /// Why it failed.
    error: Option<String>,
    /// While it runs.
    progress: Option<Progress>,
    /// The owner of the key that asked for it.
    owner: String,
    created_at: String,
    ended_at: Option<String>,
}

impl From<BuildView> for Build {
    fn from(view: BuildView) -> Self {
        let BuildView { record, progress } = view;
        let BuildRecord {
            id,
            image,
            tag,
            origin,
            source,
            owner: _,
            asked_by,
            sandbox: _,
            volume: _,
            state,
            error,
            created_at,
            ended_at,
        } = record;
        Self {
            build_id: id.uuid(),
            image_id: image.uuid(),
            name: tag.name,
            tag: tag.tag,
            origin: origin.as_str(),
            source,
            status: state.as_str(),
            error,
            progress: progress.map(Into::into),
            owner: asked_by,
            created_at: rfc3339(created_at),
            ended_at: ended_at.map(rfc3339),
        }
    }
}

/// Builds, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BuildList {
    items: Vec<Build>,
    total: usize,
}

/// An image to pull.
// Without Debug: it may hold a password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PullBody {
    /// HOST/NAME, with :TAG or @sha256:…
    reference: String,
    /// NAME or NAME:TAG; the reference's own without it.
    name: Option<String>,
    /// Take the tag from the image that has it.
    #[serde(default)]
    replace: bool,
    /// What the image may hold; as the setting `images.max_mb` without it.
    disk_mb: Option<u64>,
    /// Who asks the registry, with `password`; as the operator's file says without them. Neither is kept.
    username: Option<String>,
    password: Option<String>,
    /// A token that the registry takes, in the place of both.
    token: Option<String>,
    /// As a create does: only where `images.pull_on_use` lets this key, and 409 while another request pulls it.
    #[serde(default)]
    on_use: bool,
}

/// Who asks a registry, as a request says it.
pub(crate) fn login(
    username: Option<String>,
    password: Option<String>,
    token: Option<String>,
) -> Result<Option<RegistryLogin>, Failure> {
    match (username, password, token) {
        (None, None, None) => Ok(None),
        (Some(username), Some(password), None) => Ok(Some(RegistryLogin::Password { username, password })),
        (None, None, Some(token)) => Ok(Some(RegistryLogin::Token(token))),
        _ => Err(Error::invalid("username", "expected username and password, or token").into()),
    }
}

impl TryFrom<PullBody> for PullImage {
    type Error = Failure;

    fn try_from(body: PullBody) -> Result<Self, Failure> {
        let PullBody { reference, name, replace, disk_mb, username, password, token, on_use } = body;
        let login = login(username, password, token)?;
        Ok(Self { reference, name, replace, disk_mb, login, on_use })
    }
}

/// Pulls an image from a registry, in the background. Its layers are unpacked in a sandbox; of a pull that fails or is cancelled
/// nothing is left. For admins; for other keys where `images.pull_on_use` lets their creates pull it, with the reference alone.
#[utoipa::path(post, path = "/api/v1/sandbox-images/pull", tag = "images", request_body = PullBody,
    responses((status = 202, body = Build), (status = 403),
        (status = 409, description = "Another image has the tag, or another request pulls it"),
        (status = 422, description = "The reference is none, or names no registry"),
        (status = 429, description = "As many images are being built as may be")))]
pub(crate) async fn pull(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let request: PullBody = required_json(&body)?;
    let request = PullImage::try_from(request)?;
    let repeat = Repeat::of(&headers, "pull", &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let record = core.images.pull(&asker, request).await?;
        let progress = Some(BuildProgress::default());
        Ok((StatusCode::ACCEPTED, Build::from(BuildView { record, progress })))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

/// The builds of images that are kept, the newest first: all of them for admins, those of their owner for other keys.
#[utoipa::path(get, path = "/api/v1/sandbox-images/builds", tag = "images",
    responses((status = 200, body = BuildList)))]
pub(crate) async fn builds(State(app): State<App>, Who(caller): Who) -> Result<Json<BuildList>, Failure> {
    let items: Vec<Build> = app.core.images.builds(&caller).await?.into_iter().map(Build::from).collect();
    Ok(Json(BuildList { total: items.len(), items }))
}

/// One build.
#[utoipa::path(get, path = "/api/v1/sandbox-images/builds/{build_id}", tag = "images",
    params(("build_id" = Uuid, Path)),
    responses((status = 200, body = Build), (status = 404)))]
pub(crate) async fn build(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Build>, Failure> {
    Ok(Json(app.core.images.get_build(&caller, build_id(&id)?).await?.into()))
}

/// Cancels a build: its sandbox ends and nothing of the image is left. Of a build that has ended the record and the log are removed.
#[utoipa::path(delete, path = "/api/v1/sandbox-images/builds/{build_id}", tag = "images",
    params(("build_id" = Uuid, Path)),
    responses((status = 204), (status = 404), (status = 409, description = "The image was complete already")))]
pub(crate) async fn cancel_build(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    app.core.images.cancel_build(&caller, build_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a log is read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParams {
    /// Answer with server-sent events, those that come included; so does `Accept: text/event-stream`.
    follow: Option<bool>,
}

fn offset(headers: &HeaderMap) -> Result<u64, Failure> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(0) };
    let wrong = || Failure::in_header(Error::invalid("Last-Event-ID", "expected the id of an event"));
    value.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)
}

/// What a build says, as text: what there is of a build that runs.
///
/// With `follow`, server-sent events until its end: `log` has `{"text"}` and as its `id` the byte after which `Last-Event-ID`
/// resumes; `progress` has what a build's `progress` has; the last one, `end`, has the build. Texts come from inside
/// of a sandbox, with whatever control characters they have.
#[utoipa::path(get, path = "/api/v1/sandbox-images/builds/{build_id}/log", tag = "images",
    params(LogParams, ("build_id" = Uuid, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, content((String = "text/plain"), (String = "text/event-stream"))), (status = 404)))]
pub(crate) async fn build_log(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<LogParams>,
    ending: Ending,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (id, at) = (build_id(&id)?, offset(&headers)?);
    let follow = app.core.images.build_log(&caller, id, at).await?;
    if params.follow.unwrap_or_else(|| wants_stream(&headers)) {
        let follower = Follower { core: app.core.clone(), caller, id, follow, ending, done: false };
        let events = stream::unfold(follower, |mut f| async { Some((f.next().await?, f)) });
        let mut response = event_stream(keep_alive(events));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        return Ok(response);
    }
    let text = stream::unfold(follow, |mut follow| async {
        let piece = follow.ready().await.transpose()?;
        Some((piece.map_err(|e| std::io::Error::other(e.message)), follow))
    });
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((plain, Body::from_stream(text)).into_response())
}

struct Follower {
    core: Core,
    caller: atoll_core::Caller,
    id: BuildId,
    follow: BuildLogFollow,
    ending: Ending,
    done: bool,
}

fn event(id: Option<u64>, kind: &str, data: &impl Serialize) -> String {
    let mut out = String::new();
    let data = serde_json::to_string(data).unwrap_or_default();
    sse::write(&mut out, id, Some(kind), |out| out.push_str(&data));
    out
}

impl Follower {
    async fn next(&mut self) -> Option<String> {
        if self.done {
            return None;
        }
        let news = tokio::select! {
            biased;
            () = self.ending.wait() => return None,
            news = self.follow.next() => news,
        };
        let failed =
            |error: &Error| event(None, "error", &json!({"code": error.code, "message": error.message}));
        Some(match news {
            Ok(Some(BuildNews::Text { next, text })) => {
                event(Some(next), "log", &json!({"text": String::from_utf8_lossy(&text)}))
            }
            Ok(Some(BuildNews::Progress(progress))) => event(None, "progress", &Progress::from(progress)),
            Ok(None) => {
                self.done = true;
                match self.core.images.get_build(&self.caller, self.id).await {
                    Ok(build) => event(None, "end", &Build::from(build)),
                    Err(error) => failed(&error),
                }
            }
            Err(error) => {
                self.done = true;
                failed(&error)
            }
        })
    }
}
