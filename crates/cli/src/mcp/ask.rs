//! What the bridge needs of a message: its method, whether it expects a response, and the headers that the
//! server requires.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

/// The first version of the protocol without sessions. From then on each request names its version.
const WITHOUT_SESSIONS: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Bytes,
    pub(super) method: Option<String>,
    /// Of a request.
    pub(super) id: Option<Value>,
    /// The version that it names.
    pub(super) version: Option<String>,
    /// Its subject: a tool, a resource.
    pub(super) name: Option<String>,
    /// The request that it cancels.
    pub(super) cancels: Option<Value>,
}

impl Message {
    /// Whether it must be sent before the next message is read.
    pub(super) fn waits(&self) -> bool {
        self.begins() || self.id.is_none()
    }

    /// Whether it starts a session.
    pub(super) fn begins(&self) -> bool {
        self.method.as_deref() == Some("initialize")
    }

    /// Whether its response is a stream of the server's own messages.
    pub(super) fn listens(&self) -> bool {
        self.method.as_deref() == Some("subscriptions/listen")
    }

    /// Whether it belongs to no session.
    pub(super) fn stands_alone(&self) -> bool {
        self.version.as_deref().is_some_and(|version| version >= WITHOUT_SESSIONS)
    }

    /// Its headers, where the version requires them.
    pub(super) fn routing(&self) -> Option<(String, Option<String>)> {
        let method = self.method.clone().filter(|_| self.stands_alone())?;
        Some((method, self.name.as_deref().map(header)))
    }
}

/// Text as a header has it.
fn header(text: &str) -> String {
    let plain = text.bytes().all(|b| (0x20..0x7f).contains(&b))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// Parses a line; none where it is no message.
pub(super) fn look(bytes: Bytes) -> Option<Message> {
    let value: Value = serde_json::from_slice(&bytes).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let params = &value["params"];
    let method = text(&value["method"]);
    let name = match method.as_deref() {
        Some("tools/call" | "prompts/get") => text(&params["name"]),
        Some("resources/read") => text(&params["uri"]),
        _ => None,
    };
    let cancels = (method.as_deref() == Some("notifications/cancelled")).then(|| params["requestId"].clone());
    // A response has an id too, but expects none.
    let id = value.get("id").filter(|id| method.is_some() && !id.is_null()).cloned();
    value.is_object().then(|| Message {
        id,
        version: text(&params["_meta"][VERSION]),
        name,
        cancels: cancels.filter(|id| !id.is_null()),
        method,
        bytes,
    })
}

/// The error response of a failed request.
pub(super) fn failed(id: &Value, why: &str) -> Bytes {
    let error = json!({ "code": -32_000, "message": why });
    Bytes::from(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &'static str) -> Message {
        look(Bytes::from(text)).unwrap()
    }

    #[test]
    fn what_matters_of_a_message() {
        let begins = seen(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
        assert!(begins.begins() && begins.waits() && !begins.stands_alone() && begins.routing().is_none());
        let call = seen(r#"{"id":"a","method":"tools/call","params":{"name":"execute_code"}}"#);
        assert!(!call.waits() && call.id == Some(json!("a")));
        let cancel = seen(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert!(cancel.waits() && cancel.cancels == Some(json!(7)));
        let answer = seen(r#"{"id":3,"result":{}}"#);
        assert!(answer.waits() && answer.id.is_none());
        assert!(look(Bytes::from("[]")).is_none() && look(Bytes::from("x")).is_none());
    }

    #[test]
    fn versions_without_sessions_want_it_said_twice() {
        let meta = r#"{"id":1,"method":"tools/call","params":{"name":"é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let call = seen(meta);
        assert!(call.stands_alone());
        assert_eq!(call.routing(), Some(("tools/call".into(), Some("=?base64?w6k=?=".into()))));
        assert_eq!(header("execute_code"), "execute_code");
    }
}
