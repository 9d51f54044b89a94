//! Reading messages of clients.

use super::blocks::{call, read_block};
use atoll_types::{
    Error, Result,
    conversation::{Block, LONGEST_MESSAGE_ID, Message, Metadata, Role, ToolCallStatus, ToolResult},
};
use serde_json::Value;
use uuid::Uuid;

/// The messages of an input: a list, or one.
pub(crate) fn read_list(value: &Value, place: &str) -> Result<Vec<Message>> {
    match value {
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, one)| read_message(one, &format!("{place}[{at}]"))).collect()
        }
        Value::Null => Ok(Vec::new()),
        one => Ok(vec![read_message(one, place)?]),
    }
}

fn role(name: &str, place: &str) -> Result<Role> {
    Ok(match name {
        "human" | "user" | "HumanMessage" | "HumanMessageChunk" => Role::User,
        "ai" | "assistant" | "AIMessage" | "AIMessageChunk" => Role::Assistant,
        "system" | "developer" | "SystemMessage" => Role::System,
        "tool" | "ToolMessage" => Role::Tool,
        _ => {
            let message = "expected one of human, ai, system and tool";
            return Err(Error::invalid(format!("{place}.type"), message));
        }
    })
}

/// A message: an object, a pair of role and text, or the text of a person.
pub(crate) fn read_message(value: &Value, place: &str) -> Result<Message> {
    match value {
        Value::String(text) => Ok(Message::text(fresh_id(), Role::User, text.clone())),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(name), content] => match role(name, place)? {
                Role::Tool => Err(without_call(place)),
                role => Ok(Message::new(fresh_id(), role, content_of(content, place)?)),
            },
            _ => Err(Error::invalid(place, "a message as a list is a role and a content")),
        },
        Value::Object(fields) => read_object(fields, place),
        _ => Err(Error::invalid(place, "a message is an object or a text")),
    }
}

fn without_call(place: &str) -> Error {
    Error::invalid(format!("{place}.tool_call_id"), "a tool's message names its call")
}

fn fresh_id() -> String {
    Uuid::new_v4().hyphenated().to_string()
}

fn id_of(fields: &Metadata, place: &str) -> Result<String> {
    match fields.get("id") {
        None | Some(Value::Null) => Ok(fresh_id()),
        Some(Value::String(id)) if (1..=LONGEST_MESSAGE_ID).contains(&id.len()) => Ok(id.clone()),
        Some(_) => {
            let message = format!("a message's id is a text of 1 to {LONGEST_MESSAGE_ID} bytes");
            Err(Error::invalid(format!("{place}.id"), message))
        }
    }
}

fn content_of(content: &Value, place: &str) -> Result<Vec<Block>> {
    let place = format!("{place}.content");
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Block::Text { text: text.clone() }]),
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, block)| read_block(block, &format!("{place}[{at}]"))).collect()
        }
        _ => Err(Error::invalid(place, "a content is a text or a list of blocks")),
    }
}

fn read_object(fields: &Metadata, place: &str) -> Result<Message> {
    let named = fields.get("type").or_else(|| fields.get("role")).and_then(Value::as_str);
    // LangChain's own serialisation has the fields one level below.
    if named == Some("constructor")
        && let Some(below) = fields.get("kwargs").and_then(Value::as_object)
    {
        let class = fields.get("id").and_then(|path| path.as_array()?.last()?.as_str());
        let mut below = below.clone();
        below.insert("type".into(), class.unwrap_or_default().into());
        return read_object(&below, place);
    }
    let role = role(named.unwrap_or_default(), place)?;
    let content = content_of(fields.get("content").unwrap_or(&Value::Null), place)?;
    let mut message = Message::new(id_of(fields, place)?, role, content);
    message.name = fields.get("name").and_then(Value::as_str).map(str::to_owned);
    match role {
        Role::Assistant => add_calls(&mut message, fields),
        Role::Tool => as_result(&mut message, fields, place)?,
        Role::System | Role::User => {}
    }
    if let Some(Value::Object(kept)) = fields.get("additional_kwargs")
        && !kept.is_empty()
    {
        message.extra = kept.clone();
    }
    Ok(message)
}

/// Adds calls of tools that stand beside the content and not in it.
fn add_calls(message: &mut Message, fields: &Metadata) {
    let beside = fields.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    for call in beside.filter_map(call) {
        if !message.tool_calls().any(|known| known.id == call.id) {
            message.content.push(Block::ToolCall(call));
        }
    }
}

/// Makes the content of a tool's message the result of its call.
fn as_result(message: &mut Message, fields: &Metadata, place: &str) -> Result<()> {
    let Some(call) = fields.get("tool_call_id").and_then(Value::as_str) else {
        return Err(without_call(place));
    };
    let status = match fields.get("status").and_then(Value::as_str) {
        Some("error") => ToolCallStatus::Error,
        _ => ToolCallStatus::Success,
    };
    let result = ToolResult {
        call: call.to_owned(),
        name: message.name.take().unwrap_or_default(),
        status,
        value: fields.get("content").cloned().unwrap_or_default(),
        pictures: Vec::new(),
        sandbox: None,
        exec: None,
        cell: None,
        operations: Vec::new(),
        egress: Vec::new(),
        changed: None,
        asked: None,
        duration_ms: 0,
    };
    message.content = vec![Block::ToolResult(result)];
    Ok(())
}
