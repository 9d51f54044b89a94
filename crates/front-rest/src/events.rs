//! Events of sandboxes, as a list or as they come. The body of the latter is pulled: a listener that does not
//! read holds one page here, and slows no other.
//!
//! Every 15 s a comment with an id and no data says how far the stream has looked, so that a listener with a
//! narrow filter does not return with an id that is long gone; the same tick checks whether the key is still
//! valid.

use crate::{App, audit::uuid, parse::Params};
use atoll_core::{EventFollow, EventUpdate};
use atoll_http::{Ending, Failure, KEEP_ALIVE, Who, event_stream};
use atoll_types::{Error, EventKind, EventQuery, EventRow, NewEvent, SandboxId, sse, time::rfc3339};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What has come already is sent together, up to this.
const TOGETHER: usize = 256 << 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// Those after the one with this id; 0: from the oldest that is kept. Without it a list begins with the
    /// oldest, and a stream with what comes from now on.
    after: Option<u64>,
    #[param(value_type = Option<Uuid>)]
    sandbox_id: Option<String>,
    /// An owner's name or id. Only an admin hears others' events.
    owner: Option<String>,
    /// One or several, separated by commas: created, starting, ready, paused, stopped, dead, destroyed,
    /// expiring, and others that may come later.
    kind: Option<String>,
    /// Answer with server-sent events, those that come included; so does `Accept: text/event-stream`.
    follow: Option<bool>,
    /// Of a list: 100, unless said otherwise.
    limit: Option<u32>,
}

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventItem {
    /// 1, 2, 3, over all owners.
    id: u64,
    at: String,
    kind: &'static str,
    sandbox_id: Option<Uuid>,
    owner: String,
    /// Why, where that is known.
    reason: Option<String>,
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// Some events, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventList {
    events: Vec<EventItem>,
    /// The greatest id of all; zero before the first event.
    newest: u64,
    /// Where to go on: the next list's `after`.
    next_after: u64,
    /// Whether events after the one that was asked for are gone, or it never was: look at the sandboxes.
    missed: bool,
}

impl From<EventRow> for EventItem {
    fn from(row: EventRow) -> Self {
        let EventRow { id, event } = row;
        let NewEvent { at, owner, sandbox, kind, reason, data } = event;
        let data = serde_json::from_str(&data).unwrap_or_else(|_| json!({}));
        let sandbox_id = sandbox.map(|sandbox| sandbox.uuid());
        Self { id, at: rfc3339(at), kind: kind.as_str(), sandbox_id, owner, reason, data }
    }
}

/// The kinds that a request names; none where it names none. A name that is no kind's has no events.
fn kinds(text: &str) -> Option<Vec<EventKind>> {
    let mut names = text.split(',').filter(|name| !name.is_empty()).peekable();
    names.peek()?;
    Some(names.filter_map(EventKind::from_name).collect())
}

/// Where a listener that reconnects wants to go on.
fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(value) = headers.get("last-event-id").filter(|v| !v.is_empty()) else { return Ok(None) };
    let wrong = || Failure::in_header(Error::invalid("Last-Event-ID", "expected the id of an event"));
    Ok(Some(value.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?))
}

/// Whether a client asks for server-sent events.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let mut kinds = accepted.flat_map(|list| list.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
}

/// What happens to sandboxes.
///
/// With `follow`, server-sent events: `id` is the event's, `event` its kind, `data` the event as JSON.
/// `Last-Event-ID` goes on after that one, with none lost and none twice, also on a server that was
/// restarted. An event `missed` says that some are gone: look at the sandboxes then. `error` is the last
/// one, and says why nothing more comes.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(EventParams, ("Last-Event-ID" = Option<u64>, Header, description = "Goes before `after`")),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream"))),
        (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn events(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<EventParams>,
    ending: Ending,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let EventParams { after, sandbox_id, owner, kind, follow, limit } = params;
    let last = last_event(&headers)?;
    let query = EventQuery {
        // The oldest that is kept is what was asked for, so nothing is missed.
        after: last.or(after.filter(|after| *after > 0)),
        sandbox: uuid("sandbox_id", sandbox_id.as_deref())?.map(SandboxId::from_uuid),
        owner: owner.as_deref().map(atoll_core::owner_id),
        kinds: kind.as_deref().and_then(kinds),
        limit: limit.unwrap_or(100),
    };
    if follow.unwrap_or_else(|| wants_stream(&headers)) {
        let from_now = last.is_none() && after.is_none();
        let known = query.after.is_some() || from_now;
        let follow = app.core.events.follow(&caller, query, from_now).await?;
        return Ok(respond(Sender::new(follow, ending, known)));
    }
    let most = query.limit as usize;
    let page = app.core.events.page(&caller, query).await.map_err(Failure::in_query)?;
    let full = page.items.last().filter(|_| page.items.len() >= most);
    let next_after = full.map_or(page.newest, |last| last.id);
    let events = page.items.into_iter().map(EventItem::from).collect();
    Ok(Json(EventList { events, newest: page.newest, next_after, missed: page.missed }).into_response())
}

struct Sender {
    follow: EventFollow,
    ending: Ending,
    tick: Interval,
    /// Sent first.
    greeting: Option<String>,
    done: bool,
}

fn respond(sender: Sender) -> Response {
    let body = stream::unfold(sender, |mut sender| async { Some((sender.next().await?, sender)) });
    let mut response = event_stream(body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A listener that hears little would else ask for events that are long gone.
fn alive(id: Option<u64>) -> String {
    sse::alive("listening", id)
}

fn write(out: &mut String, id: u64, kind: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).unwrap_or_default();
    sse::write(out, Some(id), Some(kind), |out| out.push_str(&data));
}

impl Sender {
    fn new(follow: EventFollow, ending: Ending, known: bool) -> Self {
        // At each tick the key is looked at again, too.
        let mut tick = interval(KEEP_ALIVE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        let greeting = Some(alive(known.then(|| follow.resume())));
        Self { follow, ending, tick, greeting, done: false }
    }

    async fn next(&mut self) -> Option<String> {
        if self.done {
            return None;
        }
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        let mut out = String::new();
        tokio::select! {
            biased;
            // A busy stream would never come to the others.
            () = self.ending.wait() => return None,
            _ = self.tick.tick() => match self.follow.check().await {
                Ok(()) => return Some(alive(Some(self.follow.resume()))),
                Err(error) => self.fail(&mut out, &error),
            },
            news = self.follow.next() => self.add(&mut out, news),
        }
        while !self.done && out.len() < TOGETHER {
            let Some(news) = self.follow.waiting() else { break };
            self.add(&mut out, Ok(news));
        }
        Some(out)
    }

    fn add(&mut self, out: &mut String, news: atoll_types::Result<EventUpdate>) {
        match news {
            Ok(EventUpdate::Event(row)) => {
                let item = EventItem::from(row);
                write(out, item.id, item.kind, &item);
            }
            Ok(EventUpdate::Missed { after, resume }) => {
                let reason = format!(
                    "events after {after} are gone, or it never was; look at the sandboxes, and go on after {resume}"
                );
                write(out, resume, "missed", &json!({ "reason": reason, "after": after, "resume": resume }));
            }
            Err(error) => self.fail(out, &error),
        }
    }

    fn fail(&mut self, out: &mut String, error: &Error) {
        self.done = true;
        let data = json!({ "code": error.code, "message": error.message });
        write(out, self.follow.resume(), "error", &data);
    }
}
