//! The mode `events`: what the model, the tools and the nodes do, in the form of LangChain's `astream_events`. CopilotKit's runtime
//! asks for it.

use super::{WireEvent, modes::RunRenderer, modes::stream_name};
use crate::messages;
use atoll_agent::{Event, EventKind};
use atoll_types::conversation::Node;
use serde_json::{Value, json};

/// One of them: what happened, to what, with the id of that.
fn happened((event, name, id): (&str, &str, &str), metadata: Value, data: Value) -> WireEvent {
    let whole = json!({
        "event": event, "name": name, "run_id": id, "tags": [], "parent_ids": [], "metadata": metadata, "data": data,
    });
    WireEvent::new("events", whole)
}

impl RunRenderer {
    /// The events of an event; one at most.
    pub(super) fn runnable_event(&self, event: &Event) -> Option<WireEvent> {
        let of_node = |node: Node, event: &str, data: Value| {
            happened((event, node.as_str(), self.task()), self.metadata(node), data)
        };
        let of_model = |message: &str, event: &str, data: Value| {
            happened((event, "model", message), self.metadata(Node::Agent), data)
        };
        let piece = |message: &str, content: Value, calls: Value| {
            let data = json!({ "chunk": messages::write_chunk(message, content, calls) });
            of_model(message, "on_chat_model_stream", data)
        };
        let of_tool =
            |what: (&str, &str, &str), data: Value| happened(what, self.metadata(Node::Tools), data);
        Some(match &event.kind {
            EventKind::NodeStarted { node, .. } => of_node(*node, "on_chain_start", json!({})),
            EventKind::NodeFinished { node, messages, .. } => {
                let output = json!({ "messages": messages::write_list(messages) });
                of_node(*node, "on_chain_end", json!({ "output": output }))
            }
            EventKind::MessageStarted { message, .. } => of_model(message, "on_chat_model_start", json!({})),
            EventKind::Text { message, text, .. } => piece(message, text.as_str().into(), json!([])),
            EventKind::Reasoning { message, block, text } => {
                let thought = json!([{ "type": "reasoning", "reasoning": text, "index": block }]);
                piece(message, thought, json!([]))
            }
            EventKind::ToolCallDelta { message, index, id, name, arguments, .. } => {
                let call = json!({
                    "name": name, "args": arguments, "id": id, "index": index, "type": "tool_call_chunk",
                });
                piece(message, "".into(), json!([call]))
            }
            EventKind::MessageFinished { message, .. } => {
                let output = messages::write_message(message);
                of_model(&message.id, "on_chat_model_end", json!({ "output": output }))
            }
            EventKind::ToolStarted { call } => {
                of_tool(("on_tool_start", &call.name, &call.id), json!({ "input": call.arguments }))
            }
            EventKind::ToolOutput { call, stream, text } => {
                let printed = json!({ "tool_call_id": call, "stream": stream_name(*stream), "text": text });
                of_tool(("on_custom_event", "tool_output", call), printed)
            }
            EventKind::ToolFinished { message } => {
                let result = message.tool_result()?;
                let data =
                    json!({ "input": self.input(&result.call), "output": messages::write_message(message) });
                of_tool(("on_tool_end", &result.name, &result.call), data)
            }
            EventKind::Started { .. }
            | EventKind::Checkpoint(_)
            | EventKind::Interrupted { .. }
            | EventKind::Finished { .. }
            | EventKind::Missed => return None,
        })
    }
}
