//! MCP as clients speak it: JSON-RPC over stdin and stdout, and over HTTP.

mod access;
mod bridge;
mod cells;
mod clients;
mod conformance;
mod engine;
mod extra;
mod files;
mod inspector;
mod lasting;
mod stateless;
mod stdio;
mod tools;
mod web;

use serde_json::{Value, json};

/// What a client says of itself.
fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "a test", "version": "1" },
    })
}

/// A connection, whichever it is.
trait Wire {
    /// Sends a request and returns its whole answer. What comes before it is kept.
    fn ask(&mut self, method: &str, params: Value) -> Value;

    /// What came that no request waited for.
    fn notes(&mut self) -> Vec<Value>;

    /// The result of a tool.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// What a tool answers; the text must say the same.
    fn value(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        let value = result["structuredContent"].clone();
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, value, "the text says what the structure says");
        value
    }

    /// Makes a session.
    fn session(&mut self, language: &str) -> String {
        let made = self.value("create_session", json!({ "language": language }));
        assert_eq!((&made["success"], &made["status"]), (&json!(true), &json!("running")), "{made}");
        made["session_id"].as_str().unwrap().to_owned()
    }
}
