//! MCP and its tools.

use super::{KEY, Server, http};
use serde_json::{Value, json};

/// One MCP session.
struct Web<'a> {
    server: &'a Server,
    session: String,
}

fn post(server: &Server, session: &str, message: &Value) -> http::Answer {
    let authorization = format!("Bearer {KEY}");
    let mut headers = vec![
        ("Authorization", authorization.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("X-Thread-Id", "a-thread"),
    ];
    if !session.is_empty() {
        headers.extend([("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")]);
    }
    http::request(server.address, "POST", "/mcp", &headers, message.to_string().as_bytes()).unwrap()
}

/// The last message of an answer, whether it is one or a stream of events.
fn message(answer: &http::Answer) -> Value {
    let text = String::from_utf8_lossy(&answer.body);
    if text.trim_start().starts_with('{') {
        return answer.json();
    }
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = data.rfind(|data| !data.is_empty());
    serde_json::from_str(last.unwrap_or_else(|| panic!("{}\n{text}", answer.head))).unwrap()
}

impl<'a> Web<'a> {
    fn open(server: &'a Server) -> Self {
        let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "a test", "version": "1" } });
        let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about });
        let answer = post(server, "", &begin);
        assert_eq!(message(&answer)["result"]["serverInfo"]["name"], "atoll", "{answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let told =
            post(server, &session, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(told.status, 202, "{told:?}");
        Self { server, session }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        message(&post(self.server, &self.session, &request))
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"]["structuredContent"].clone()
    }
}

#[test]
fn a_client_is_told_of_the_tools() {
    let server = Server::start();
    let web = Web::open(&server);
    let list = web.ask("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in ["create_session", "execute_code", "execute_terminal"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"), "{list}");
    assert_eq!(web.ask("no/such", json!({}))["error"]["code"], -32601);
}

#[test]
fn a_session_runs_commands_and_is_a_sandbox_of_its_own() {
    // Sessions have a network unless the operator says no, and this provider has none.
    let server = Server::start_with(&["--set", "tool_sessions.network_enabled=false"]);
    let web = Web::open(&server);
    let made = web.call("create_session", json!({ "language": "python" }));
    assert_eq!((&made["success"], &made["status"]), (&json!(true), &json!("running")), "{made}");
    let session = made["session_id"].as_str().unwrap();
    let said = web.call("execute_terminal", json!({ "session_id": session, "command": "echo $((6*7))" }));
    assert!(said.to_string().contains("42"), "{said}");
    let trail = server.get("/api/v1/audit?limit=50").to_string();
    assert!(trail.contains("\"mcp\""), "the trail says which front it came by: {trail}");
    let other = web.call("execute_terminal", json!({ "session_id": "no-such", "command": "true" }));
    assert_eq!(other["success"], false, "{other}");
}

#[test]
fn a_session_ends_with_its_client() {
    let server = Server::start();
    let web = Web::open(&server);
    assert_eq!(web.ask("ping", json!({}))["result"], json!({}));
    let authorization = format!("Bearer {KEY}");
    let headers = [("Authorization", authorization.as_str()), ("Mcp-Session-Id", web.session.as_str())];
    let ended = http::request(server.address, "DELETE", "/mcp", &headers, b"").unwrap();
    assert_eq!(ended.status, 204, "{ended:?}");
    let after = post(&server, &web.session, &json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    assert_eq!(after.status, 404, "{after:?}");
}
