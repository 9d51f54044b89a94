//! Protocol 2026-07-28: no sessions, each request says who it is.

use super::{
    super::fixture::{KEY, Server},
    web::{messages, post},
};
use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";

fn ask(server: &Server, method: &str, name: Option<&str>, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let bearer = format!("Bearer {KEY}");
    let mut headers = vec![
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
        ("X-Thread-Id", "one"),
    ];
    headers.extend(name.map(|name| ("Mcp-Name", name)));
    let answer = post(server, &headers, &message);
    messages(&answer).pop().unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn tools_work_without_a_session() {
    let server = Server::start();
    let found = ask(&server, "server/discover", None, json!({}));
    assert!(found["result"]["supportedVersions"].to_string().contains(VERSION), "{found}");
    let tools = ask(&server, "tools/list", None, json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 6, "{tools}");
    let call = |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        ask(&server, "tools/call", Some(tool), params)["result"]["structuredContent"].clone()
    };
    let made = call("create_session", json!({}));
    let session = made["session_id"].as_str().unwrap_or_else(|| panic!("{made}"));
    call("execute_code", json!({ "session_id": session, "code": "x = 20" }));
    let ran = call("execute_code", json!({ "session_id": session, "code": "x + 1" }));
    assert_eq!(ran["result"]["text/plain"], "21", "{ran}");
}
