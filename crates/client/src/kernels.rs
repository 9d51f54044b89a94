//! Live interpreters: cells and their events, and the operations on kernels.

use crate::{
    ApiError, Client, Result, ServerReply,
    client::empty,
    sandboxes::at,
    sse::{Events, wrong},
};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

type Map = BTreeMap<String, String>;

/// A live interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Kernel {
    pub kernel_id: Uuid,
    pub language: String,
    #[serde(default)]
    pub default: bool,
    /// starting, idle, busy or dead.
    pub status: String,
    #[serde(default)]
    pub interpreter: String,
    #[serde(default)]
    pub pid: Option<u32>,
    #[serde(default)]
    pub execution_count: u64,
    #[serde(default)]
    pub queued: u32,
    #[serde(default)]
    pub death: Option<String>,
    #[serde(default)]
    pub checkpoints: Vec<Checkpoint>,
    #[serde(default)]
    pub last_activity_at: String,
}

/// A checkpoint of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Checkpoint {
    pub checkpoint_id: Uuid,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub execution_count: u64,
    #[serde(default)]
    pub threads_lost: u32,
}

/// Completions of code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Completion {
    #[serde(default)]
    pub matches: Vec<String>,
    /// What each match replaces, in characters.
    #[serde(default)]
    pub cursor_start: usize,
    #[serde(default)]
    pub cursor_end: usize,
    /// complete, incomplete, invalid or unknown.
    #[serde(default)]
    pub status: String,
}

/// A request for a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StartKernel {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub env_vars: Map,
}

/// A request for a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunCode {
    /// The code.
    pub code: String,
    /// Of the default kernel; none where a kernel is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// In which kernel; the default one of the language where there is none.
    #[serde(skip)]
    pub kernel: Option<Uuid>,
}

/// A display output: an image, a chart, audio, a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Display {
    /// Its MIME type.
    pub r#type: String,
    /// Text, or base64 where the type is not text, SVG or JSON.
    pub data: String,
}

/// The error of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CellError {
    pub r#type: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub traceback: Option<String>,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CellResult {
    pub success: bool,
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    #[serde(default)]
    pub result: Option<Map>,
    #[serde(default)]
    pub error: Option<CellError>,
    #[serde(default)]
    pub display_outputs: Vec<Display>,
    #[serde(default)]
    pub kernel_id: Option<Uuid>,
    #[serde(default)]
    pub cell_id: Option<Uuid>,
    #[serde(default)]
    pub execution_count: u64,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub timed_out: bool,
    #[serde(default)]
    pub interrupted: bool,
    #[serde(default)]
    pub state_lost: bool,
    #[serde(default)]
    pub restarted: bool,
    #[serde(default)]
    pub truncated: bool,
}

/// An event of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum CellEvent {
    /// It is queued or runs.
    Started,
    /// It printed.
    Output {
        /// On stderr, and not on stdout.
        error: bool,
        /// What.
        text: String,
    },
    /// A display output.
    Display(Display),
    /// It ended. The last event.
    Ended(Box<CellResult>),
    /// It cannot be followed further, or not now. The last event.
    Failed(Box<ApiError>),
    /// A kind that this client does not know.
    Other,
}

/// Far more than any event needs.
const LARGEST_EVENT: usize = 64 << 20;

/// The events of a cell. Dropping them interrupts it.
#[derive(Debug)]
pub struct CellEvents(Events);

#[derive(Deserialize)]
struct Kind {
    r#type: String,
    #[serde(default)]
    stream: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    display: Option<Display>,
}

fn read(json: &str) -> Result<CellEvent> {
    let Kind { r#type, stream, text, display } = serde_json::from_str(json).map_err(wrong)?;
    Ok(match (r#type.as_str(), text, display) {
        ("started", ..) => CellEvent::Started,
        ("output", Some(text), _) => CellEvent::Output { error: stream.as_deref() == Some("stderr"), text },
        ("display", _, Some(display)) => CellEvent::Display(display),
        ("ended", ..) => CellEvent::Ended(serde_json::from_str(json).map(Box::new).map_err(wrong)?),
        ("error", ..) => CellEvent::Failed(Box::new(ApiError::parse(0, None, json.as_bytes()))),
        _ => CellEvent::Other,
    })
}

impl CellEvents {
    /// The next event, parsed and as it came; none when the stream is over.
    pub async fn next(&mut self) -> Result<Option<(CellEvent, String)>> {
        match self.0.next_data().await? {
            Some(json) => Ok(Some((read(&json)?, json))),
            None => Ok(None),
        }
    }
}

#[derive(Serialize)]
struct Streamed<'a> {
    #[serde(flatten)]
    request: &'a RunCode,
    stream: bool,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Forked {
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Uuid>,
}

fn one(sandbox: Uuid, kernel: Uuid, below: &str) -> String {
    at(sandbox, &format!("/kernels/{}{below}", kernel.simple()))
}

fn place(sandbox: Uuid, request: &RunCode) -> String {
    request.kernel.map_or_else(|| at(sandbox, "/run"), |kernel| one(sandbox, kernel, "/execute"))
}

impl Client {
    /// Runs a cell to its end. Dropping the future interrupts it.
    pub async fn run_code(&self, id: Uuid, request: &RunCode) -> Result<ServerReply<CellResult>> {
        self.tell(Method::POST, &place(id, request), request).await
    }

    /// Runs a cell and follows it. Dropping the stream interrupts it.
    pub async fn stream_code(&self, id: Uuid, request: &RunCode) -> Result<CellEvents> {
        let body = Streamed { request, stream: true };
        let response = self.send_json(Method::POST, &place(id, request), &body).await?;
        Ok(CellEvents(Events::new(response.into_body(), LARGEST_EVENT)))
    }

    /// Starts a kernel.
    pub async fn start_kernel(&self, id: Uuid, request: &StartKernel) -> Result<ServerReply<Kernel>> {
        self.tell(Method::POST, &at(id, "/kernels"), request).await
    }

    /// The kernels of a sandbox, the oldest first.
    pub async fn kernels(&self, id: Uuid) -> Result<ServerReply<Vec<Kernel>>> {
        self.ask(Method::GET, &at(id, "/kernels")).await
    }

    /// Completions at the end of code, and whether the code is complete.
    pub async fn complete_code(&self, id: Uuid, kernel: Uuid, code: &str) -> Result<ServerReply<Completion>> {
        self.tell(Method::POST, &one(id, kernel, "/complete"), &serde_json::json!({ "code": code })).await
    }

    /// Interrupts the running cell.
    pub async fn interrupt_kernel(&self, id: Uuid, kernel: Uuid) -> Result<()> {
        self.send(Method::POST, &one(id, kernel, "/interrupt"), None, empty()).await.map(drop)
    }

    /// Starts a fresh interpreter under the same id.
    pub async fn restart_kernel(&self, id: Uuid, kernel: Uuid) -> Result<ServerReply<Kernel>> {
        self.ask(Method::POST, &one(id, kernel, "/restart")).await
    }

    /// Ends a kernel.
    pub async fn delete_kernel(&self, id: Uuid, kernel: Uuid) -> Result<()> {
        self.send(Method::DELETE, &one(id, kernel, ""), None, empty()).await.map(drop)
    }

    /// Makes a checkpoint of a kernel.
    pub async fn checkpoint_kernel(
        &self,
        id: Uuid,
        kernel: Uuid,
        name: &str,
    ) -> Result<ServerReply<Checkpoint>> {
        self.tell(Method::POST, &one(id, kernel, "/checkpoints"), &Named { name }).await
    }

    /// Restores a kernel from a checkpoint.
    pub async fn rollback_kernel(
        &self,
        id: Uuid,
        kernel: Uuid,
        checkpoint: Uuid,
    ) -> Result<ServerReply<Kernel>> {
        let below = format!("/checkpoints/{}/rollback", checkpoint.simple());
        self.ask(Method::POST, &one(id, kernel, &below)).await
    }

    /// Forks a kernel with its whole state, or with that of a checkpoint.
    pub async fn fork_kernel(
        &self,
        id: Uuid,
        kernel: Uuid,
        checkpoint: Option<Uuid>,
    ) -> Result<ServerReply<Kernel>> {
        self.tell(Method::POST, &one(id, kernel, "/fork"), &Forked { checkpoint }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        let printed = r#"{"type":"output","stream":"stderr","text":"é"}"#;
        assert_eq!(read(printed).unwrap(), CellEvent::Output { error: true, text: "é".into() });
        let shown = r#"{"type":"display","display":{"type":"image/png","data":"aa=="}}"#;
        assert!(matches!(read(shown).unwrap(), CellEvent::Display(d) if d.r#type == "image/png"));
        let ended = r#"{"type":"ended","success":false,"error":{"type":"E","message":"m"},"later":1}"#;
        assert!(matches!(read(ended).unwrap(), CellEvent::Ended(r) if !r.success));
        assert_eq!(read(r#"{"type":"later"}"#).unwrap(), CellEvent::Other);
        let failed = r#"{"type":"error","error":{"code":"unavailable","message":"m"}}"#;
        assert!(matches!(read(failed).unwrap(), CellEvent::Failed(e) if e.code == "unavailable"));
        for bad in ["x", "{}", r#"{"type":"ended"}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
