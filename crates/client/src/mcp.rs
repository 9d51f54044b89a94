//! Messages of the Model Context Protocol, carried to a server's `/mcp` and back. What they say is not looked
//! at here; answers are read as they come.

use crate::{
    Client, Error, Result,
    client::{collect, empty, root_cause},
    transport::BoxError,
};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Response,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};

const PATH: &str = "/mcp";
/// Far more than any message has.
const LARGEST_EVENT: usize = 128 << 20;

/// What goes with a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpHeaders {
    /// The MCP session.
    pub session: Option<String>,
    /// The version of the protocol that was agreed on.
    pub version: Option<String>,
    /// The thread, where it is not that of the session.
    pub thread: Option<String>,
    /// Where to go on after an answer that broke off.
    pub last_event: Option<String>,
    /// What the message asks for, and about what; for versions that want it said twice.
    pub routing: Option<(String, Option<String>)>,
}

/// A server's answer.
#[derive(Debug)]
pub struct McpAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The MCP session that begins with it.
    pub session: Option<String>,
    /// Whether it is a stream of events, and not one message.
    pub is_stream: bool,
    response: Response<Incoming>,
    buffer: BytesMut,
}

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpEvent {
    /// Where to go on after it.
    pub id: Option<String>,
    /// A message, or nothing.
    pub data: String,
}

fn parse(block: &[u8]) -> Result<McpEvent> {
    let text = std::str::from_utf8(block)
        .map_err(|e| Error::Unexpected(format!("it sent what is no event ({e})")))?;
    let mut event = McpEvent::default();
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "data" => lines.push(value),
            _ => {}
        }
    }
    event.data = lines.join("\n");
    Ok(event)
}

/// Where the first event ends, and where the next begins.
fn boundary(buffer: &[u8]) -> Option<(usize, usize)> {
    let plain = buffer.windows(2).position(|two| two == b"\n\n").map(|at| (at, at + 2));
    let carriage = buffer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| (at, at + 4));
    plain.into_iter().chain(carriage).min()
}

impl McpAnswer {
    /// The next event of a stream; none at its end.
    pub async fn next(&mut self) -> Result<Option<McpEvent>> {
        loop {
            if let Some((end, next)) = boundary(&self.buffer) {
                let block = self.buffer.split_to(next);
                return parse(&block[..end]).map(Some);
            }
            if self.buffer.len() > LARGEST_EVENT {
                return Err(Error::Unexpected("an event is too long".into()));
            }
            let Some(frame) = self.response.body_mut().frame().await else { return Ok(None) };
            let broke =
                |e: hyper::Error| Error::Unexpected(format!("its answer broke off ({})", root_cause(&e)));
            if let Ok(data) = frame.map_err(broke)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// All of it.
    pub async fn whole(self) -> Result<Vec<u8>> {
        collect(self.response).await
    }
}

impl Client {
    /// Sends a message (`POST`), listens (`GET`), or ends a session (`DELETE`).
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
        Ok(McpAnswer { status, session, is_stream, response, buffer: BytesMut::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_their_lines_end() {
        let event = |id: Option<&str>, data: &str| McpEvent { id: id.map(str::to_owned), data: data.into() };
        assert_eq!(parse(b"id: 1/0\ndata: {\"a\":\": \"}").unwrap(), event(Some("1/0"), "{\"a\":\": \"}"));
        assert_eq!(parse(b"id:7\r\ndata:x\r\nretry: 3000").unwrap(), event(Some("7"), "x"));
        assert_eq!(parse(b"data: a\ndata: b\n: c").unwrap(), event(None, "a\nb"));
        assert_eq!(parse(b"data: ").unwrap(), event(None, ""));
        assert!(parse(b"data: \xff").is_err());
        assert_eq!(boundary(b"data: a\n\ndata"), Some((7, 9)));
        assert_eq!(boundary(b"data: a\r\n\r\n"), Some((7, 11)));
        assert_eq!(boundary(b"data: a\n"), None);
    }
}
