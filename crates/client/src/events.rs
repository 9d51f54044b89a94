//! Events of sandboxes.

use crate::{Client, Result, ServerReply, client::empty, encode::query, sse::Events};
use atoll_types::sse::SseEvent;
use hyper::{Method, header::ACCEPT};
use serde::Deserialize;
use uuid::Uuid;

const ROOT: &str = "/api/v1/events";
/// Far more than any event needs.
const LARGEST_EVENT: usize = 1 << 20;

/// A query for events; the server's defaults for what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListEvents {
    /// Those with a greater id; 0: from the oldest that is kept.
    pub after: Option<u64>,
    pub sandbox_id: Option<Uuid>,
    pub owner: Option<String>,
    /// One or several, separated by commas.
    pub kind: Option<String>,
    /// Of a list.
    pub limit: Option<u32>,
}

impl ListEvents {
    fn path(&self, follow: bool) -> String {
        let Self { after, sandbox_id, owner, kind, limit } = self;
        let query = query(&[
            ("after", after.map(|id| id.to_string())),
            ("sandbox_id", sandbox_id.map(|id| id.to_string())),
            ("owner", owner.clone()),
            ("kind", kind.clone()),
            ("limit", limit.filter(|_| !follow).map(|count| count.to_string())),
            ("follow", Some(follow.to_string())),
        ]);
        format!("{ROOT}{query}")
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EventItem {
    pub id: u64,
    #[serde(default)]
    pub at: String,
    pub kind: String,
    #[serde(default)]
    pub sandbox_id: Option<Uuid>,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub data: serde_json::Value,
}

/// A page of events, the oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EventList {
    pub events: Vec<EventItem>,
    #[serde(default)]
    pub newest: u64,
    /// The next list's `after`.
    #[serde(default)]
    pub next_after: u64,
    #[serde(default)]
    pub missed: bool,
}

/// An item of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub struct HeardEvent {
    /// The id after which another stream resumes, where the server sent one.
    pub resume: Option<u64>,
    /// Its kind: an event's, `missed`, or `error`, which is the last. Empty for a keep-alive.
    pub kind: String,
    /// Its data, as the server sent it.
    pub json: String,
}

/// Events as they happen.
#[derive(Debug)]
pub struct EventStream(Events);

impl From<SseEvent> for HeardEvent {
    fn from(SseEvent { id, event, data }: SseEvent) -> Self {
        let resume = id.and_then(|id| id.parse().ok());
        Self { resume, kind: event.unwrap_or_default(), json: data.unwrap_or_default() }
    }
}

impl EventStream {
    /// The next item; none when the stream is over. A stream that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<HeardEvent>> {
        Ok(self.0.next().await?.map(HeardEvent::from))
    }
}

impl Client {
    /// A page of stored events.
    pub async fn events(&self, which: &ListEvents) -> Result<ServerReply<EventList>> {
        self.ask(Method::GET, &which.path(false)).await
    }

    /// Events as they come; after `resume`, where an earlier stream ended.
    pub async fn follow_events(&self, which: &ListEvents, resume: Option<u64>) -> Result<EventStream> {
        let mut builder = self.request(Method::GET, &which.path(true));
        if let Some(headers) = builder.headers_mut() {
            headers.insert(ACCEPT, hyper::header::HeaderValue::from_static("text/event-stream"));
            if let Some(id) = resume {
                headers.insert("last-event-id", id.into());
            }
        }
        let response = self.answer(builder, empty()).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        Ok(EventStream(Events::new(response.into_body(), LARGEST_EVENT)))
    }
}
