//! Raw MCP over HTTP.

use super::{
    super::{
        fixture::{KEY, Server},
        http::{self, Answer, Coming},
    },
    Wire, initialize,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

/// The path of the endpoint.
pub(super) const PATH: &str = "/mcp";
/// What every client accepts.
pub(super) const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// One MCP session.
pub(super) struct Web<'a> {
    pub(super) server: &'a Server,
    key: String,
    pub(super) session: String,
    thread: Option<String>,
    next: u64,
    notes: Vec<Value>,
}

/// The messages of an answer, whether it is one or a stream of events.
pub(super) fn messages(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8_lossy(&answer.body);
    if answer.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
        return vec![answer.json()];
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Sends a message with headers of one's own.
pub(super) fn post(server: &Server, headers: &[(&str, &str)], message: &Value) -> Answer {
    let all: Vec<(&str, &str)> = [ACCEPT, JSON].iter().chain(headers).copied().collect();
    http::request(server.address, "POST", PATH, &all, message.to_string().as_bytes()).unwrap()
}

impl<'a> Web<'a> {
    pub(super) fn open(server: &'a Server) -> Self {
        Self::open_as(server, KEY, None)
    }

    /// A session that was begun before.
    pub(super) fn again(server: &'a Server, key: &str, session: &str) -> Self {
        let (key, session) = (key.to_owned(), session.to_owned());
        Self { server, key, session, thread: None, next: 1000, notes: Vec::new() }
    }

    pub(super) fn open_as(server: &'a Server, key: &str, thread: Option<&str>) -> Self {
        let mut web = Self {
            server,
            key: key.to_owned(),
            session: String::new(),
            thread: thread.map(str::to_owned),
            next: 0,
            notes: Vec::new(),
        };
        let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize() });
        let answer = web.post(&begin);
        assert_eq!(answer.status, 200, "{answer:?}");
        web.session = answer.header("mcp-session-id").unwrap().to_owned();
        assert_eq!(messages(&answer)[0]["result"]["serverInfo"]["name"], "atoll");
        let told = web.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(told.status, 202, "{told:?}");
        web
    }

    /// The headers of this session, with some more.
    pub(super) fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {}", self.key))];
        if !self.session.is_empty() {
            headers.push(("Mcp-Session-Id".into(), self.session.clone()));
            headers.push(("MCP-Protocol-Version".into(), "2025-11-25".into()));
        }
        headers.extend(self.thread.clone().map(|thread| ("X-Thread-Id".to_owned(), thread)));
        headers
    }

    pub(super) fn post(&self, message: &Value) -> Answer {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        post(self.server, &headers, message)
    }

    /// Sends a request whose answer is read as it comes.
    pub(super) fn start(&mut self, method: &str, params: Value) -> (u64, Events) {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        (self.next, self.stream("POST", &[], message.to_string().as_bytes()))
    }

    /// Listens to what the server says by itself.
    pub(super) fn listen(&self, more: &[(&str, &str)]) -> Events {
        self.stream("GET", more, b"")
    }

    fn stream(&self, method: &str, more: &[(&str, &str)], body: &[u8]) -> Events {
        let headers = self.headers();
        let own = headers.iter().map(|(a, b)| (a.as_str(), b.as_str()));
        let all: Vec<(&str, &str)> =
            [ACCEPT, JSON].into_iter().chain(own).chain(more.iter().copied()).collect();
        let coming = http::open(self.server.address, method, PATH, &all, body).unwrap();
        assert_eq!(coming.status, 200, "{}", coming.head);
        Events { from: BufReader::new(coming), last: None }
    }
}

/// Events as they come.
pub(super) struct Events {
    from: BufReader<Coming>,
    /// The last event's id.
    pub(super) last: Option<String>,
}

impl Events {
    /// The next message.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.from.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(id) = line.strip_prefix("id:") {
                self.last = Some(id.trim().to_owned());
            }
            // An answer of one message is JSON, after white space.
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
            match line.strip_prefix("data:").map(str::trim) {
                Some(data) if !data.is_empty() => return Some(serde_json::from_str(data).unwrap()),
                _ => {}
            }
        }
    }
}

impl Wire for Web<'_> {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let (id, mut events) = self.start(method, params);
        loop {
            let message = events.next().expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.notes.push(message);
        }
    }

    fn notes(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.notes)
    }
}
