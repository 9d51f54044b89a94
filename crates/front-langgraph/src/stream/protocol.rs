//! The events of a thread by protocol v2. The agent has no graphs below it, so that every namespace is the root's.

use super::{modes::stream_name, numbered, pending::PendingMessage};
use crate::{ids, interrupts, messages, state};
use atoll_agent::{Event, EventKind};
use atoll_types::{
    Error, Result,
    conversation::{Block, Checkpoint, FinishReason, Message, Node, RunFailure, RunStatus, ToolCallStatus},
    sse,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a client wants to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    channels: Vec<String>,
    /// Whether the namespaces that are asked for have the root among them.
    root: bool,
    since: u64,
}

const CHANNELS: [&str; 9] =
    ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"];

impl Filter {
    pub(crate) fn new(channels: Vec<String>, namespaces: &[Vec<String>], since: Option<u64>) -> Result<Self> {
        let known = |name: &str| CHANNELS.contains(&name) || name.starts_with("custom:");
        if let Some(odd) = channels.iter().find(|name| !known(name)) {
            let message = format!("{:.64} is none of {}", odd.escape_debug(), CHANNELS.join(", "));
            return Err(Error::invalid("channels", message));
        }
        let root = namespaces.is_empty() || namespaces.iter().any(Vec::is_empty);
        Ok(Self { channels, root, since: since.unwrap_or(0) })
    }

    fn wants(&self, channel: &str) -> bool {
        self.root && self.channels.iter().any(|name| name == channel)
    }
}

/// An event of the protocol without its number.
struct ProtocolEvent {
    channel: &'static str,
    /// Differs from the channel for `input` alone.
    method: &'static str,
    node: Option<Node>,
    data: Value,
}

fn event(channel: &'static str, data: Value) -> ProtocolEvent {
    ProtocolEvent { channel, method: channel, node: None, data }
}

/// Renders the events of all runs of a thread.
pub(crate) struct ProtocolRenderer {
    filter: Filter,
    task: String,
    pending: Option<PendingMessage>,
}

impl ProtocolRenderer {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, task: String::new(), pending: None }
    }

    /// The text of an event; empty where the client does not want it or has it.
    pub(crate) fn feed(&mut self, from: &Event) -> String {
        let events = self.events(from);
        let mut out = String::new();
        for (at, (seq, event)) in numbered(from.seq, events.len()).zip(&events).enumerate() {
            if from.seq <= self.filter.since || !self.filter.wants(event.channel) {
                continue;
            }
            let mut params = json!({ "namespace": [], "timestamp": from.at, "data": event.data });
            if let Some(node) = event.node {
                params["node"] = node.as_str().into();
            }
            let whole = json!({
                "type": "event", "seq": seq, "event_id": format!("{}-{at}", from.seq), "method": event.method,
                "params": params,
            });
            sse::write(&mut out, Some(seq), Some(event.method), |out| out.push_str(&whole.to_string()));
        }
        out
    }

    fn events(&mut self, from: &Event) -> Vec<ProtocolEvent> {
        let run = ids::hyphenated(from.run.uuid());
        match &from.kind {
            EventKind::Started { .. } => {
                self.pending = None;
                vec![event("lifecycle", json!({ "event": "running", "graph_name": "agent" }))]
            }
            EventKind::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            EventKind::NodeStarted { node, .. } => vec![event(
                "tasks",
                json!({
                    "id": self.task, "name": node, "triggers": [format!("branch:to:{node}")], "interrupts": [],
                }),
            )],
            EventKind::NodeFinished { node, messages, .. } => self.node_finished(*node, messages),
            EventKind::MessageStarted { message, model, step } => {
                self.pending = Some(PendingMessage::new(message, model, *step));
                let metadata = json!({ "model": model, "langgraph_node": Node::Agent, "run_id": run });
                let data = json!({ "event": "message-start", "id": message, "role": "ai", "run_id": run, "metadata": metadata });
                vec![event("messages", data)]
            }
            EventKind::Text { block, text, .. } => self.text(&run, *block, text),
            EventKind::Reasoning { block, text, .. } => self.reasoning(&run, *block, text),
            EventKind::ToolCallDelta { block, index, id, name, arguments, .. } => {
                self.tool_call(&run, *block, *index, (id.as_deref(), name.as_deref()), arguments)
            }
            EventKind::MessageFinished { message, .. } => {
                self.pending = None;
                message_finished(&run, message)
            }
            EventKind::ToolStarted { call } => vec![event(
                "tools",
                json!({
                    "event": "tool-started", "tool_call_id": call.id, "tool_name": call.name, "input": call.arguments,
                }),
            )],
            EventKind::ToolOutput { call, stream, text } => vec![event(
                "tools",
                json!({
                    "event": "tool-output-delta", "tool_call_id": call, "delta": text, "stream": stream_name(*stream),
                }),
            )],
            EventKind::ToolFinished { message } => tool_finished(message),
            EventKind::Interrupted { .. } | EventKind::Missed => Vec::new(),
            EventKind::Finished { status, failure, .. } => vec![ended(*status, failure.as_ref())],
        }
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Vec<ProtocolEvent> {
        let Checkpoint { id, parent, step, source, state: conversation, .. } = checkpoint;
        self.task = ids::hyphenated(id.uuid());
        let mut summary = json!({ "id": self.task, "step": step, "source": source });
        if let Some(parent) = parent {
            summary["parent_id"] = ids::hyphenated(parent.uuid()).into();
        }
        let mut values = state::values(conversation);
        values["messages"] =
            conversation.messages.iter().map(|message| messages::write_v2(message)).collect();
        let mut events = vec![event("checkpoints", summary), event("values", values)];
        if let Some(interrupt) = interrupts::write(&checkpoint.interrupts) {
            let data = json!({
                "interrupt_id": interrupt["id"], "payload": interrupt["value"], "value": interrupt["value"],
            });
            events.push(ProtocolEvent { channel: "input", method: "input.requested", node: None, data });
        }
        events
    }

    fn node_finished(&self, node: Node, added: &[Arc<Message>]) -> Vec<ProtocolEvent> {
        let added: Vec<_> = added.iter().map(|message| messages::write_v2(message)).collect();
        let result = json!({ "messages": added });
        let task = json!({ "id": self.task, "name": node, "result": result, "interrupts": [] });
        vec![event("tasks", task), ProtocolEvent { node: Some(node), ..event("updates", result) }]
    }

    fn delta(&self, run: &str, at: usize, first: Option<Value>, delta: Value) -> Vec<ProtocolEvent> {
        let id = self.pending.as_ref().map(|pending| pending.id.as_str());
        let data = |name: &str, field: &str, value: Value| {
            event(
                "messages",
                json!({ "event": name, "message_id": id, "index": at, field: value, "run_id": run }),
            )
        };
        let begins = first.map(|content| data("content-block-start", "content", content));
        begins.into_iter().chain([data("content-block-delta", "delta", delta)]).collect()
    }

    fn text(&mut self, run: &str, block: usize, text: &str) -> Vec<ProtocolEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let grown = pending.text(block, text);
        let first = grown.first.then(|| json!({ "type": "text", "text": "" }));
        self.delta(run, grown.at, first, json!({ "type": "text-delta", "text": text }))
    }

    fn reasoning(&mut self, run: &str, block: usize, text: &str) -> Vec<ProtocolEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let grown = pending.reasoning(block, text);
        let first = grown.first.then(|| json!({ "type": "reasoning", "reasoning": "" }));
        self.delta(run, grown.at, first, json!({ "type": "reasoning-delta", "reasoning": text }))
    }

    /// The arguments come whole each time, as far as they are known; of long ones not with every piece.
    fn tool_call(
        &mut self,
        run: &str,
        block: usize,
        index: usize,
        (id, name): (Option<&str>, Option<&str>),
        arguments: &str,
    ) -> Vec<ProtocolEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let grown = pending.call(block, index, id, name, arguments);
        if !grown.first && !pending.is_due() {
            return Vec::new();
        }
        let Some((index, id, name, arguments)) = pending.call_at(grown.at) else { return Vec::new() };
        let chunk =
            |arguments: &str| json!({ "type": "tool_call_chunk", "id": id, "name": name, "args": arguments });
        let first = grown.first.then(|| {
            let mut empty = chunk("");
            empty["index"] = index.into();
            empty
        });
        let delta = json!({ "type": "block-delta", "fields": chunk(arguments) });
        self.delta(run, grown.at, first, delta)
    }
}

/// Each block whole, and the end of the message.
fn message_finished(run: &str, message: &Message) -> Vec<ProtocolEvent> {
    let written = messages::write_v2(message);
    let blocks = written["content"].as_array().cloned().unwrap_or_default();
    let block = |(index, content): (usize, Value)| {
        event(
            "messages",
            json!({
                "event": "content-block-finish", "message_id": message.id, "index": index, "content": content, "run_id": run,
            }),
        )
    };
    let reason = match message.finish {
        Some(FinishReason::ToolCalls) => "tool_use",
        Some(FinishReason::Length) => "length",
        Some(FinishReason::ContentFilter) => "content_filter",
        _ if message.content.iter().any(|block| matches!(block, Block::ToolCall(_))) => "tool_use",
        _ => "stop",
    };
    let mut end = json!({
        "event": "message-finish", "message_id": message.id, "reason": reason, "run_id": run,
        "responseMetadata": written["response_metadata"],
    });
    if let Some(usage) = message.usage {
        end["usage"] = messages::usage_metadata(usage);
    }
    blocks.into_iter().enumerate().map(block).chain([event("messages", end)]).collect()
}

fn tool_finished(message: &Message) -> Vec<ProtocolEvent> {
    let Some(result) = message.tool_result() else { return Vec::new() };
    let output = messages::write_message(message);
    vec![event(
        "tools",
        match result.status {
            ToolCallStatus::Success => {
                json!({ "event": "tool-finished", "tool_call_id": result.call, "output": output })
            }
            ToolCallStatus::Error => {
                json!({ "event": "tool-error", "tool_call_id": result.call, "message": output["content"] })
            }
        },
    )]
}

fn ended(status: RunStatus, failure: Option<&RunFailure>) -> ProtocolEvent {
    let name = match (failure, status) {
        (Some(_), _) | (None, RunStatus::Error | RunStatus::Timeout) => "failed",
        (None, RunStatus::Interrupted) => "interrupted",
        (None, _) => "completed",
    };
    let mut data = json!({ "event": name, "graph_name": "agent" });
    if let Some(failure) = failure {
        data["error"] = failure.message.as_str().into();
        data["code"] = failure.code.as_str().into();
    }
    event("lifecycle", data)
}
