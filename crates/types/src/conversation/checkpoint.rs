//! Checkpoints: a thread's state after a step.

use super::{Message, Metadata, ThreadId, ToolCall};
use crate::{Millis, RunId, ThreadCheckpointId, names};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

names!(
    /// What made a checkpoint.
    CheckpointSource {
        /// A run's input.
        Input = "input",
        /// A step of a run.
        Loop = "loop",
        /// A client changed the state.
        Update = "update",
        /// A copy of another checkpoint.
        Fork = "fork",
    }
);

names!(
    /// What a run does in a step.
    Node {
        /// The model is asked.
        Agent = "agent",
        /// The tools are called that it asked for.
        Tools = "tools",
    }
);

names!(
    /// What an interrupt waits for.
    InterruptKind {
        /// A person approves, edits or refuses a call of a tool.
        ToolApproval = "tool_approval",
    }
);

/// A question to a person, for which a run stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Unique in its thread, derived from run and call.
    pub id: String,
    /// What it waits for.
    pub kind: InterruptKind,
    /// The call that needs a word.
    pub call: ToolCall,
    /// Why it needs one, for people.
    pub reason: String,
}

/// What a conversation is at a checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationState {
    /// What was said. Checkpoints share their messages, which may have pictures in them.
    pub messages: Vec<Arc<Message>>,
    /// Other values that clients set.
    pub values: Metadata,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Which.
    pub id: ThreadCheckpointId,
    /// Its thread.
    pub thread: ThreadId,
    /// The one that it follows.
    pub parent: Option<ThreadCheckpointId>,
    /// The run that made it.
    pub run: Option<RunId>,
    /// The number of its step: −1 is an input before anything was done.
    pub step: i64,
    /// What made it.
    pub source: CheckpointSource,
    /// The node whose work it holds; none of an input.
    pub node: Option<Node>,
    /// What comes next; none where nothing does.
    pub next: Option<Node>,
    /// What the conversation is.
    pub state: ConversationState,
    /// Questions that wait for a person.
    pub interrupts: Vec<Interrupt>,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// When.
    pub created_at: Millis,
}

/// A checkpoint that is to be added. Its messages are the first `keep` of the parent's and those of `added`, so that a
/// long conversation is not written again with every step.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCheckpoint {
    /// Which.
    pub id: ThreadCheckpointId,
    /// The one that it follows; of the same thread.
    pub parent: Option<ThreadCheckpointId>,
    /// The run that makes it.
    pub run: Option<RunId>,
    /// The number of its step.
    pub step: i64,
    /// What makes it.
    pub source: CheckpointSource,
    /// The node whose work it holds.
    pub node: Option<Node>,
    /// What comes next.
    pub next: Option<Node>,
    /// How many of the parent's messages stay.
    pub keep: usize,
    /// The messages after them.
    pub added: Vec<Message>,
    /// Other values, all of them.
    pub values: Metadata,
    /// Questions that wait for a person.
    pub interrupts: Vec<Interrupt>,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// When.
    pub created_at: Millis,
}

/// Which checkpoints of a thread, the newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckpointQuery {
    /// Only those before this one.
    pub before: Option<ThreadCheckpointId>,
    /// Of this run.
    pub run: Option<RunId>,
    /// With these metadata.
    pub metadata: Metadata,
    /// At most so many.
    pub limit: u32,
}
