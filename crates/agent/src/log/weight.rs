//! How many bytes events are in memory. A message that several events share is counted once: a checkpoint has all messages of
//! its conversation, and shares them with the one before it.

use super::{Event, EventKind};
use atoll_types::conversation::{Block, Message, ToolCall, ToolResult};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};

/// About what a value of JSON has beside its text.
const PER_VALUE: usize = 32;

/// What a log holds.
#[derive(Default)]
pub(super) struct Held {
    /// How many events hold a message, by its address, and how large it is.
    messages: HashMap<usize, (usize, usize)>,
    bytes: usize,
}

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, kind: &EventKind) {
        self.bytes += own(kind);
        for message in messages(kind) {
            let address = Arc::as_ptr(message) as usize;
            let (holders, _) = self.messages.entry(address).or_insert_with(|| {
                let size = of_message(message);
                self.bytes += size;
                (0, size)
            });
            *holders += 1;
        }
    }

    pub(super) fn remove(&mut self, kind: &EventKind) {
        self.bytes -= own(kind);
        for message in messages(kind) {
            let address = Arc::as_ptr(message) as usize;
            if let Some((holders, size)) = self.messages.get_mut(&address) {
                *holders -= 1;
                if *holders == 0 {
                    self.bytes -= *size;
                    self.messages.remove(&address);
                }
            }
        }
    }
}

/// The messages that an event shares with others.
fn messages(kind: &EventKind) -> &[Arc<Message>] {
    match kind {
        EventKind::Checkpoint(checkpoint) => &checkpoint.state.messages,
        EventKind::NodeFinished { messages, .. } => messages,
        EventKind::MessageFinished { message, .. } | EventKind::ToolFinished { message } => {
            std::slice::from_ref(message)
        }
        _ => &[],
    }
}

/// What an event has of its own.
fn own(kind: &EventKind) -> usize {
    let own = match kind {
        EventKind::Text { text, .. }
        | EventKind::Reasoning { text, .. }
        | EventKind::ToolOutput { text, .. } => text.len(),
        EventKind::ToolCallDelta { arguments, .. } => arguments.len(),
        EventKind::ToolStarted { call } => of_call(call),
        EventKind::Interrupted { interrupts } => interrupts.iter().map(|one| of_call(&one.call)).sum(),
        EventKind::Checkpoint(checkpoint) => {
            let fields = checkpoint.state.values.values().chain(checkpoint.metadata.values());
            let asked = checkpoint.interrupts.iter().map(|one| of_call(&one.call));
            let pointers = checkpoint.state.messages.len() * size_of::<Arc<Message>>();
            512 + pointers + fields.map(of_value).sum::<usize>() + asked.sum::<usize>()
        }
        _ => 256,
    };
    own + size_of::<Event>()
}

fn of_value(value: &Value) -> usize {
    PER_VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(all) => all.iter().map(of_value).sum(),
            Value::Object(all) => all.iter().map(|(name, value)| name.len() + of_value(value)).sum(),
            _ => 0,
        }
}

fn of_call(call: &ToolCall) -> usize {
    let texts = [&call.broken, &call.signature].into_iter().flatten().map(String::len);
    call.id.len() + call.name.len() + of_value(&call.arguments) + texts.sum::<usize>()
}

fn of_result(result: &ToolResult) -> usize {
    let pictures = result.pictures.iter().map(|picture| picture.data.len());
    of_value(&result.value) + pictures.sum::<usize>()
}

fn of_message(message: &Message) -> usize {
    let block = |block: &Block| match block {
        Block::Text { text } => text.len(),
        Block::Reasoning { text, signature } => text.len() + signature.as_ref().map_or(0, String::len),
        Block::Image { data, .. } => data.len(),
        Block::ImageUrl { url } => url.len(),
        Block::ToolCall(call) => of_call(call),
        Block::ToolResult(result) => of_result(result),
        Block::Other { value } => of_value(value),
    };
    let blocks = message.content.iter().map(|one| size_of::<Block>() + block(one));
    size_of::<Message>() + blocks.sum::<usize>() + message.extra.values().map(of_value).sum::<usize>()
}
