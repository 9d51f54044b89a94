//! The same conversation by every wire form of a provider.

use super::{seeing_model, server_of, thinking_model};
use crate::control_plane::Server;
use serde_json::{Value, json};

fn say(server: &Server, said: &str) -> Value {
    let input = json!({ "messages": [{ "role": "user", "content": said }] });
    let body = json!({ "assistant_id": "agent", "input": input }).to_string();
    server.ask("POST", "/runs/wait", &body).json()
}

#[test]
fn a_conversation_is_the_same_by_every_providers_protocol() {
    let model = seeing_model();
    for (provider, name, below) in [
        ("openai", "gpt-4o", "/v1"),
        ("openai_responses", "gpt-4o", "/v1"),
        ("anthropic", "claude-sonnet-4", "/v1"),
        ("google_genai", "gemini-2.5-flash", "/v1beta"),
        ("ollama", "llama3.2-vision", ""),
    ] {
        let server = server_of(&model, provider, name, below);
        let values = say(&server, "the answer?");
        assert!(values["__error__"].is_null(), "{provider}: {values}");
        let messages = values["messages"].as_array().unwrap();
        let kinds: Vec<_> = messages.iter().map(|message| message["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["human", "ai", "tool", "ai", "tool", "ai"], "{provider}: {values}");
        assert!(messages[4]["content"].as_str().unwrap().contains("42"), "{provider}: {values}");
        let text = messages[5]["content"].as_str().unwrap();
        assert_eq!(text, "The command printed 42, so the answer is 42.", "{provider}");
        let drawn = say(&server, "draw it");
        assert_eq!(drawn["messages"][5]["content"], "I see it.", "{provider}: {drawn}");
    }
}

/// The provider asks for thinking and refuses a request whose thoughts are left out, unsigned or changed.
#[test]
fn signed_thoughts_go_back_as_they_came() {
    let model = thinking_model();
    let server = server_of(&model, "anthropic", "claude-sonnet-4", "/v1");
    let thread =
        format!("/threads/{}", server.ask("POST", "/threads", "{}").json()["thread_id"].as_str().unwrap());
    for said in ["think first", "think first again"] {
        let input = json!({ "messages": [{ "role": "user", "content": said }] });
        let body = json!({ "assistant_id": "agent", "input": input }).to_string();
        let values = server.ask("POST", &format!("{thread}/runs/wait"), &body).json();
        assert!(values["__error__"].is_null(), "{values}");
        let messages = values["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["content"], "I thought of it.", "{values}");
        let thought = messages[1]["content"].as_array().unwrap_or_else(|| panic!("{values}"));
        assert!(thought[0].to_string().contains("Six times seven."), "{thought:?}");
        assert!(thought[0].to_string().contains("a-signature-of-this-thought"), "{thought:?}");
    }
}
