//! Conversations with the agent, by the LangGraph API of the same server. Messages and states are JSON as that API has it;
//! what is typed is what a client must read to go on.

use crate::{
    Client, Error, Result, ServerReply,
    client::{collect, empty},
    encode::segment,
    sse::Events,
    transport::BoxError,
};
use atoll_types::sse::SseEvent;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Response,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Far more than any event needs: a whole state with pictures.
const LARGEST_EVENT: usize = 128 << 20;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Conversation {
    pub thread_id: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub updated_at: String,
    #[serde(default)]
    pub metadata: Value,
    /// The state: `messages` and others; null where nothing was said.
    #[serde(default)]
    pub values: Value,
    /// What waits for a person, by the checkpoint at which it waits.
    #[serde(default)]
    pub interrupts: Value,
}

/// Work for the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunAgent {
    pub assistant_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// `{"resume": …}`: the decision about an interrupt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Value>,
    /// `{"configurable": {…}}`: the model, the approval rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    pub stream_mode: Vec<String>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// The id after which another stream resumes.
    pub id: Option<String>,
    /// `metadata`, `values`, `messages`, `custom`, `end`, `error` and others.
    pub name: String,
    /// What.
    pub data: Value,
    /// The same as it came.
    pub json: String,
}

/// The events of a run as they come.
#[derive(Debug)]
pub struct RunEvents(Events);

impl RunEvents {
    /// The next one; none at the end of the stream, which is not always that of the run: `end` and `error` are.
    pub async fn next(&mut self) -> Result<Option<RunEvent>> {
        while let Some(SseEvent { id, event, data }) = self.0.next().await? {
            // Keep-alives have neither.
            let (Some(name), Some(json)) = (event, data) else { continue };
            let data = serde_json::from_str(&json).map_err(crate::sse::wrong)?;
            return Ok(Some(RunEvent { id, name, data, json }));
        }
        Ok(None)
    }
}

/// A file that was uploaded for a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UploadedFile {
    pub name: String,
    /// What the agent's tool `import_files` takes as a source.
    pub path: String,
    pub size: u64,
}

fn thread_path(thread: &str, below: &str) -> String {
    format!("/threads/{}{below}", segment(thread))
}

impl Client {
    /// Begins a conversation.
    pub async fn create_conversation(&self) -> Result<ServerReply<Conversation>> {
        self.tell(Method::POST, "/threads", &json!({})).await
    }

    /// A conversation.
    pub async fn conversation(&self, thread: &str) -> Result<ServerReply<Conversation>> {
        self.ask(Method::GET, &thread_path(thread, "")).await
    }

    /// The conversations that changed last.
    pub async fn conversations(&self, limit: u32) -> Result<ServerReply<Vec<Conversation>>> {
        self.tell(Method::POST, "/threads/search", &json!({ "limit": limit })).await
    }

    /// What the sessions of a conversation exported.
    pub async fn conversation_files(&self, thread: &str) -> Result<ServerReply<Vec<Value>>> {
        self.ask(Method::GET, &thread_path(thread, "/files")).await
    }

    /// Lets the agent work, and follows it.
    pub async fn run_agent(&self, thread: &str, run: &RunAgent) -> Result<RunEvents> {
        let body =
            serde_json::to_vec(run).map_err(|e| Error::Url(format!("the request cannot be sent: {e}")))?;
        let builder = self.request(Method::POST, &thread_path(thread, "/runs/stream"));
        let builder = builder.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        let response = self.answer(builder, body).await?;
        self.events_of(response).await
    }

    /// Follows a run after an event.
    pub async fn follow_agent(&self, thread: &str, run: &str, after: Option<&str>) -> Result<RunEvents> {
        let path = thread_path(thread, &format!("/runs/{}/stream", segment(run)));
        let after = HeaderValue::try_from(after.unwrap_or("-1"))
            .map_err(|_| Error::Url("an event's id has characters that no header may have".into()))?;
        let builder = self.request(Method::GET, &path).header("last-event-id", after);
        let response = self.answer(builder.header(ACCEPT, "text/event-stream"), empty()).await?;
        self.events_of(response).await
    }

    async fn events_of(&self, response: Response<Incoming>) -> Result<RunEvents> {
        match response.status().is_success() {
            true => Ok(RunEvents(Events::new(response.into_body(), LARGEST_EVENT))),
            false => Err(self.refused(response).await),
        }
    }

    /// Cancels a run, and returns after its end.
    pub async fn cancel_agent(&self, thread: &str, run: &str) -> Result<()> {
        let path = thread_path(thread, &format!("/runs/{}/cancel?wait=1", segment(run)));
        collect(self.send(Method::POST, &path, None, empty()).await?).await.map(|_| ())
    }

    /// Uploads a file for a conversation.
    pub async fn attach_file(&self, thread: &str, name: &str, content: &[u8]) -> Result<UploadedFile> {
        const BOUNDARY: &str = "----atoll-client-7d1f2c6a9b0e4f53";
        let plain: String = name.chars().filter(|c| !c.is_control() && *c != '"').collect();
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"files\"; filename=\"{plain}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let body = [head.as_bytes(), content, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
        let builder = self.request(Method::POST, &thread_path(thread, "/files/upload"));
        let builder = builder.header(CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}"));
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        let response = self.answer(builder, body).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let status = response.status().as_u16();
        let reply: ServerReply<Vec<UploadedFile>> = ServerReply::parse(status, collect(response).await?)?;
        reply.value.into_iter().next().ok_or_else(|| Error::Unexpected("it kept no file".into()))
    }
}
