//! The rows of the audit trail of what is not asked for by the REST API alone: conversations, and what only the console and the
//! compatible APIs ask for. `server::audited` has those of the REST API.

use super::{super::eventually, KEY, model, server};
use atoll_types::Operation;
use serde_json::{Value, json};
use std::collections::HashSet;

#[test]
fn whatever_changes_something_has_its_row() {
    let model = model();
    let server = server(&model);
    let ask = |method: &str, path: &str, body: &Value| {
        let answer = server.ask(method, path, &if body.is_null() { String::new() } else { body.to_string() });
        assert!(answer.status < 300, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    };
    let none = Value::Null;
    let thread = ask("POST", "/threads", &json!({}))["thread_id"].as_str().unwrap().to_owned();
    let at = |below: &str| format!("/threads/{thread}{below}");
    ask("PATCH", &at(""), &json!({ "metadata": { "a": "b" } }));
    let message = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
    ask("POST", &at("/state"), &json!({ "values": message("hello") }));
    ask("POST", &at("/copy"), &none);
    let body = json!({ "assistant_id": "agent", "input": message("take your time") });
    let run = ask("POST", &at("/runs"), &body)["run_id"].as_str().unwrap().to_owned();
    ask("POST", &at(&format!("/runs/{run}/cancel?wait=true")), &none);
    ask("DELETE", &at(&format!("/runs/{run}")), &none);
    ask("DELETE", &at(""), &none);
    let own = ask("POST", "/assistants", &json!({ "graph_id": "agent", "name": "own" }));
    let assistant = format!("/assistants/{}", own["assistant_id"].as_str().unwrap());
    ask("PATCH", &assistant, &json!({ "name": "other" }));
    ask("DELETE", &assistant, &none);
    ask("PUT", "/store/items", &json!({ "namespace": ["n"], "key": "k", "value": { "v": 1 } }));
    ask("DELETE", "/store/items", &json!({ "namespace": ["n"], "key": "k" }));
    ask("DELETE", "/settings/api-key", &none);
    ask("PUT", "/api/sandbox/config", &json!({ "mode": "all" }));
    ask("POST", "/api/v1/audit/cleanup", &json!({ "older_than_days": 30 }));
    server.core(async |core| {
        let signed_in = core.keys.sign_in(KEY, |caller| caller).await.unwrap();
        core.keys.sign_out(&signed_in.session.caller, &signed_in.secret).await.unwrap();
    });

    let wanted = [
        Operation::ThreadCreate,
        Operation::ThreadPatch,
        Operation::ThreadState,
        Operation::ThreadCopy,
        Operation::ThreadDelete,
        Operation::RunStart,
        Operation::RunCancel,
        Operation::RunDelete,
        Operation::AssistantCreate,
        Operation::AssistantPatch,
        Operation::AssistantDelete,
        Operation::ItemPut,
        Operation::ItemDelete,
        Operation::ModelSettings,
        Operation::ConfigSet,
        Operation::AuditCleanup,
        Operation::ConsoleSignIn,
        Operation::ConsoleSignOut,
    ];
    let rows = || server.get("/api/v1/audit?limit=200")["entries"].as_array().unwrap().clone();
    eventually("every end", || rows().iter().all(|row| !row["ended"].is_null()));
    let kinds: HashSet<String> = rows().iter().map(|row| row["kind"].as_str().unwrap().to_owned()).collect();
    for operation in wanted {
        assert!(kinds.contains(operation.name()), "{operation:?}: {kinds:?}");
    }
}
