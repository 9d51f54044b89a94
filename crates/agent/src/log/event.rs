//! The events of a run.

use atoll_types::{
    Millis, RunId,
    conversation::{Checkpoint, Interrupt, Message, Node, RunFailure, RunStatus, StopReason, ToolCall},
};
use std::sync::Arc;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number: later events have higher ones, also after a restart of the server, and of all runs of a thread no two are
    /// the same. Below 2^53.
    pub seq: u64,
    /// When.
    pub at: Millis,
    /// The run.
    pub run: RunId,
    /// What.
    pub kind: EventKind,
}

/// Where a tool's output was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// An attempt to carry the run out begins. Its number is above 1 after a restart of the server.
    Started {
        /// Counted from 1.
        attempt: u32,
    },
    /// A checkpoint was written: the whole state. The one of the input comes before anything else.
    Checkpoint(Arc<Checkpoint>),
    /// A node begins a step.
    NodeStarted {
        /// Which.
        node: Node,
        /// The number of the step.
        step: i64,
    },
    /// A node's step is done: the messages that it added. A checkpoint follows.
    NodeFinished {
        /// Which.
        node: Node,
        /// The number of the step.
        step: i64,
        /// What it added.
        messages: Arc<Vec<Arc<Message>>>,
    },
    /// The model begins a message.
    MessageStarted {
        /// The message's id, which its deltas and the whole message have too.
        message: String,
        /// The model.
        model: String,
        /// The number of the step.
        step: i64,
    },
    /// The model wrote text. Deltas of one block follow each other; `block` counts from 0 within the message.
    Text {
        /// Of which message.
        message: String,
        /// Of which block.
        block: usize,
        /// What.
        text: String,
    },
    /// The model thought.
    Reasoning {
        /// Of which message.
        message: String,
        /// Of which block.
        block: usize,
        /// What.
        text: String,
    },
    /// The model wrote a call of a tool.
    ToolCallDelta {
        /// Of which message.
        message: String,
        /// Of which block.
        block: usize,
        /// The number of the call within the message, from 0.
        index: usize,
        /// The call's id, with its first delta.
        id: Option<String>,
        /// The tool, with its first delta.
        name: Option<String>,
        /// A further piece of the arguments' JSON.
        arguments: String,
    },
    /// The model's message is whole: its blocks are what the deltas had, with signatures and tokens.
    MessageFinished {
        /// The number of the step.
        step: i64,
        /// The message.
        message: Arc<Message>,
    },
    /// A tool is called.
    ToolStarted {
        /// The call, as it is carried out: after an edit of a person.
        call: ToolCall,
    },
    /// A tool's command or code printed something.
    ToolOutput {
        /// Of which call.
        call: String,
        /// Where.
        stream: OutputStream,
        /// What.
        text: String,
    },
    /// A tool answered: a message of the role `tool`.
    ToolFinished {
        /// The message; its [`Message::tool_result`] names the call.
        message: Arc<Message>,
    },
    /// The run stops for approval; its end follows.
    Interrupted {
        /// The questions.
        interrupts: Vec<Interrupt>,
    },
    /// The run has ended. Nothing of it comes after this.
    Finished {
        /// How it ended.
        status: RunStatus,
        /// Why.
        stopped: StopReason,
        /// Why it failed, where it did.
        failure: Option<RunFailure>,
    },
    /// The follower was too slow, or came too late: events before this one are gone. The newest checkpoint, where there is
    /// one, follows.
    Missed,
}
