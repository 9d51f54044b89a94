//! The agent with real containers: what needs a network, snapshots or the program's own log.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

const KEY_OF_THE_MODEL: &str = "sk-of-the-server-0123456789";

/// The scripted model provider of the control plane's tests.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let (node, modules) = (
            root.join("target/mcp-conformance/node_modules/node/bin/node"),
            root.join("target/langgraph-node"),
        );
        assert!(node.exists() && modules.exists(), "`make langgraph-tools` installs Node and the packages");
        let script = root.join("crates/atoll/tests/control_plane/langgraph/model.mjs");
        let mut child = Command::new(node).arg(script).arg(modules).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }

    /// A server whose agent asks it.
    fn server(&self, level: &'static str, arguments: &[&str]) -> Server {
        self.server_with(level, arguments, &[])
    }

    /// The same with more variables.
    fn server_with(&self, level: &'static str, arguments: &[&str], more: &[(&str, &str)]) -> Server {
        let base = format!("{}/v1", self.url);
        let variables = [
            ("CHAT_MODEL", "gpt-4o"),
            ("CHAT_MODEL_PROVIDER", "openai"),
            ("CHAT_MODEL_BASE_URL", base.as_str()),
            ("CHAT_MODEL_API_KEY", KEY_OF_THE_MODEL),
        ];
        Server::start_in(level, arguments, &[&variables, more].concat())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn new_thread(server: &Server) -> String {
    let made = server.ask("POST", "/threads", "{}").json();
    format!("/threads/{}", made["thread_id"].as_str().unwrap())
}

fn body(said: &str, more: Value) -> String {
    let input = json!({ "messages": [{ "role": "user", "content": said }] });
    let mut body = json!({ "assistant_id": "agent", "input": input });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

/// The messages after a run.
fn say(server: &Server, thread: &str, said: &str) -> Vec<Value> {
    let values = server.ask("POST", &format!("{thread}/runs/wait"), &body(said, json!({}))).json();
    values["messages"].as_array().unwrap_or_else(|| panic!("{values}")).clone()
}

#[test]
fn a_conversation_is_forked_with_its_sandbox() {
    let model = Model::start();
    let server = model.server("warn", &[]);
    let first = new_thread(&server);
    let messages = say(&server, &first, "keep a file");
    let of =
        |messages: &[Value]| messages[3]["tool_calls"][0]["args"]["session_id"].as_str().unwrap().to_owned();
    let copied = server.ask("POST", &format!("{first}/copy"), r#"{"sandboxes":true}"#);
    assert_eq!(copied.status, 200, "{}", String::from_utf8_lossy(&copied.body));
    let copied = copied.json();
    let second = format!("/threads/{}", copied["thread_id"].as_str().unwrap());
    let forked = copied["values"]["messages"].as_array().unwrap().clone();
    assert_eq!(forked.len(), messages.len(), "{copied}");
    assert_ne!(of(&forked), of(&messages), "the copy names a session of its own");
    assert!(!Value::from(forked).to_string().contains(&of(&messages)), "and nowhere the first one's");
    // Each works on with its own file.
    let last = |messages: Vec<Value>| messages.last().unwrap()["content"].as_str().unwrap().to_owned();
    assert_eq!(last(say(&server, &second, "add to the file")), "It has: kept added");
    assert_eq!(
        last(say(&server, &first, "add to the file")),
        "It has: kept added",
        "the first has only its own"
    );
    assert_eq!(last(say(&server, &second, "add to the file")), "It has: kept added added");
    // The copy outlives the first conversation.
    assert_eq!(server.ask("DELETE", &first, "").status, 204);
    assert_eq!(last(say(&server, &second, "add to the file")), "It has: kept added added added");
}

#[test]
fn max_iterations_bounds_a_run() {
    let model = Model::start();
    let server = model.server_with("warn", &[], &[("MAX_ITERATIONS", "1")]);
    let thread = new_thread(&server);
    say(&server, &thread, "the answer?");
    let run = server.ask("GET", &format!("{thread}/runs"), "").json()[0].clone();
    assert_eq!(
        (&run["stop_reason"], &run["usage"]["iterations"]),
        (&json!("max_iterations"), &json!(1)),
        "{run}"
    );
}

#[test]
fn a_models_key_is_in_no_log_and_no_event() {
    let model = Model::start();
    let server = model.server("trace", &["--set", "tool_sessions.network_enabled=false"]);
    let of_run = "sk-of-one-run-9876543210";
    let thread = new_thread(&server);
    let modes = [
        "values",
        "updates",
        "messages-tuple",
        "messages",
        "custom",
        "tasks",
        "checkpoints",
        "debug",
        "events",
    ];
    let configurable = json!({ "configurable": { "api_key": of_run } });
    let mut told = String::new();
    for (said, config) in [
        ("show me the environment", json!({})),
        ("show me the environment", configurable),
        ("fail", json!({})),
    ] {
        let asked = body(said, json!({ "stream_mode": modes, "config": config }));
        let headers = [("X-Api-Key", KEY)];
        let path = format!("{thread}/runs/stream");
        let mut coming = http::open(server.address, "POST", &path, &headers, asked.as_bytes()).unwrap();
        assert_eq!(coming.status, 200);
        coming.read_to_string(&mut told).unwrap();
    }
    assert!(told.contains("There is no key.") && told.contains("event: error"), "{told}");
    // The events of protocol v2, up to the end of the last run; and those of the sandbox.
    let channels = json!({ "channels": ["values", "updates", "messages", "tools", "lifecycle", "checkpoints", "tasks"] });
    let headers = [("X-Api-Key", KEY), ("Content-Type", "application/json")];
    let path = format!("{thread}/stream/events");
    let coming =
        http::open(server.address, "POST", &path, &headers, channels.to_string().as_bytes()).unwrap();
    for line in BufReader::new(coming).lines().map_while(Result::ok) {
        told += &line;
        if line.contains("\"failed\"") {
            break;
        }
    }
    told += &String::from_utf8_lossy(&server.ask("GET", "/api/v1/events?limit=1000", "").body);
    eventually("its log", || server.logged().contains("INSERT INTO conversation_runs"));
    told += &server.logged();
    for key in [KEY_OF_THE_MODEL, of_run] {
        let at = told.find(key);
        assert_eq!(at, None, "{key}: {}", at.map_or("", |at| &told[at.saturating_sub(300)..at]));
    }
}

#[test]
fn a_result_names_every_row_of_what_it_asked_the_network() {
    let model = Model::start();
    let server = model.server("warn", &[]);
    let thread = new_thread(&server);
    let messages = say(&server, &thread, "ask the network");
    let facts = &messages[4]["additional_kwargs"]["atoll"];
    let named: Vec<u64> = facts["egress_rows"]
        .as_array()
        .unwrap_or_else(|| panic!("{messages:?}"))
        .iter()
        .map(|row| row.as_u64().unwrap())
        .collect();
    let sandbox = facts["sandbox_id"].as_str().unwrap();
    let rows = || {
        let log = server.ask("GET", &format!("/api/v1/sandboxes/{sandbox}/egress/log?limit=100"), "").json();
        log["entries"].as_array().unwrap_or_else(|| panic!("{log}")).clone()
    };
    let host = |row: &Value| row["host"] == "refused.example";
    let count = |rows: &[Value]| {
        rows.iter().filter(|row| host(row)).map(|row| row["count"].as_u64().unwrap()).sum::<u64>()
    };
    // Five refusals at once are a row and, when their second is over, another one for the rest.
    eventually("all rows", || count(&rows()) == 5);
    let all = rows();
    assert!(all.iter().filter(|row| host(row)).count() < 5, "they were coalesced: {all:?}");
    for row in all.iter().filter(|row| host(row)) {
        let seq = row["seq"].as_u64().unwrap_or_else(|| panic!("{row}"));
        assert!(named.contains(&seq), "{seq} is none of {named:?}: {all:?}");
    }
}

/// The thread's messages when its only run has ended.
fn ended(server: &Server, thread: &str) -> Vec<Value> {
    let runs = || server.ask("GET", &format!("{thread}/runs"), "").json();
    let now = || runs()[0]["status"].as_str().unwrap_or_default().to_owned();
    eventually("the run's end", || !["pending", "running"].contains(&now().as_str()));
    assert_eq!(now(), "success", "{}", runs());
    server.ask("GET", thread, "").json()["values"]["messages"].as_array().unwrap().clone()
}

/// Checks that every call has one result, and returns the results that are uncertain.
fn uncertain(messages: &[Value]) -> Vec<&Value> {
    let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    let results = || messages.iter().filter(|message| message["type"] == "tool");
    for call in calls {
        let of_call = results().filter(|result| result["tool_call_id"] == call["id"]).count();
        assert_eq!(of_call, 1, "{call}: {messages:?}");
    }
    results().filter(|result| result["content"].to_string().contains("may or may not have worked")).collect()
}

/// The program's process is killed after every third of a run's events, from before the first to the last, and started again.
#[test]
fn a_run_goes_on_wherever_its_server_is_killed() {
    let model = Model::start();
    let mut server = model.server("warn", &["--set", "tool_sessions.network_enabled=false"]);
    let asked = body("count it", json!({ "stream_mode": ["updates", "messages-tuple", "custom", "tasks"] }));
    let mut events = 0;
    loop {
        let thread = new_thread(&server);
        let path = format!("{thread}/runs/stream");
        let coming =
            http::open(server.address, "POST", &path, &[("X-Api-Key", KEY)], asked.as_bytes()).unwrap();
        let lines = BufReader::new(coming).lines().map_while(Result::ok);
        let seen = lines.filter(|line| line.starts_with("event: ")).take(events).count();
        server.kill();
        server.restart();
        let messages = ended(&server, &thread);
        assert_eq!(messages.last().unwrap()["content"], "It ran 1.", "{events}: {messages:?}");
        let told = uncertain(&messages);
        assert!(told.len() <= 1, "{events}: {messages:?}");
        assert!(told.iter().all(|result| result["name"] == "create_session"), "{events}: {messages:?}");
        let sandboxes = server.ask("GET", "/api/v1/sandboxes", "").json()["items"].as_array().unwrap().len();
        assert!(sandboxes <= 1 + told.len(), "{events}: only what is uncertain may be there twice");
        assert_eq!(server.ask("DELETE", &thread, "").status, 204);
        eventually("the sessions' end", || {
            server.ask("GET", "/api/v1/sandboxes", "").json()["items"] == json!([])
        });
        if seen < events {
            break;
        }
        events += 3;
    }
    assert!(events > 10, "{events}");
}

/// What runs when the program's process is killed: a command, a cell, an answer, and beside a command a tool that has no id.
#[test]
fn what_runs_while_its_server_is_killed_runs_once() {
    let model = Model::start();
    let mut server = model.server("warn", &["--set", "tool_sessions.network_enabled=false"]);
    for (said, answer, doubts) in [
        ("wait here", "It said 1.", 0),
        ("a cell waits", "The cell ended.", 0),
        ("both wait", "Both are done.", 1),
    ] {
        let thread = new_thread(&server);
        assert_eq!(server.ask("POST", &format!("{thread}/runs"), &body(said, json!({}))).status, 200);
        let mut found = None;
        eventually("what waits", || {
            let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
            let ids =
                listed["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
            let mut paths = ids.map(|id| format!("/api/v1/sandboxes/{id}"));
            found = paths.find(|path| server.ask("GET", &format!("{path}/files/n"), "").status == 200);
            found.is_some()
        });
        let sandbox = found.unwrap();
        if doubts > 0 {
            eventually("the second session", || {
                server.ask("GET", "/api/v1/sandboxes", "").json()["items"].as_array().unwrap().len() == 2
            });
        }
        server.kill();
        server.restart();
        assert_eq!(server.ask("PUT", &format!("{sandbox}/files/go"), "").status, 204);
        let messages = ended(&server, &thread);
        assert_eq!(messages.last().unwrap()["content"], answer, "{said}: {messages:?}");
        assert_eq!(uncertain(&messages).len(), doubts, "{said}: {messages:?}");
        assert_eq!(server.ask("GET", &format!("{sandbox}/files/n"), "").body, b"once\n", "{said}");
        assert_eq!(server.ask("DELETE", &thread, "").status, 204);
        eventually("the sessions' end", || {
            server.ask("GET", "/api/v1/sandboxes", "").json()["items"] == json!([])
        });
    }
    let thread = new_thread(&server);
    let asked = body("speak slowly", json!({ "stream_mode": "messages-tuple" }));
    let path = format!("{thread}/runs/stream");
    let coming = http::open(server.address, "POST", &path, &[("X-Api-Key", KEY)], asked.as_bytes()).unwrap();
    assert!(
        BufReader::new(coming).lines().map_while(Result::ok).any(|line| line.contains("very")),
        "it speaks"
    );
    server.kill();
    server.restart();
    let messages = ended(&server, &thread);
    assert_eq!(messages.len(), 2, "half an answer is none: {messages:?}");
    assert_eq!(messages[1]["content"], "This is said very slowly. ".repeat(100));
}
