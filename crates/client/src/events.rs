//! What happens to sandboxes.

use crate::{Client, Result, ServerReply, client::empty, encode::query, sse::Events};
use atoll_types::sse::SseEvent;
use hyper::{Method, header::ACCEPT};
use serde::Deserialize;
use uuid::Uuid;

const ROOT: &str = "/api/v1/events";
/// Far more than any event has.
const LARGEST_EVENT: usize = 1 << 20;

/// Which events; the server's defaults for what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
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

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs)]
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

/// Some events, the oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs)]
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

/// What a listener hears.
#[derive(Debug, Clone, PartialEq)]
pub struct HeardEvent {
    /// Where another listener goes on, where it is said.
    pub resume: Option<u64>,
    /// What kind it is: an event's, `missed`, or `error`, which is the last. Empty where the server only
    /// says that it lives.
    pub kind: String,
    /// What it says, as the server sent it.
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
    /// What comes next; none when the answer is over. An answer that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<HeardEvent>> {
        Ok(self.0.next().await?.map(HeardEvent::from))
    }
}

impl Client {
    /// Some events that are there.
    pub async fn events(&self, which: &ListEvents) -> Result<ServerReply<EventList>> {
        self.ask(Method::GET, &which.path(false)).await
    }

    /// Events as they come; after `resume`, where an earlier listener ended.
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
