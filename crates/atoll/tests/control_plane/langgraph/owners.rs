//! No owner sees another's thread, by whichever route.

use super::{model, server};
use serde_json::{Value, json};

#[test]
fn no_route_shows_another_owners_conversation() {
    let model = model();
    let server = server(&model);
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let bob = server.key(r#"{"name":"b","owner":"bob","scope":"user"}"#);
    let ask = |key: &str, method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        server.ask_as(key, method, path, &body)
    };
    let made = ask(&ann, "POST", "/threads", &json!({ "metadata": { "of": "ann" } })).json();
    let thread = made["thread_id"].as_str().unwrap();
    let run =
        json!({ "assistant_id": "agent", "input": { "messages": [{ "role": "user", "content": "hello" }] } });
    let said = ask(&ann, "POST", &format!("/threads/{thread}/runs/wait"), &run);
    assert_eq!(said.status, 200, "{}", String::from_utf8_lossy(&said.body));
    let state = ask(&ann, "GET", &format!("/threads/{thread}/state"), &Value::Null).json();
    let checkpoint = state["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let first =
        ask(&ann, "GET", &format!("/threads/{thread}/runs"), &Value::Null).json()[0]["run_id"].clone();
    let id = first.as_str().unwrap();
    let own = ask(&ann, "POST", "/assistants", &json!({ "graph_id": "agent", "name": "ann's" })).json();
    let assistant = own["assistant_id"].as_str().unwrap();
    let item = json!({ "namespace": ["n"], "key": "k", "value": { "v": "ann's" } });
    assert_eq!(ask(&ann, "PUT", "/store/items", &item).status, 204);

    let none = Value::Null;
    let (at, update) =
        (json!({ "checkpoint": { "checkpoint_id": checkpoint } }), json!({ "values": { "x": 1 } }));
    let (version, patch) = (json!({ "version": 1 }), json!({ "metadata": { "x": 1 } }));
    let routes: [(&str, String, &Value); 24] = [
        ("GET", format!("/threads/{thread}"), &none),
        ("PATCH", format!("/threads/{thread}"), &patch),
        ("POST", format!("/threads/{thread}/copy"), &none),
        ("GET", format!("/threads/{thread}/state"), &none),
        ("POST", format!("/threads/{thread}/state"), &update),
        ("GET", format!("/threads/{thread}/state/{checkpoint}"), &none),
        ("POST", format!("/threads/{thread}/state/checkpoint"), &at),
        ("GET", format!("/threads/{thread}/history"), &none),
        ("POST", format!("/threads/{thread}/history"), &none),
        ("GET", format!("/threads/{thread}/stream"), &none),
        ("GET", format!("/threads/{thread}/runs"), &none),
        ("POST", format!("/threads/{thread}/runs"), &run),
        ("POST", format!("/threads/{thread}/runs/stream"), &run),
        ("POST", format!("/threads/{thread}/runs/wait"), &run),
        ("GET", format!("/threads/{thread}/runs/{id}"), &none),
        ("DELETE", format!("/threads/{thread}/runs/{id}"), &none),
        ("GET", format!("/threads/{thread}/runs/{id}/join"), &none),
        ("GET", format!("/threads/{thread}/runs/{id}/stream"), &none),
        ("POST", format!("/threads/{thread}/runs/{id}/cancel"), &none),
        ("GET", format!("/assistants/{assistant}"), &none),
        ("PATCH", format!("/assistants/{assistant}"), &patch),
        ("DELETE", format!("/assistants/{assistant}"), &none),
        ("POST", format!("/assistants/{assistant}/versions"), &none),
        ("POST", format!("/assistants/{assistant}/latest"), &version),
    ];
    for (method, path, body) in &routes {
        let refused = ask(&bob, method, path, body);
        assert_eq!(refused.status, 404, "{method} {path}: {}", String::from_utf8_lossy(&refused.body));
        let mut fields: Vec<_> = refused.json().as_object().unwrap().keys().cloned().collect();
        fields.sort();
        assert_eq!(fields, ["detail", "error", "message"], "{method} {path}");
        let keyless =
            super::super::http::request(server.address, method, path, &[], body.to_string().as_bytes());
        assert_eq!(keyless.unwrap().status, 401, "{method} {path}");
    }
    // What another owner has under the same id is its own.
    let command = json!({ "id": 1, "method": "state.get", "params": {} });
    let told = ask(&bob, "POST", &format!("/threads/{thread}/commands"), &command).json();
    assert!(told["type"] == "error" || told["result"]["values"]["messages"] == json!([]), "{told}");
    assert_eq!(ask(&bob, "POST", "/threads/search", &none).json(), json!([]));
    assert_eq!(
        ask(&bob, "POST", "/threads/prune", &json!({ "thread_ids": [thread] })).json()["pruned_count"],
        0
    );
    assert_eq!(ask(&bob, "GET", "/store/items?namespace=n&key=k", &none).json(), none);
    assert_eq!(
        ask(&bob, "POST", "/store/items/search", &json!({ "namespace_prefix": ["n"] })).json()["items"],
        json!([])
    );
    assert_eq!(ask(&bob, "POST", "/store/namespaces", &none).json()["namespaces"], json!([]));
    let found = ask(&bob, "POST", "/assistants/search", &json!({ "limit": 100 })).json();
    assert!(found.as_array().unwrap().iter().all(|one| one["assistant_id"] != assistant), "{found}");
    assert_eq!(
        ask(&bob, "DELETE", &format!("/threads/{thread}"), &none).status,
        204,
        "of his own there is none"
    );
    let still = ask(&ann, "GET", &format!("/threads/{thread}"), &none).json();
    assert_eq!((&still["metadata"]["of"], &still["status"]), (&json!("ann"), &json!("idle")), "{still}");
}

/// Whether any file below a folder has these bytes in it.
fn any_file_has(folder: &std::path::Path, bytes: &[u8]) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find_map(|path| match path.is_dir() && !path.is_symlink() {
        true => any_file_has(&path, bytes),
        false => {
            let found =
                std::fs::read(&path).is_ok_and(|all| all.windows(bytes.len()).any(|some| some == bytes));
            found.then_some(path)
        }
    })
}

#[test]
fn a_key_is_in_no_file_no_event_no_sandbox_and_no_answer() {
    let model = model();
    let server = server(&model);
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let (own, of_run) = ("sk-anns-own-secret-0123456789", "sk-of-one-run-9876543210");
    // The owner's model is where the server's is, so that its key may go there.
    let base_url = format!("{}/v1", model.url);
    let put = json!({ "base_url": base_url, "api_key": own }).to_string();
    assert_eq!(server.ask_as(&ann, "PUT", "/settings", &put).status, 200);
    let made = server.ask_as(&ann, "POST", "/threads", "{}").json();
    let thread = format!("/threads/{}", made["thread_id"].as_str().unwrap());
    let mut answers = String::new();
    for configurable in [json!({}), json!({ "api_key": of_run })] {
        let input = json!({ "messages": [{ "role": "user", "content": "show me the environment" }] });
        let run =
            json!({ "assistant_id": "agent", "input": input, "config": { "configurable": configurable } });
        let ran = server.ask_as(&ann, "POST", &format!("{thread}/runs/wait"), &run.to_string());
        let values = ran.json();
        let end =
            &values["messages"].as_array().unwrap_or_else(|| panic!("{values}")).last().unwrap()["content"];
        assert_eq!(end, "There is no key.");
        answers += &values.to_string();
    }
    for path in ["/state", "/history", "/runs", ""] {
        answers += &server.ask_as(&ann, "GET", &format!("{thread}{path}"), "").json().to_string();
    }
    for path in ["/api/v1/audit?limit=100", "/api/v1/audit/export", "/settings"] {
        answers += &String::from_utf8_lossy(&server.ask("GET", path, "").body);
    }
    let of_server = std::fs::read_to_string(model.key.path()).unwrap();
    for key in [own, of_run, &of_server] {
        assert!(!answers.contains(key), "{key}: {answers}");
        // The database, its journal, the volumes and what commands printed.
        assert_eq!(any_file_has(server._folder.path(), key.as_bytes()), None, "{key}");
    }
}

#[test]
fn a_key_is_never_shown_again() {
    let model = model();
    let server = server(&model);
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let before = server.ask_as(&ann, "GET", "/settings", "").json();
    assert_eq!((&before["model"], &before["api_key"]), (&json!("gpt-4o"), &json!("")), "{before}");
    assert_eq!(before["api_key_hint"], Value::Null, "the server's key has no hint");
    let secret = "sk-anns-own-secret-wxyz";
    let put = json!({ "model": "gpt-4o-mini", "provider": "openai", "api_key": secret }).to_string();
    let after = server.ask_as(&ann, "PUT", "/settings", &put);
    assert_eq!(after.status, 200, "{}", String::from_utf8_lossy(&after.body));
    let text = String::from_utf8_lossy(&after.body).into_owned();
    assert!(!text.contains(secret) && text.contains("wxyz"), "{text}");
    let trail = server.get("/api/v1/audit?limit=100").to_string();
    assert!(!trail.contains(secret), "{trail}");
    let private = json!({ "base_url": "http://127.0.0.1:9/v1", "api_key": secret }).to_string();
    assert_eq!(server.ask_as(&ann, "PUT", "/settings", &private).status, 422, "a private address");
    let other = server.key(r#"{"name":"b","owner":"bob","scope":"user"}"#);
    assert_eq!(
        server.ask_as(&other, "GET", "/settings", "").json()["model"],
        "gpt-4o",
        "settings are an owner's"
    );
}
