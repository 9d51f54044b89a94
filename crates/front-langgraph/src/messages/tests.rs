use super::*;
use atoll_types::conversation::{Block, Message, Role, ToolCallStatus};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(value: Value) -> Message {
    read_message(&value, "input.messages[0]").unwrap()
}

#[test]
fn roles_and_types_are_the_same_words() {
    for (value, role) in [
        (json!({ "role": "user", "content": "x" }), Role::User),
        (json!({ "type": "human", "content": "x" }), Role::User),
        (json!({ "role": "assistant", "content": "x" }), Role::Assistant),
        (json!({ "type": "AIMessageChunk", "content": "x" }), Role::Assistant),
        (json!({ "role": "developer", "content": "x" }), Role::System),
        (json!(["user", "x"]), Role::User),
        (json!("x"), Role::User),
        (
            json!({ "lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"],
                    "kwargs": { "content": "x" } }),
            Role::User,
        ),
    ] {
        let message = read(value.clone());
        assert_eq!((message.role, message.plain_text().as_str()), (role, "x"), "{value}");
    }
}

#[test]
fn pictures_of_every_spelling_are_pictures() {
    let png = Block::Image { mime: "image/png".into(), data: "AAAA".into() };
    for block in [
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }),
        json!({ "type": "image_url", "image_url": "data:image/png;base64,AAAA" }),
        json!({ "type": "image", "source_type": "base64", "mime_type": "image/png", "data": "AAAA" }),
        json!({ "type": "image", "mimeType": "image/png", "data": "AAAA", "metadata": { "name": "x.png" } }),
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } }),
    ] {
        let message = read(json!({ "role": "user", "content": [{ "type": "text", "text": "see" }, block] }));
        assert_eq!(message.content[1], png, "{block}");
    }
    let far =
        read(json!({ "role": "user", "content": [{ "type": "image", "url": "https://x.example/a.png" }] }));
    assert_eq!(far.content, [Block::ImageUrl { url: "https://x.example/a.png".into() }]);
    let file = json!({ "type": "file", "mimeType": "application/pdf", "data": "AAAA" });
    let kept = read(json!({ "role": "user", "content": [file] }));
    assert_eq!(write_message(&kept)["content"][0], file, "it is kept as it came");
}

#[test]
fn a_mistake_is_named_by_its_place() {
    for (value, field) in [
        (json!([{ "content": "x" }]), "input.messages[0].type"),
        (json!([{ "role": "robot", "content": "x" }]), "input.messages[0].type"),
        (json!(["ok", 3]), "input.messages[1]"),
        (json!([{ "role": "user", "content": 3 }]), "input.messages[0].content"),
        (json!([{ "role": "user", "content": [{ "text": "x" }] }]), "input.messages[0].content[0]"),
        (json!([{ "role": "user", "content": "x", "id": 7 }]), "input.messages[0].id"),
        (json!([{ "role": "user", "content": "x", "id": "" }]), "input.messages[0].id"),
        (json!([{ "role": "tool", "content": "x" }]), "input.messages[0].tool_call_id"),
        (json!([["tool", "x"]]), "input.messages[0].tool_call_id"),
    ] {
        let error = read_list(&value, "input.messages").unwrap_err();
        assert_eq!(error.field.as_deref(), Some(field), "{value}");
    }
}

#[test]
fn a_message_of_a_model_is_read_as_it_is_written() {
    let value = json!({
        "type": "ai", "id": "m1", "content": [
            { "type": "reasoning", "reasoning": "hm", "extras": { "signature": "s" } },
            { "type": "text", "text": "I run it." },
        ],
        "tool_calls": [{ "name": "execute_code", "args": { "code": "1" }, "id": "call_1", "type": "tool_call" }],
    });
    let message = read(value);
    assert_eq!(message.tool_calls().count(), 1);
    assert_eq!(read(write_message(&message)), message);
    insta::assert_snapshot!(format!("{:#}", write_message(&message)));
    insta::assert_snapshot!("the_same_in_protocol_v2", format!("{:#}", write_v2(&message)));
}

#[test]
fn a_result_of_a_tool_is_a_message_of_its_own() {
    let value = json!({ "type": "tool", "id": "t1", "tool_call_id": "call_1", "name": "execute_code",
                        "status": "error", "content": "no" });
    let message = read(value);
    let result = message.tool_result().unwrap();
    assert_eq!((result.call.as_str(), result.status), ("call_1", ToolCallStatus::Error));
    insta::assert_snapshot!(format!("{:#}", write_message(&message)));
}

#[test]
fn calls_in_the_form_of_openai_are_calls() {
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } });
    let message = read(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
    assert_eq!(message.tool_calls().next().unwrap().arguments, json!({ "a": 1 }));
    let broken = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a" } });
    let written = write_message(&read(json!({ "role": "assistant", "content": "", "tool_calls": [broken] })));
    assert_eq!(written["tool_calls"], json!([]));
    assert_eq!(written["invalid_tool_calls"][0]["args"], "{\"a");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(type|role|text|human|ai|tool|image|content|\\PC{0,8})".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let name = "(type|role|id|content|tool_calls|source|image_url|text|name|args|function|kwargs)";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    /// No JSON makes the reader fail otherwise than by an error, and what was read is read again as the same.
    #[test]
    fn any_json_is_a_message_or_a_mistake(value in any_json()) {
        if let Ok(message) = read_message(&value, "m") {
            let again = read_message(&write_message(&message), "m").unwrap();
            prop_assert_eq!(again.role, message.role);
            prop_assert_eq!(&again.id, &message.id);
            prop_assert_eq!(again.plain_text(), message.plain_text());
        }
    }
}
