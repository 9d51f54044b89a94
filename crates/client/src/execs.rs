//! Commands by their id: their events, their output, signals and input.

use crate::{
    ApiError, Client, ExecRequest, Result, ServerReply,
    client::empty,
    encode::query,
    files::streamed,
    sandboxes::at,
    sse::{Events, wrong},
};
use atoll_types::sse::SseEvent;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::Stream;
use hyper::{Method, body::Incoming};
use serde::{Deserialize, Serialize};
use std::io;
use uuid::Uuid;

/// A command, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Exec {
    pub exec_id: Uuid,
    /// running or ended.
    pub status: String,
    #[serde(default)]
    pub command: String,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub timed_out: bool,
    #[serde(default)]
    pub killed: bool,
    #[serde(default)]
    pub oom_killed: bool,
    #[serde(default)]
    pub failure: Option<ExecFailure>,
    #[serde(default)]
    pub started_at: String,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub cpu_user_ms: u64,
    #[serde(default)]
    pub cpu_system_ms: u64,
    #[serde(default)]
    pub peak_memory_bytes: u64,
    #[serde(default)]
    pub output_bytes: u64,
    #[serde(default)]
    pub first_offset: u64,
    #[serde(default)]
    pub dropped_bytes: u64,
    #[serde(default)]
    pub descendants_alive: bool,
}

/// Why a program could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecFailure {
    #[serde(default)]
    pub stage: String,
    #[serde(default)]
    pub message: String,
}

/// One of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// An event of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecEvent {
    /// It runs, or ran.
    Started(Box<Exec>),
    /// It printed something.
    Output {
        /// On which output.
        stream: OutputStream,
        /// Of the first byte, over both outputs, and beyond the last.
        span: (u64, u64),
        /// The bytes.
        data: Vec<u8>,
    },
    /// Output that is gone.
    Dropped {
        /// Of the first byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// It ended. The last event.
    Exit(Box<Exec>),
    /// It cannot be followed further, or not now. The last event.
    Failed(Box<ApiError>),
    /// A kind that this client does not know.
    Other,
}

/// An event as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The offset to resume at.
    pub resume: Option<u64>,
    /// The event.
    pub event: ExecEvent,
    /// The same as the server sent it.
    pub json: String,
}

/// The events of a command. Dropping those of a command that was started with a stream, and not in the
/// background, kills it.
#[derive(Debug)]
pub struct ExecEvents(Events);

/// Far more than any event needs.
const LARGEST_EVENT: usize = 16 << 20;

#[derive(Deserialize)]
struct Kind {
    r#type: String,
}

#[derive(Deserialize)]
struct Piece {
    offset: u64,
    #[serde(default)]
    next: Option<u64>,
    data: String,
    #[serde(default)]
    encoding: Option<String>,
}

#[derive(Deserialize)]
struct Gap {
    offset: u64,
    bytes: u64,
}

fn output(stream: OutputStream, json: &str) -> Result<ExecEvent> {
    let Piece { offset, next, data, encoding } = serde_json::from_str(json).map_err(wrong)?;
    let data = match encoding.as_deref() {
        None => data.into_bytes(),
        Some("base64") => STANDARD.decode(data).map_err(wrong)?,
        Some(other) => return Err(wrong(format!("the encoding {other:?}"))),
    };
    let end = next.or_else(|| offset.checked_add(data.len() as u64)).filter(|end| *end >= offset);
    Ok(ExecEvent::Output { stream, span: (offset, end.ok_or_else(|| wrong("an offset"))?), data })
}

fn read(json: &str) -> Result<ExecEvent> {
    let Kind { r#type } = serde_json::from_str(json).map_err(wrong)?;
    let exec = || serde_json::from_str::<Exec>(json).map(Box::new).map_err(wrong);
    Ok(match r#type.as_str() {
        "started" => ExecEvent::Started(exec()?),
        "exit" => ExecEvent::Exit(exec()?),
        "stdout" => output(OutputStream::Stdout, json)?,
        "stderr" => output(OutputStream::Stderr, json)?,
        "dropped" => {
            let Gap { offset, bytes } = serde_json::from_str(json).map_err(wrong)?;
            ExecEvent::Dropped { offset, bytes }
        }
        "error" => ExecEvent::Failed(Box::new(ApiError::parse(0, None, json.as_bytes()))),
        _ => ExecEvent::Other,
    })
}

/// Parses an event; none for a keep-alive.
fn parse(SseEvent { id, data, .. }: SseEvent) -> Result<Option<Event>> {
    let resume = id.and_then(|id| id.parse().ok());
    data.map(|json| Ok(Event { resume, event: read(&json)?, json })).transpose()
}

impl ExecEvents {
    fn new(body: Incoming) -> Self {
        Self(Events::new(body, LARGEST_EVENT))
    }

    /// The next event; none when the stream is over. A stream that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while let Some(event) = self.0.next().await? {
            if let Some(event) = parse(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

#[derive(Serialize)]
struct Mode<'a> {
    #[serde(flatten)]
    request: &'a ExecRequest,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    background: bool,
}

fn one(sandbox: Uuid, exec: Uuid, below: &str) -> String {
    at(sandbox, &format!("/execs/{}{below}", exec.simple()))
}

impl Client {
    /// Starts a command and follows it. Dropping the stream kills the command.
    pub async fn exec_stream(&self, id: Uuid, request: &ExecRequest) -> Result<ExecEvents> {
        let body = Mode { request, stream: true, background: false };
        let response = self.send_json(Method::POST, &at(id, "/exec"), &body).await?;
        Ok(ExecEvents::new(response.into_body()))
    }

    /// Starts a command and does not wait for it.
    pub async fn exec_background(&self, id: Uuid, request: &ExecRequest) -> Result<ServerReply<Exec>> {
        let body = Mode { request, stream: false, background: true };
        self.tell(Method::POST, &at(id, "/exec"), &body).await
    }

    /// The commands that a sandbox remembers, the latest first.
    pub async fn execs(&self, id: Uuid) -> Result<ServerReply<Vec<Exec>>> {
        self.ask(Method::GET, &at(id, "/execs")).await
    }

    /// One command.
    pub async fn get_exec(&self, id: Uuid, exec: Uuid) -> Result<ServerReply<Exec>> {
        self.ask(Method::GET, &one(id, exec, "")).await
    }

    /// The output of a command from an offset on; with `follow` until it ends.
    pub async fn exec_output(&self, id: Uuid, exec: Uuid, from: u64, follow: bool) -> Result<ExecEvents> {
        let query = query(&[("from", Some(from.to_string())), ("follow", Some(follow.to_string()))]);
        let path = one(id, exec, &format!("/output{query}"));
        Ok(ExecEvents::new(self.send(Method::GET, &path, None, empty()).await?.into_body()))
    }

    /// Sends a command all of its input. Returns when the command has read it, or reads no more.
    pub async fn exec_stdin(
        &self,
        id: Uuid,
        exec: Uuid,
        input: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let body = streamed(input);
        let path = one(id, exec, "/stdin?close=true");
        self.send(Method::POST, &path, Some("application/octet-stream"), body).await.map(drop)
    }

    /// Sends a signal, by name or number, to a command's own processes.
    pub async fn exec_signal(&self, id: Uuid, exec: Uuid, signal: &str) -> Result<()> {
        let signal = signal.parse::<u32>().map_or_else(|_| signal.into(), serde_json::Value::from);
        let body = serde_json::json!({ "signal": signal });
        self.send_json(Method::POST, &one(id, exec, "/signal"), &body).await.map(drop)
    }

    /// Kills a command and everything that it started.
    pub async fn exec_kill(&self, id: Uuid, exec: Uuid) -> Result<ServerReply<Exec>> {
        self.ask(Method::POST, &one(id, exec, "/kill")).await
    }

    /// Forgets an ended command and its output.
    pub async fn forget_exec(&self, id: Uuid, exec: Uuid) -> Result<()> {
        self.send(Method::DELETE, &one(id, exec, ""), None, empty()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        let with_id = |id: Option<&str>, data: Option<&str>| {
            let event = SseEvent { id: id.map(str::to_owned), event: None, data: data.map(str::to_owned) };
            parse(event).map(|event| event.map(|e| (e.resume, e.event)))
        };
        let one = |data: &str| with_id(None, Some(data));
        let text = with_id(Some("7"), Some("{\"type\":\"stdout\",\"offset\":5,\"data\":\"é\"}")).unwrap();
        let expected = ExecEvent::Output { stream: OutputStream::Stdout, span: (5, 7), data: "é".into() };
        assert_eq!(text, Some((Some(7), expected)));
        let bytes = "{\"type\":\"stderr\",\"offset\":5,\"next\":9,\"encoding\":\"base64\",\"data\":\"//4=\"}";
        let expected = ExecEvent::Output { stream: OutputStream::Stderr, span: (5, 9), data: vec![255, 254] };
        assert_eq!(one(bytes).unwrap(), Some((None, expected)));
        assert_eq!(with_id(None, None).unwrap(), None);
        assert_eq!(one("{\"type\":\"later\"}").unwrap(), Some((None, ExecEvent::Other)));
        let gone = one("{\"type\":\"error\",\"error\":{\"code\":\"unavailable\",\"message\":\"m\"}}");
        assert!(matches!(gone, Ok(Some((_, ExecEvent::Failed(e)))) if e.code == "unavailable"));
        for bad in ["x", "{}", "{\"type\":\"stdout\"}", "{\"type\":\"exit\"}"] {
            assert!(one(bad).is_err(), "{bad}");
        }
        let far = "{\"type\":\"stdout\",\"offset\":18446744073709551615,\"data\":\"x\"}";
        assert!(one(far).is_err());
    }
}
