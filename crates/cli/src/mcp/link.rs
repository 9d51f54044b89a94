//! One client's link to the server: its MCP session, which is renewed where the server has forgotten it, and
//! the responses under way. A failed request gets an error response.

use super::ask::{Message, failed};
use atoll_client::{Client, McpAnswer, McpHeaders, Method};
use bytes::Bytes;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
    time::{sleep, timeout},
};

/// How often a response that broke off is resumed.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// How long ending the session may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The negotiated session.
#[derive(Debug, Clone, Default)]
struct Agreed {
    session: Option<String>,
    version: Option<String>,
    /// The `initialize` request.
    asked: Option<Bytes>,
}

/// Why a message failed.
enum Lost {
    /// The server's error, as a message for the client.
    Said(Bytes),
    /// Something else.
    Because(String),
}

impl From<atoll_client::Error> for Lost {
    fn from(error: atoll_client::Error) -> Self {
        Self::Because(error.to_string())
    }
}

/// The link.
pub(super) struct Link {
    client: Client,
    thread: String,
    out: mpsc::Sender<Bytes>,
    agreed: Mutex<Agreed>,
    /// Held while a session is renewed.
    renewing: tokio::sync::Mutex<()>,
    listening: Mutex<Option<JoinHandle<()>>>,
    /// Requests without a session, by their ids: dropping them cancels them.
    alone: Mutex<HashMap<String, AbortHandle>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a message is the response to the request with this id.
fn answers(data: &str, id: &Value) -> bool {
    let message: Value = serde_json::from_str(data).unwrap_or_default();
    message["id"] == *id && message.get("method").is_none()
}

impl Link {
    pub(super) fn new(client: Client, thread: String, out: mpsc::Sender<Bytes>) -> Self {
        Self {
            client,
            thread,
            out,
            agreed: Mutex::default(),
            renewing: tokio::sync::Mutex::new(()),
            listening: Mutex::default(),
            alone: Mutex::default(),
        }
    }

    fn headers(&self, message: Option<&Message>) -> McpHeaders {
        let agreed = locked(&self.agreed);
        let alone = message.is_some_and(Message::stands_alone);
        let begins = message.is_some_and(Message::begins);
        McpHeaders {
            session: agreed.session.clone().filter(|_| !alone && !begins),
            version: match message {
                Some(message) if alone => message.version.clone(),
                _ if begins => None,
                _ => agreed.version.clone(),
            },
            thread: Some(self.thread.clone()),
            last_event: None,
            routing: message.and_then(Message::routing),
        }
    }

    /// Sends one message, and returns the responses to the client.
    pub(super) async fn carry(self: &Arc<Self>, message: Message) {
        if let Some(handle) =
            message.cancels.as_ref().and_then(|id| locked(&self.alone).remove(&id.to_string()))
        {
            // Without sessions, closing the connection cancels the request.
            handle.abort();
            return;
        }
        let Some(id) = message.id.clone() else {
            if let Err(Lost::Because(why)) = self.ask(&message).await {
                eprintln!("atoll: a message was not carried: {why}");
            }
            if message.method.as_deref() == Some("notifications/initialized") {
                self.listen();
            }
            return;
        };
        let link = Arc::clone(self);
        let (key, alone, known) = (id.to_string(), message.stands_alone(), id.clone());
        let task = tokio::spawn(async move { link.request(message, &known).await });
        if alone {
            locked(&self.alone).insert(key.clone(), task.abort_handle());
        }
        let done = task.await;
        locked(&self.alone).remove(&key);
        match done {
            Ok(Err(Lost::Said(answer))) => self.give(answer).await,
            Ok(Err(Lost::Because(why))) => self.give(failed(&id, &why)).await,
            _ => {}
        }
    }

    async fn give(&self, message: Bytes) {
        // A send fails only when the client has gone.
        let _ = self.out.send(message).await;
    }

    /// Sends a request and passes on its responses.
    async fn request(self: &Arc<Self>, message: Message, id: &Value) -> Result<(), Lost> {
        let answer = self.ask(&message).await?;
        if message.begins() {
            let mut agreed = locked(&self.agreed);
            agreed.session.clone_from(&answer.session);
            agreed.asked = Some(message.bytes.clone());
        }
        if !answer.is_stream {
            let whole = answer.whole().await?;
            if message.begins() {
                self.note_version(&whole);
            }
            // White space before it is a keep-alive, and no line of its own.
            self.give(Bytes::copy_from_slice(whole.trim_ascii())).await;
            return Ok(());
        }
        self.follow(answer, &message, id).await
    }

    /// Passes on the events of a response, and resumes it where it breaks off.
    async fn follow(
        self: &Arc<Self>,
        mut answer: McpAnswer,
        message: &Message,
        id: &Value,
    ) -> Result<(), Lost> {
        let mut last: Option<String> = None;
        for _ in 0..TRIES {
            while let Ok(Some(event)) = answer.next().await {
                last = event.id.or(last);
                if event.data.is_empty() {
                    continue;
                }
                let done = answers(&event.data, id);
                if message.begins() && done {
                    self.note_version(event.data.as_bytes());
                }
                self.give(Bytes::from(event.data)).await;
                if done {
                    return Ok(());
                }
            }
            let Some(from) = last.clone().filter(|_| !message.stands_alone()) else { break };
            sleep(PAUSE).await;
            let headers = McpHeaders { last_event: Some(from), routing: None, ..self.headers(Some(message)) };
            match self.client.mcp(Method::GET, &headers, None).await {
                Ok(again) if again.status == 200 && again.is_stream => answer = again,
                _ => break,
            }
        }
        Err(Lost::Because(format!("the connection to {} broke before the answer came", self.client.url())))
    }

    fn note_version(&self, answer: &[u8]) {
        let message: Value = serde_json::from_slice(answer).unwrap_or_default();
        locked(&self.agreed).version = message["result"]["protocolVersion"].as_str().map(str::to_owned);
    }

    /// Sends a message; where the session is unknown, as after a restart, once more in a new one.
    async fn ask(self: &Arc<Self>, message: &Message) -> Result<McpAnswer, Lost> {
        let headers = self.headers(Some(message));
        let send = |headers: McpHeaders| async move {
            self.client.mcp(Method::POST, &headers, Some(message.bytes.clone())).await
        };
        let answer = send(headers.clone()).await?;
        if answer.status == 404 && headers.session.is_some() {
            self.renew(headers.session).await?;
            return self.good(send(self.headers(Some(message))).await?).await;
        }
        self.good(answer).await
    }

    /// A successful response, or the error.
    async fn good(&self, answer: McpAnswer) -> Result<McpAnswer, Lost> {
        let status = answer.status;
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let body = answer.whole().await.unwrap_or_default();
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        // An error response to this very request.
        if said["jsonrpc"] == "2.0" && !said["id"].is_null() {
            return Err(Lost::Said(Bytes::from(body)));
        }
        let cut = || String::from_utf8_lossy(&body).chars().take(300).collect();
        let why: String = said["error"]["message"].as_str().map_or_else(cut, str::to_owned);
        let hint = match status {
            401 => "; put a key into ATOLL_API_KEY, or give --key",
            404 => "; is this the URL of an Atoll server with MCP?",
            _ => "",
        };
        Err(Lost::Because(format!("{} answered {status}: {why}{hint}", self.client.url())))
    }

    /// Renews the session, unless another request has just done so.
    async fn renew(self: &Arc<Self>, old: Option<String>) -> Result<(), Lost> {
        let _turn = self.renewing.lock().await;
        let Agreed { session, asked, .. } = locked(&self.agreed).clone();
        let Some(asked) = asked.filter(|_| session == old) else { return Ok(()) };
        let headers = McpHeaders { thread: Some(self.thread.clone()), ..McpHeaders::default() };
        let answer = self.client.mcp(Method::POST, &headers, Some(asked)).await?;
        let answer = self.good(answer).await?;
        locked(&self.agreed).session.clone_from(&answer.session);
        // The client has the response to its own `initialize` already.
        drop(answer);
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        let told = self.client.mcp(Method::POST, &self.headers(None), Some(Bytes::from(told))).await;
        self.good(told?).await?;
        self.listen();
        Ok(())
    }

    /// Follows the server's own messages, from now on.
    fn listen(self: &Arc<Self>) {
        let link = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut last = None;
            loop {
                let headers = McpHeaders { last_event: last.clone(), ..link.headers(None) };
                let Ok(mut heard) = link.client.mcp(Method::GET, &headers, None).await else { return };
                if heard.status != 200 || !heard.is_stream {
                    return;
                }
                while let Ok(Some(event)) = heard.next().await {
                    last = event.id.or(last);
                    if !event.data.is_empty() {
                        link.give(Bytes::from(event.data)).await;
                    }
                }
                sleep(PAUSE).await;
            }
        });
        if let Some(before) = locked(&self.listening).replace(task) {
            before.abort();
        }
    }

    /// Ends the session.
    pub(super) async fn end(&self) {
        if let Some(listening) = locked(&self.listening).take() {
            listening.abort();
        }
        let headers = self.headers(None);
        if headers.session.is_some() {
            let _ = timeout(PATIENCE, self.client.mcp(Method::DELETE, &headers, None)).await;
        }
    }
}
