//! What a model may do wrong, and what it may ask for.

use super::{super::eventually, ROOT, lenient_model, model, server, waiting_sandbox};
use crate::control_plane::Server;
use serde_json::{Value, json};

/// The values after a run without a thread of one's own.
fn run(server: &Server, said: &str) -> Value {
    let input = json!({ "messages": [{ "role": "user", "content": said }] });
    let body = json!({ "assistant_id": "agent", "input": input });
    let answer = server.ask("POST", "/runs/wait", &body.to_string());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn end(values: &Value) -> &Value {
    &values["messages"].as_array().unwrap_or_else(|| panic!("{values}")).last().unwrap()["content"]
}

#[test]
fn whatever_a_model_writes_the_run_ends_and_says_why() {
    let model = lenient_model();
    let server = server(&model);
    let broken = run(&server, "broken arguments");
    assert_eq!(end(&broken), "They were broken.");
    assert_eq!(broken["messages"][1]["invalid_tool_calls"][0]["args"], "{\"code\": \"1");
    assert_eq!(broken["messages"][2]["status"], "error");
    assert_eq!(end(&run(&server, "an unknown tool")), "There is no such tool.");
    let thought = run(&server, "a call in its thoughts");
    let message = &thought["messages"][1];
    assert_eq!(message["tool_calls"], json!([]), "a call that it only thought of is none");
    assert!(message["content"].to_string().contains("I only thought of it."), "{message}");
    assert_eq!(run(&server, "megabytes")["__error__"]["error"], "answer_too_large");
    assert_eq!(run(&server, "you are cut off")["__error__"]["error"], "answer_cut");
    assert_eq!(server.get(ROOT)["items"].as_array().unwrap().len(), 0, "none of them made a session");
    // The server is as it was.
    assert_eq!(end(&run(&server, "hello")), "Hello there, person.");
}

#[test]
fn the_model_is_told_that_its_session_died() {
    let model = model();
    let server = server(&model);
    let made = server.ask("POST", "/threads", "{}").json();
    let thread = format!("/threads/{}", made["thread_id"].as_str().unwrap());
    let input = json!({ "messages": [{ "role": "user", "content": "die here" }] });
    let body = json!({ "assistant_id": "agent", "input": input }).to_string();
    assert_eq!(server.ask("POST", &format!("{thread}/runs"), &body).status, 200);
    server.kill_inside(&waiting_sandbox(&server));
    eventually("the run's end", || server.get(&thread)["status"] == "idle");
    let values = &server.get(&thread)["values"];
    assert_eq!(end(values), "It died.", "{values}");
    let result = &values["messages"][4];
    assert!(result["content"].as_str().unwrap().contains("create_session"), "the hint: {result}");
}

#[test]
fn a_wrong_request_leaves_no_thread_behind() {
    let model = model();
    let server = server(&model);
    let input = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    let unknown = "00000000-0000-4000-8000-000000000000";
    for more in [
        json!({ "checkpoint_id": unknown }),
        json!({ "config": { "configurable": { "approval": "perhaps" } } }),
        json!({ "config": { "configurable": { "max_tokens": 0 } } }),
    ] {
        let mut body = json!({ "assistant_id": "agent", "input": input });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = server.ask("POST", "/runs", &body.to_string());
        assert!([404, 422].contains(&refused.status), "{more}: {}", refused.status);
    }
    assert_eq!(server.ask("POST", "/threads/count", "{}").json(), 0);
}
