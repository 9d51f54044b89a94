//! What a model may do wrong, and what it may ask for.

use super::{super::eventually, ROOT, lenient_model, model, server, waiting_sandbox};
use crate::control_plane::Server;
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
    thread::JoinHandle,
};

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

/// A provider that sends the beginning of a response and then a piece of it without end. It says at the end whether it was
/// cut off before it had sent 96 MiB.
fn endless(begin: String, piece: String) -> (String, JoinHandle<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let sent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(format!("HTTP/1.1 {begin}").as_bytes()).unwrap();
        (0..(96 << 20) / piece.len()).any(|_| stream.write_all(piece.as_bytes()).is_err())
    });
    (url, sent)
}

/// A server without a model, whose owners may name one on this machine.
fn server_for_own_models() -> Server {
    Server::start_configured("[agent]\nallowed_addresses = [\"127.0.0.1\"]\n", &[])
}

/// The values after a run that names its model's place.
fn run_at(server: &Server, provider: &str, url: &str) -> Value {
    let place =
        json!({ "model": "m", "model_provider": provider, "base_url": url, "api_key": "sk-of-a-test" });
    let input = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    let body = json!({ "assistant_id": "agent", "input": input, "config": { "configurable": place } });
    server.ask("POST", "/runs/wait", &body.to_string()).json()
}

#[test]
fn an_owners_model_is_at_a_public_address_or_a_listed_one() {
    let model = model();
    let server = server_for_own_models();
    let listed = run_at(&server, "openai", &format!("{}/v1", model.url));
    assert_eq!(end(&listed), "Hello there, person.", "{listed}");
    let private = "http://127.0.0.2:9/v1";
    let refused = run_at(&server, "openai", private);
    assert_eq!(refused["__error__"]["error"], "base_url_refused", "{refused}");
    let put = |body: Value| server.ask("PUT", "/settings", &body.to_string()).status;
    assert_eq!(
        put(json!({ "base_url": private, "api_key": "sk-of-a-test" })),
        422,
        "before there is a model"
    );
    assert_eq!(put(json!({ "base_url": model.url, "api_key": "sk-of-a-test" })), 200);
}

#[test]
fn a_response_without_end_is_cut_off() {
    let server = server_for_own_models();
    let long = "x".repeat(1 << 16);
    let events = "200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let thinks = json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "" } });
    let signature = json!({ "type": "signature_delta", "signature": long });
    let signs = json!({ "type": "content_block_delta", "index": 0, "delta": signature });
    for (provider, begin, piece, error) in [
        ("openai", "400 Bad Request\r\n\r\n".into(), long.clone(), "request_refused"),
        ("openai", format!("{events}data: "), long, "answer_too_large"),
        (
            "anthropic",
            format!("{events}event: content_block_start\ndata: {thinks}\n\n"),
            format!("event: content_block_delta\ndata: {signs}\n\n"),
            "answer_too_large",
        ),
    ] {
        let (url, sent) = endless(begin, piece);
        let answer = run_at(&server, provider, &url);
        assert_eq!(answer["__error__"]["error"], error, "{answer}");
        assert!(sent.join().unwrap(), "{provider} {error}");
    }
}
