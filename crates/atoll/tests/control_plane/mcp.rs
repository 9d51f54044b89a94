//! MCP and its tools.

use super::{KEY, Server, eventually, http};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

/// One MCP session.
struct Web<'a> {
    server: &'a Server,
    thread: &'a str,
    session: String,
}

const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");

fn post(server: &Server, thread: &str, session: &str, message: &Value) -> http::Answer {
    let authorization = format!("Bearer {KEY}");
    let mut headers = vec![
        ("Authorization", authorization.as_str()),
        ACCEPT,
        ("Content-Type", "application/json"),
        ("X-Thread-Id", thread),
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
        Self::open_in(server, "a-thread")
    }

    fn open_in(server: &'a Server, thread: &'a str) -> Self {
        let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "a test", "version": "1" } });
        let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about });
        let answer = post(server, thread, "", &begin);
        assert_eq!(message(&answer)["result"]["serverInfo"]["name"], "atoll", "{answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let told = post(server, thread, &session, &told);
        assert_eq!(told.status, 202, "{told:?}");
        Self { server, thread, session }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        message(&post(self.server, self.thread, &self.session, &request))
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Listens to what the server says by itself.
    fn listen(&self) -> BufReader<http::Coming> {
        let authorization = format!("Bearer {KEY}");
        let headers = [ACCEPT, ("Authorization", &authorization), ("Mcp-Session-Id", &self.session)];
        let heard = http::open(self.server.address, "GET", "/mcp", &headers, b"").unwrap();
        assert_eq!(heard.status, 200, "{}", heard.head);
        BufReader::new(heard)
    }

    /// Whether the server knows the session. Asking is no use of it.
    fn is_known(&self) -> bool {
        is_known(self.server, &self.session)
    }
}

fn is_known(server: &Server, session: &str) -> bool {
    server.core(async |core| core.mcp_sessions.get(session).await.unwrap().is_some())
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
    let after =
        post(&server, web.thread, &web.session, &json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    assert_eq!(after.status, 404, "{after:?}");
}

#[test]
fn a_client_that_only_listens_is_there_and_one_that_does_nothing_is_gone() {
    let arguments = ["--set", "tool_sessions.network_enabled=false"];
    let server = Server::start_configured("[mcp]\nidle_seconds = 1\n", &arguments);
    let listening = Web::open(&server);
    let heard = listening.listen();
    // It began later, and so would not be ended before the other one.
    let silent = Web::open_in(&server, "another");
    eventually("the end of the silent one", || !silent.is_known());
    assert!(listening.is_known());
    // The stream is the same, and all that was agreed is.
    let made = listening.call("create_session", json!({ "language": "python" }));
    let session = made["session_id"].as_str().unwrap_or_else(|| panic!("{made}"));
    listening.call("execute_terminal", json!({ "session_id": session, "command": "echo hi > a" }));
    let export = json!({ "session_id": session, "files": { "source": "a" } });
    assert_eq!(listening.call("export_files", export)["success"], true);
    let told = heard.lines().map_while(Result::ok).any(|line| line.contains("resources/list_changed"));
    assert!(told, "the stream ended");
    // When it ends, so does the use of the session.
    eventually("the end of the other one", || !listening.is_known());
}

#[test]
fn a_client_that_never_comes_back_leaves_its_seats_to_others() {
    let one = ["--set", "tool_sessions.network_enabled=false", "--set", "tool_sessions.max=1"];
    let mut server = Server::start_configured("[mcp]\nidle_seconds = 1\n", &one);
    let (session, held) = {
        let web = Web::open(&server);
        let made = web.call("create_session", json!({ "language": "python" }));
        (web.session, made["session_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned())
    };
    server.kill();
    server.restart();
    eventually("the end of the session that nobody uses", || !is_known(&server, &session));
    // Its conversation has a name, and goes on where a client names it again.
    let again = Web::open(&server);
    let ran = again.call("execute_terminal", json!({ "session_id": held, "command": "echo here" }));
    assert!(ran.to_string().contains("here"), "{ran}");
    let other = Web::open_in(&server, "another");
    let ask = || other.call("create_session", json!({ "language": "python" }));
    drop(again);
    // It waits for the seat, or is refused and asks again.
    let mut made = Value::Null;
    eventually("the seat", || {
        made = ask();
        made["success"] == true
    });
    let again = Web::open(&server);
    let ran = again.call("execute_terminal", json!({ "session_id": held, "command": "true" }));
    assert_eq!(ran["success"], false, "it gave way: {ran}");
}
