//! Messages of the Model Context Protocol, carried to a server's `/mcp` and back. They are not parsed here;
//! responses are streamed.

use crate::{
    Client, Error, Result,
    client::{collect, empty},
    sse::Events,
    transport::BoxError,
};
use atoll_types::sse::SseEvent;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};

const PATH: &str = "/mcp";
/// Far more than any message needs.
const LARGEST_EVENT: usize = 128 << 20;

/// The headers of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpHeaders {
    /// The MCP session.
    pub session: Option<String>,
    /// The version of the protocol that was agreed on.
    pub version: Option<String>,
    /// The thread, where it is not that of the session.
    pub thread: Option<String>,
    /// The event id to resume after, when a response broke off.
    pub last_event: Option<String>,
    /// The method of the message, and its subject; for protocol versions that want them in headers too.
    pub routing: Option<(String, Option<String>)>,
}

/// A server's response.
#[derive(Debug)]
pub struct McpAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The MCP session that it starts.
    pub session: Option<String>,
    /// Whether it is a stream of events, and not one message.
    pub is_stream: bool,
    events: Events,
}

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpEvent {
    /// The id to resume after.
    pub id: Option<String>,
    /// A message, or nothing.
    pub data: String,
}

impl McpAnswer {
    /// The next event of a stream; none at its end.
    pub async fn next(&mut self) -> Result<Option<McpEvent>> {
        let event = self.events.next().await?;
        Ok(event.map(|SseEvent { id, data, .. }| McpEvent { id, data: data.unwrap_or_default() }))
    }

    /// All of it.
    pub async fn whole(self) -> Result<Vec<u8>> {
        collect(Response::new(self.events.into_body())).await
    }
}

impl Client {
    /// Sends a message (`POST`), opens the event stream (`GET`), or ends a session (`DELETE`).
    pub async fn mcp(
        &self,
        method: Method,
        headers: &McpHeaders,
        message: Option<Bytes>,
    ) -> Result<McpAnswer> {
        let McpHeaders { session, version, thread, last_event, routing } = headers;
        let (asked, about) = routing.clone().map_or((None, None), |(asked, about)| (Some(asked), about));
        let more = [
            ("mcp-session-id", session.clone()),
            ("mcp-protocol-version", version.clone()),
            ("x-thread-id", thread.clone()),
            ("last-event-id", last_event.clone()),
            ("mcp-method", asked),
            ("mcp-name", about),
        ];
        let mut builder = self.request(method, PATH);
        if let Some(all) = builder.headers_mut() {
            all.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
            if message.is_some() {
                all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            for (name, value) in more.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                let value = HeaderValue::try_from(value)
                    .map_err(|_| Error::Url(format!("{name} has characters that no header may have")))?;
                all.insert(HeaderName::from_static(name), value);
            }
        }
        let body =
            message.map_or_else(empty, |bytes| Full::new(bytes).map_err(BoxError::from).boxed_unsync());
        let response = self.answer(builder, body).await?;
        let text = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let is_stream = text("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let (status, session) = (response.status().as_u16(), text("mcp-session-id"));
        let events = Events::new(response.into_body(), LARGEST_EVENT);
        Ok(McpAnswer { status, session, is_stream, events })
    }
}
