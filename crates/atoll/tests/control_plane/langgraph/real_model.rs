//! A real model, small, above llama.cpp: a provider that was not written for tests. It is too small for tools; what is seen is
//! its protocols, how it streams, and that it is cancelled. `make test` has one answer by one protocol, `make real-model` the rest.

use super::{Served, eventually, root, script, server_of};
use crate::control_plane::{Server, http};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

fn real_model() -> Served {
    let python = root().join("target/python-model/bin/python");
    assert!(python.exists(), "`make python` installs llama.cpp and the model");
    Served::start(Command::new(python).arg(script("real_model.py")).stdin(Stdio::piped()))
}

fn said(text: &str) -> String {
    let input = json!({ "messages": [{ "role": "user", "content": text }] });
    json!({ "assistant_id": "agent", "input": input, "stream_mode": ["messages-tuple", "values"] })
        .to_string()
}

fn thread(server: &Server) -> String {
    let made = server.ask("POST", "/threads", "{}").json();
    format!("/threads/{}", made["thread_id"].as_str().unwrap())
}

/// The events of a run, one after the other: their names and data.
fn events(server: &Server, thread: &str, text: &str) -> impl Iterator<Item = (String, Value)> {
    let headers = [("X-Api-Key", super::KEY)];
    let path = format!("{thread}/runs/stream");
    let coming = http::open(server.address, "POST", &path, &headers, said(text).as_bytes()).unwrap();
    assert_eq!(coming.status, 200);
    let mut name = String::new();
    BufReader::new(coming).lines().map_while(Result::ok).filter_map(move |line| {
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_owned();
        }
        let data = line.strip_prefix("data: ").filter(|data| !data.is_empty())?;
        Some((name.clone(), serde_json::from_str(data).unwrap()))
    })
}

fn text(content: &Value) -> String {
    match content.as_array() {
        Some(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        None => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// Some turns: each answer comes in pieces that make it, and is counted.
fn converses(model: &Served, provider: &str, below: &str, turns: usize) {
    let server = server_of(model, provider, "smollm2", below);
    let thread = thread(&server);
    for (turn, words) in ["Say hello.", "What did I ask you to say?"].into_iter().take(turns).enumerate() {
        let (mut pieces, mut state) = (Vec::new(), Value::Null);
        for (name, data) in events(&server, &thread, words) {
            assert_ne!(name, "error", "{provider}: {data}");
            match name.as_str() {
                "messages" if data[0]["type"] == "AIMessageChunk" => pieces.push(text(&data[0]["content"])),
                "values" => state = data,
                _ => {}
            }
        }
        let messages = state["messages"].as_array().unwrap_or_else(|| panic!("{provider}: {state}"));
        assert_eq!(messages.len(), 2 * (turn + 1), "{provider}: {state}");
        let answer = messages.last().unwrap();
        let whole = text(&answer["content"]);
        assert!(!whole.trim().is_empty() && pieces.concat() == whole, "{provider}: {pieces:?}: {answer}");
        assert!(pieces.iter().filter(|piece| !piece.is_empty()).count() > 1, "{provider}: {pieces:?}");
        assert!(answer["usage_metadata"]["output_tokens"].as_u64().unwrap() > 0, "{provider}: {answer}");
    }
}

#[test]
fn a_real_model_answers() {
    let model = real_model();
    if std::env::var_os("ATOLL_REAL_MODEL").is_none() {
        return converses(&model, "openai", "/v1", 1);
    }
    for provider in ["openai", "openai_responses", "anthropic"] {
        converses(&model, provider, "/v1", 2);
    }
    // A run that is cancelled while the model speaks keeps what was said, and the model speaks again.
    let server = server_of(&model, "openai", "smollm2", "/v1");
    let thread = thread(&server);
    let mut coming = events(&server, &thread, "Tell a long story.");
    assert!(coming.any(|(name, data)| name == "messages" && data[0]["type"] == "AIMessageChunk"));
    let run = server.get(&format!("{thread}/runs"))[0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(server.ask("POST", &format!("{thread}/runs/{run}/cancel?wait=true"), "").status, 204);
    eventually("the cancelled run", || server.get(&thread)["status"] != "busy");
    let last = events(&server, &thread, "Say hello.").filter(|(name, _)| name == "values").last().unwrap().1;
    let answer = last["messages"].as_array().unwrap().last().unwrap().clone();
    assert!(answer["type"] == "ai" && !text(&answer["content"]).is_empty(), "{last}");
}
