//! One client's link to the server: its MCP session, which is renewed where the server has forgotten it, and
//! the responses under way. A failed request gets an error response.

use super::ask::{Message, failed};
use crate::terminal;
use atoll_client::{Client, McpAnswer, McpHeaders, Method};
use bytes::Bytes;
use futures_util::future::{AbortHandle, abortable};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How often a response that broke off is resumed.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the server is listened to again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the result of a call waits for the notification that the server sent before it.
const OVERTAKEN: Duration = Duration::from_secs(5);
/// In `_meta` of such a result.
const CHANGES_TOLD: &str = "atoll/list_changed";
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
    Answered(Bytes),
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
    /// The streams by which the server's own messages come.
    streams: AtomicUsize,
    /// How many notifications of a changed list of resources were passed on.
    changes: watch::Sender<u64>,
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

/// Whether a message notifies of a changed list of resources.
fn is_change(data: &[u8]) -> bool {
    const METHOD: &str = "notifications/resources/list_changed";
    // Answers may be large; a notification is not.
    data.len() < 4096
        && serde_json::from_slice::<Value>(data).is_ok_and(|message| message["method"] == METHOD)
}

/// Whether a message is the result of a call before which listeners were notified of a changed list.
fn follows_change(data: &[u8]) -> bool {
    data.windows(CHANGES_TOLD.len()).any(|part| part == CHANGES_TOLD.as_bytes())
        && serde_json::from_slice::<Value>(data)
            .is_ok_and(|message| message["result"]["_meta"][CHANGES_TOLD] == true)
}

/// A stream by which the server's own messages come, as long as it is open.
struct OpenStream<'a>(&'a Link);

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
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
            streams: AtomicUsize::new(0),
            changes: watch::Sender::new(0),
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
                terminal::note(&format!("a message was not carried: {why}"));
            }
            if message.method.as_deref() == Some("notifications/initialized") {
                self.listen();
            }
            return;
        };
        let (key, alone) = (id.to_string(), message.stands_alone());
        // Not a task of its own: it ends with this, when the client has gone.
        let (work, handle) = abortable(self.request(message, &id));
        if alone {
            locked(&self.alone).insert(key.clone(), handle);
        }
        let done = work.await;
        locked(&self.alone).remove(&key);
        match done {
            Ok(Err(Lost::Answered(answer))) => self.give(answer).await,
            Ok(Err(Lost::Because(why))) => self.give(failed(&id, &why)).await,
            _ => {}
        }
    }

    async fn give(&self, message: Bytes) {
        let change = is_change(&message);
        // A send fails only when the client has gone.
        let _ = self.out.send(message).await;
        if change {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Gives an answer to a request that was sent when so many changes had been passed on. The server's notification
    /// of a change comes by a stream of its own, before the answer that follows the change: the client, for which
    /// both are one stream, may close that on the answer.
    async fn answer(&self, message: Bytes, before: u64) {
        if self.streams.load(Ordering::SeqCst) > 0 && follows_change(&message) {
            let mut changes = self.changes.subscribe();
            let _ = timeout(OVERTAKEN, changes.wait_for(|changes| *changes > before)).await;
        }
        self.give(message).await;
    }

    fn open_stream(&self) -> OpenStream<'_> {
        self.streams.fetch_add(1, Ordering::SeqCst);
        OpenStream(self)
    }

    /// Sends a request and passes on its responses.
    async fn request(self: &Arc<Self>, message: Message, id: &Value) -> Result<(), Lost> {
        let before = *self.changes.borrow();
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
            self.answer(Bytes::copy_from_slice(whole.trim_ascii()), before).await;
            return Ok(());
        }
        let _stream = message.listens().then(|| self.open_stream());
        self.follow(answer, &message, id, before).await
    }

    /// Passes on the events of a response, and resumes it where it breaks off.
    async fn follow(
        self: &Arc<Self>,
        mut answer: McpAnswer,
        message: &Message,
        id: &Value,
        before: u64,
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
                if done {
                    self.answer(Bytes::from(event.data), before).await;
                    return Ok(());
                }
                self.give(Bytes::from(event.data)).await;
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
            return Err(Lost::Answered(Bytes::from(body)));
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
            let (mut last, mut pause) = (None, PAUSE);
            loop {
                let headers = McpHeaders { last_event: last.clone(), ..link.headers(None) };
                match link.client.mcp(Method::GET, &headers, None).await {
                    Ok(mut heard) if heard.status == 200 && heard.is_stream => {
                        pause = PAUSE;
                        let _stream = link.open_stream();
                        while let Ok(Some(event)) = heard.next().await {
                            last = event.id.or(last);
                            if !event.data.is_empty() {
                                link.give(Bytes::from(event.data)).await;
                            }
                        }
                    }
                    // The server sends nothing of its own, or the session is over: the next request begins another.
                    Ok(heard) if matches!(heard.status, 404 | 405) => return,
                    // The server is not there at the moment, or does not know the event.
                    other => {
                        last = last.filter(|_| other.is_err());
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
                sleep(pause).await;
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
