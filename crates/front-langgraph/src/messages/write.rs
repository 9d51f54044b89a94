//! Writing messages for clients.

use super::blocks::write_block;
use atoll_types::conversation::{Block, Message, Metadata, Role, TokenUsage, ToolCall, ToolResult};
use serde_json::{Value, json};
use std::sync::Arc;

/// Messages in their order.
pub(crate) fn write_list(messages: &[Arc<Message>]) -> Value {
    messages.iter().map(|message| write_message(message)).collect()
}

/// A text where the message has only texts, and blocks otherwise.
fn content(message: &Message) -> Value {
    if message.content.iter().all(|block| matches!(block, Block::Text { .. } | Block::ToolCall(_))) {
        return message.plain_text().into();
    }
    message.content.iter().filter_map(write_block).collect()
}

/// What the agent adds to a message for people who want to know what happened: which command or cell a tool ran, in
/// which sandbox, the files that it changed, the ids of its operations and the rows of its network decisions in the audit trail, and what the model
/// had asked for where a person changed that.
fn facts(result: &ToolResult) -> Value {
    let ToolResult { sandbox, exec, cell, operations, egress, changed, asked, duration_ms, .. } = result;
    let mut facts = Metadata::new();
    facts.extend(sandbox.map(|id| ("sandbox_id".to_owned(), id.to_string().into())));
    facts.extend(exec.map(|id| ("exec_id".to_owned(), id.to_string().into())));
    facts.extend(cell.map(|id| ("cell_id".to_owned(), id.to_string().into())));
    if !operations.is_empty() {
        facts.insert("operation_ids".into(), operations.iter().map(|id| id.uuid().to_string()).collect());
    }
    if !egress.is_empty() {
        facts.insert("egress_rows".into(), egress.clone().into());
    }
    let changed = changed.as_ref().filter(|changed| !changed.files.is_empty());
    facts.extend(changed.map(|changed| ("files_changed".to_owned(), json!(changed.files))));
    facts.extend(asked.as_ref().map(|call| {
        // Arguments that were no JSON object are shown as they came.
        let args = call.broken.clone().map_or_else(|| call.arguments.clone(), Value::from);
        ("asked".to_owned(), json!({ "name": call.name, "args": args }))
    }));
    facts.insert("duration_ms".into(), (*duration_ms).into());
    Value::Object(facts)
}

/// A call of a tool whose arguments are JSON.
fn tool_call(call: &ToolCall) -> Value {
    json!({ "name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call" })
}

fn broken_call(call: &ToolCall) -> Value {
    json!({
        "name": call.name, "args": call.broken, "id": call.id, "error": "the arguments are no JSON object",
        "type": "invalid_tool_call",
    })
}

/// What a message cost.
pub(crate) fn usage_metadata(usage: TokenUsage) -> Value {
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.total(),
        "input_token_details": { "cache_read": usage.cached },
        "output_token_details": { "reasoning": usage.reasoning },
    })
}

fn response_metadata(message: &Message) -> Value {
    let mut known = Metadata::new();
    known.extend(message.model.as_ref().map(|model| ("model_name".to_owned(), model.as_str().into())));
    known.extend(message.finish.map(|why| ("finish_reason".to_owned(), why.as_str().into())));
    Value::Object(known)
}

fn result_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A message.
pub(crate) fn write_message(message: &Message) -> Value {
    let Message { id, role, name, usage, extra, .. } = message;
    let mut written = json!({
        "content": content(message), "additional_kwargs": extra, "response_metadata": response_metadata(message),
        "id": id, "name": name,
    });
    match role {
        Role::User => written["type"] = "human".into(),
        Role::System => written["type"] = "system".into(),
        Role::Assistant => {
            written["type"] = "ai".into();
            let valid = message.tool_calls().filter(|call| call.broken.is_none());
            written["tool_calls"] = valid.map(tool_call).collect();
            let broken = message.tool_calls().filter(|call| call.broken.is_some());
            written["invalid_tool_calls"] = broken.map(broken_call).collect();
            written["usage_metadata"] = usage.map_or(Value::Null, usage_metadata);
        }
        Role::Tool => {
            written["type"] = "tool".into();
            if let Some(result) = message.tool_result() {
                written["content"] = result_text(&result.value).into();
                written["tool_call_id"] = result.call.as_str().into();
                written["name"] = result.name.as_str().into();
                written["status"] = result.status.as_str().into();
                written["additional_kwargs"]["atoll"] = facts(result);
                written["artifact"] = pictures(result);
            }
        }
    }
    written
}

/// What a tool showed the person, beside the result that the model got.
fn pictures(result: &ToolResult) -> Value {
    if result.pictures.is_empty() {
        return Value::Null;
    }
    let picture = |p: &atoll_types::conversation::ToolPicture| json!({ "type": p.mime, "data": p.data });
    json!({ "display_outputs": result.pictures.iter().map(picture).collect::<Vec<_>>() })
}

/// A piece of a message that a model is writing.
pub(crate) fn write_chunk(id: &str, content: Value, tool_call_chunks: Value) -> Value {
    json!({
        "content": content, "additional_kwargs": {}, "response_metadata": {}, "id": id, "name": null,
        "type": "AIMessageChunk", "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null,
        "tool_call_chunks": tool_call_chunks,
    })
}

/// A message in the form of protocol v2: the content of a model is always blocks, calls of tools among them.
pub(crate) fn write_v2(message: &Message) -> Value {
    let mut written = write_message(message);
    if message.role == Role::Assistant {
        let block = |block: &Block| match block {
            Block::ToolCall(call) if call.broken.is_none() => Some(tool_call(call)),
            Block::ToolCall(call) => Some(broken_call(call)),
            other => write_block(other),
        };
        written["content"] = message.content.iter().filter_map(block).collect();
        written["response_metadata"]["output_version"] = "v1".into();
    }
    written
}
