//! Conversations of the agent: assistants, threads, messages, runs, checkpoints, and the items that an owner stores
//! beside them.
//!
//! A thread is a conversation of one owner; its id is the owner's own, so the same id of another owner is another
//! thread. Its checkpoints form a tree: each names its parent, and the thread names its head. A run adds a checkpoint
//! after each of its steps; of a thread at most one run is carried out at a time. What a model wrote is kept as it came:
//! an unknown tool or arguments that are no JSON are data here.

mod assistant;
mod checkpoint;
mod item;
mod message;
mod run;
mod thread;

pub use assistant::{Assistant, AssistantQuery, BUILT_IN_GRAPHS, NewAssistant};
pub use checkpoint::{
    Checkpoint, CheckpointQuery, CheckpointSource, ConversationState, Interrupt, InterruptKind,
    NewCheckpoint, Node,
};
pub use item::{ItemQuery, NamespaceQuery, StoreItem};
pub use message::{
    Block, FinishReason, LONGEST_MESSAGE_ID, MOST_CHANGED, Message, Role, TokenUsage, ToolCall, ToolPicture,
    ToolResult, ToolStatus as ToolCallStatus,
};
pub use run::{
    ApprovalRule, ModelFault, MultitaskStrategy, NewRun, RunBudget, RunFailure, RunFailureCode, RunInput,
    RunRecord, RunStatus, StopReason,
};
pub use thread::{NewThread, ThreadId, ThreadQuery, ThreadRecord, ThreadSort, ThreadStatus};

use serde_json::{Map, Value};

/// What a client keeps beside a record, by name.
pub type Metadata = Map<String, Value>;

/// Whether metadata have every value of a filter: an object of the filter may have fewer fields than the metadata's.
#[must_use]
pub fn metadata_match(metadata: &Metadata, filter: &Metadata) -> bool {
    fn holds(value: &Value, wanted: &Value) -> bool {
        match (value, wanted) {
            (Value::Object(value), Value::Object(wanted)) => metadata_match(value, wanted),
            (Value::Array(value), Value::Array(wanted)) => {
                wanted.iter().all(|wanted| value.iter().any(|value| holds(value, wanted)))
            }
            (value, wanted) => value == wanted,
        }
    }
    filter.iter().all(|(name, wanted)| metadata.get(name).is_some_and(|value| holds(value, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_filter_is_contained_in_the_metadata() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let metadata = map(json!({ "a": 1, "b": { "c": [1, 2], "d": "x" } }));
        for fits in [json!({}), json!({ "a": 1 }), json!({ "b": { "d": "x" } }), json!({ "b": { "c": [2] } })]
        {
            assert!(metadata_match(&metadata, &map(fits.clone())), "{fits}");
        }
        for other in
            [json!({ "a": 2 }), json!({ "e": null }), json!({ "b": { "c": [3] } }), json!({ "b": "x" })]
        {
            assert!(!metadata_match(&metadata, &map(other.clone())), "{other}");
        }
    }
}
