//! What is offered, and what is said to calls that cannot be right.

use super::{super::fixture::Server, Wire, stdio::Place, web::Web};
use serde_json::{Value, json};

const SIX: [&str; 6] =
    ["create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"];

fn names(wire: &mut impl Wire) -> Vec<String> {
    let tools = wire.ask("tools/list", json!({}))["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(
            tool["annotations"]["destructiveHint"].is_boolean() && tool["annotations"]["title"].is_string(),
            "{tool}"
        );
        assert!(tool["description"].as_str().unwrap().len() > 40, "{tool}");
    }
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A call that fails as a whole is a result that says what to do.
fn failure(wire: &mut impl Wire, tool: &str, arguments: Value) -> Value {
    let result = wire.call(tool, arguments);
    assert_eq!(result["isError"], true, "{result}");
    let value = result["structuredContent"].clone();
    assert_eq!(value["success"], false, "{value}");
    value
}

fn wrong_calls(wire: &mut impl Wire) {
    assert_eq!(names(wire), SIX);
    let unknown = wire.ask("tools/call", json!({ "name": "rm_rf", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("create_session"), "{unknown}");

    let places = |value: &Value| -> Vec<String> {
        assert_eq!(value["error"], "INVALID_INPUT", "{value}");
        value["details"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["loc"][0].as_str().unwrap_or("?").to_owned())
            .collect()
    };
    let wrong = failure(wire, "execute_code", json!({ "session_id": "", "code": "", "timeout": 301 }));
    assert_eq!(places(&wrong), ["session_id", "code", "timeout"]);
    assert_eq!(places(&failure(wire, "execute_code", json!({ "session_id": "1a2b3c4d" }))), ["code"]);
    assert_eq!(
        places(&failure(wire, "import_files", json!({ "session_id": "1a2b3c4d", "files": [] }))),
        ["files"]
    );
    assert_eq!(places(&failure(wire, "create_session", json!({ "language": "cobol" }))), ["language"]);
    let bad = failure(wire, "create_session", json!({ "dependencies": { "--index-url": "" } }));
    assert_eq!(places(&bad), ["dependencies"]);

    let missing = failure(wire, "execute_terminal", json!({ "session_id": "1a2b3c4d", "command": "true" }));
    assert!(missing["error"].as_str().unwrap().starts_with("NotFound"), "{missing}");
    assert!(missing["hint"].as_str().unwrap().contains("create_session"), "{missing}");
    assert_eq!(missing["active_sessions"], json!([]));
    assert_eq!(wire.value("stop_session", json!({ "session_id": "1a2b3c4d" })), json!({ "success": false }));

    let prompts = wire.ask("prompts/get", json!({ "name": "x" }));
    assert!(prompts["error"]["code"].is_number(), "{prompts}");
    assert_eq!(wire.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(wire.ask("logging/setLevel", json!({ "level": "error" }))["result"], json!({}));
}

#[test]
fn six_tools_and_failures_that_can_be_acted_on_over_http() {
    let server = Server::start();
    wrong_calls(&mut Web::open(&server));
}

#[test]
fn six_tools_and_failures_that_can_be_acted_on_over_stdio() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    wrong_calls(&mut stdio);
    // What is no message does no harm.
    stdio.write("this is no JSON");
    stdio.write("[1, 2, 3]");
    assert_eq!(stdio.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn a_key_that_may_only_look_is_told_so() {
    let server = Server::start();
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"reader","owner":"ann","scope":"read_only"}"#);
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.json()["key"].as_str().unwrap_or_default().to_owned();
    let mut web = Web::open_as(&server, &key, None);
    let refused = failure(&mut web, "create_session", json!({}));
    assert!(refused["error"].as_str().unwrap().starts_with("PermissionDenied"), "{refused}");
}

#[test]
fn instructions_and_capabilities_are_told() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    let templates = stdio.ask("resources/templates/list", json!({}));
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"],
        "atoll://session/{session_id}{+path}"
    );
    assert_eq!(stdio.ask("resources/list", json!({}))["result"]["resources"], json!([]));
    let outside = stdio.ask("resources/read", json!({ "uri": "file:///etc/passwd" }));
    assert_eq!(outside["error"]["code"], -32002, "{outside}");
}
