//! The events of one run, by the modes that the client asked for. Nothing is sent that was not asked for.

use super::{WireEvent, pending::PendingMessage};
use crate::{ids, interrupts, messages, state};
use atoll_agent::{Event, EventKind};
use atoll_types::{
    Error, Result,
    conversation::{Checkpoint, CheckpointSource, Message, Node, Role, RunRecord, RunStatus, StopReason},
    names,
    time::rfc3339,
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};

names!(
    /// What a client may ask for.
    Mode {
        /// The whole state after each step.
        Values = "values",
        /// What each step added.
        Updates = "updates",
        /// Messages as they grow, each time whole.
        Messages = "messages",
        /// Messages as they grow, piece by piece.
        MessagesTuple = "messages-tuple",
        /// What tools print while they run.
        Custom = "custom",
        /// What the model, the tools and the nodes do, as LangChain's runnables tell it.
        Events = "events",
        /// Steps that begin and end.
        Tasks = "tasks",
        /// Checkpoints.
        Checkpoints = "checkpoints",
        /// Steps and checkpoints.
        Debug = "debug",
    }
);

/// The modes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Modes(Vec<Mode>);

impl Modes {
    /// Reads them; `values` where none is named.
    pub(crate) fn read(names: &[String]) -> Result<Self> {
        let unknown = |name: &str| {
            let known = Mode::ALL.iter().map(|mode| mode.as_str()).collect::<Vec<_>>().join(", ");
            Error::invalid("stream_mode", format!("{:.64} is none of {known}", name.escape_debug()))
        };
        let read = |name: &String| Mode::from_name(name).ok_or_else(|| unknown(name));
        let modes = names.iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(Self(if modes.is_empty() { vec![Mode::Values] } else { modes }))
    }

    fn has(&self, mode: Mode) -> bool {
        self.0.contains(&mode)
    }
}

/// What the metadata of messages say of their run.
#[derive(Debug, Clone)]
pub(crate) struct RunFacts {
    pub(crate) run: String,
    pub(crate) thread: String,
    pub(crate) assistant: String,
    pub(crate) graph: String,
}

impl RunFacts {
    pub(crate) fn of(run: &RunRecord) -> Self {
        let graph = run.new.metadata.get("graph_id").and_then(Value::as_str).unwrap_or("agent");
        Self {
            run: ids::hyphenated(run.new.id.uuid()),
            thread: run.new.thread.as_str().to_owned(),
            assistant: ids::hyphenated(run.new.assistant.uuid()),
            graph: graph.to_owned(),
        }
    }
}

/// Renders the events of one run.
pub(crate) struct RunRenderer {
    modes: Modes,
    facts: RunFacts,
    attempt: u32,
    step: i64,
    /// The checkpoint that the present step began from; its id names the step's task.
    task: String,
    pending: Option<PendingMessage>,
    /// Messages that were sent whole, by their ids.
    complete: HashMap<String, Arc<Message>>,
    begun: bool,
    /// The arguments of calls that run, for the events that tell them with the result.
    inputs: HashMap<String, Value>,
}

impl RunRenderer {
    pub(crate) fn new(modes: Modes, facts: RunFacts) -> Self {
        let task = facts.run.clone();
        Self {
            modes,
            facts,
            attempt: 1,
            step: 0,
            task,
            pending: None,
            complete: HashMap::new(),
            begun: false,
            inputs: HashMap::new(),
        }
    }

    /// The wire events of an event.
    pub(crate) fn feed(&mut self, event: &Event) -> Vec<WireEvent> {
        let mut events = self.events(event);
        if self.modes.has(Mode::Events) {
            if let EventKind::ToolStarted { call } = &event.kind {
                self.inputs.insert(call.id.clone(), call.arguments.clone());
            }
            // Before the others: a piece of a message comes last, because it alone must not be sent twice.
            events.splice(0..0, self.runnable_event(event));
        }
        events
    }

    /// The arguments of a call that runs.
    pub(super) fn input(&self, call: &str) -> &Value {
        self.inputs.get(call).unwrap_or(&Value::Null)
    }

    /// What the present step is called.
    pub(super) fn task(&self) -> &str {
        &self.task
    }

    fn events(&mut self, event: &Event) -> Vec<WireEvent> {
        match &event.kind {
            EventKind::Started { attempt } => {
                self.attempt = *attempt;
                // What was half written before a restart is written anew.
                self.pending = None;
                vec![WireEvent::new("metadata", json!({ "run_id": self.facts.run, "attempt": attempt }))]
            }
            EventKind::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            EventKind::NodeStarted { node, step } => self.node_started(*node, *step, event),
            EventKind::NodeFinished { node, messages, .. } => self.node_finished(*node, messages, event),
            EventKind::MessageStarted { message, model, step } => {
                self.step = *step;
                self.pending = Some(PendingMessage::new(message, model, *step));
                self.message_started()
            }
            EventKind::Text { block, text, .. } => self.text(*block, text),
            EventKind::Reasoning { block, text, .. } => self.reasoning(*block, text),
            EventKind::ToolCallDelta { block, index, id, name, arguments, .. } => {
                self.tool_call(*block, *index, id.as_deref(), name.as_deref(), arguments)
            }
            EventKind::MessageFinished { message, .. } => self.message_finished(message),
            EventKind::ToolStarted { call } => self.custom(json!({
                "type": "tool_started", "tool_call_id": call.id, "name": call.name, "args": call.arguments,
            })),
            EventKind::ToolOutput { call, stream, text } => self.custom(json!({
                "type": "tool_output", "tool_call_id": call, "stream": stream_name(*stream), "text": text,
            })),
            EventKind::ToolFinished { message } => self.tool_finished(message),
            EventKind::Interrupted { interrupts } => self.interrupted(interrupts),
            EventKind::Finished { status, stopped, failure } => finished(*status, *stopped, failure.as_ref()),
            EventKind::Missed => Vec::new(),
        }
    }

    fn custom(&self, data: Value) -> Vec<WireEvent> {
        let event = WireEvent::new("custom", data);
        self.modes.has(Mode::Custom).then_some(event).into_iter().collect()
    }

    /// The metadata of messages of a node.
    pub(super) fn metadata(&self, node: Node) -> Value {
        let namespace = format!("{node}:{}", self.task);
        let mut metadata = json!({
            "run_id": self.facts.run, "thread_id": self.facts.thread, "graph_id": self.facts.graph,
            "assistant_id": self.facts.assistant, "run_attempt": self.attempt, "langgraph_node": node,
            "langgraph_step": self.step, "langgraph_triggers": [format!("branch:to:{node}")],
            "langgraph_path": ["__pregel_pull", node], "langgraph_checkpoint_ns": namespace,
            "checkpoint_ns": namespace, "tags": [],
        });
        if let Some(pending) = &self.pending {
            metadata["ls_model_name"] = pending.model.as_str().into();
        }
        metadata
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Vec<WireEvent> {
        self.task = ids::hyphenated(checkpoint.id.uuid());
        let mut events = Vec::new();
        if self.modes.has(Mode::Checkpoints) {
            events.push(WireEvent::new("checkpoints", checkpoint_data(checkpoint)));
        }
        if self.modes.has(Mode::Debug) {
            events.push(WireEvent::new("debug", json!({
                "step": checkpoint.step, "timestamp": rfc3339(checkpoint.created_at), "type": "checkpoint",
                "payload": checkpoint_data(checkpoint),
            })));
        }
        if self.modes.has(Mode::Values) {
            let mut values = state::values(&checkpoint.state);
            if let Some(interrupt) = interrupts::write(&checkpoint.interrupts) {
                values["__interrupt__"] = json!([interrupt]);
            }
            events.push(WireEvent::new("values", values));
        }
        events.extend(self.completed(checkpoint));
        events
    }

    /// The messages that a checkpoint has and the one before had not, or otherwise: a person changed a call.
    fn completed(&mut self, checkpoint: &Checkpoint) -> Vec<WireEvent> {
        let all = &checkpoint.state.messages;
        let begins = !std::mem::replace(&mut self.begun, true);
        let old = if begins && checkpoint.source == CheckpointSource::Input { said_before(all) } else { 0 };
        let told = |message: &Arc<Message>| (message.id.clone(), Arc::clone(message));
        self.complete.extend(all[..old].iter().map(told));
        let is_new = |message: &&Arc<Message>| {
            let before = self.complete.insert(message.id.clone(), Arc::clone(message));
            before.is_none_or(|before| !Arc::ptr_eq(&before, message) && before != **message)
        };
        let new: Vec<_> = all.iter().filter(is_new).collect();
        if !self.modes.has(Mode::Messages) {
            return Vec::new();
        }
        let complete = |message: &&Arc<Message>| {
            WireEvent::new("messages/complete", json!([messages::write_message(message)]))
        };
        new.iter().map(complete).collect()
    }

    fn node_started(&mut self, node: Node, step: i64, event: &Event) -> Vec<WireEvent> {
        self.step = step;
        let task = json!({ "id": self.task, "name": node, "triggers": [format!("branch:to:{node}")], "interrupts": [] });
        self.task_events(task, "task", event)
    }

    fn task_events(&self, task: Value, kind: &str, event: &Event) -> Vec<WireEvent> {
        let mut events = Vec::new();
        if self.modes.has(Mode::Debug) {
            events.push(WireEvent::new(
                "debug",
                json!({
                    "step": self.step, "timestamp": rfc3339(event.at), "type": kind, "payload": task,
                }),
            ));
        }
        if self.modes.has(Mode::Tasks) {
            events.push(WireEvent::new("tasks", task));
        }
        events
    }

    fn node_finished(&mut self, node: Node, added: &[Arc<Message>], event: &Event) -> Vec<WireEvent> {
        let result = json!({ "messages": messages::write_list(added) });
        let task =
            json!({ "id": self.task, "name": node, "error": null, "result": result, "interrupts": [] });
        let mut events = self.task_events(task, "task_result", event);
        if self.modes.has(Mode::Updates) {
            events.push(WireEvent::new("updates", json!({ node.as_str(): result })));
        }
        events
    }

    fn message_started(&mut self) -> Vec<WireEvent> {
        let Some(pending) = &self.pending else { return Vec::new() };
        let mut events = Vec::new();
        if self.modes.has(Mode::Messages) {
            let metadata = json!({ pending.id.as_str(): { "metadata": self.metadata(Node::Agent) } });
            events.push(WireEvent::new("messages/metadata", metadata));
        }
        events.extend(self.grown("".into(), json!([])));
        events
    }

    fn text(&mut self, block: usize, text: &str) -> Vec<WireEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let grown = pending.text(block, text);
        let content = match pending.has_reasoning() {
            true => json!([{ "type": "text", "text": text, "index": grown.at }]),
            false => text.into(),
        };
        self.grown(content, json!([]))
    }

    fn reasoning(&mut self, block: usize, text: &str) -> Vec<WireEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let grown = pending.reasoning(block, text);
        let content = json!([{ "type": "reasoning", "reasoning": text, "index": grown.at }]);
        self.grown(content, json!([]))
    }

    fn tool_call(
        &mut self,
        block: usize,
        index: usize,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Vec<WireEvent> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        pending.call(block, index, id, name, arguments);
        let chunk =
            json!({ "name": name, "args": arguments, "id": id, "index": index, "type": "tool_call_chunk" });
        self.grown("".into(), json!([chunk]))
    }

    /// The events of a message that grew. The piece comes last: it alone must not be sent twice.
    fn grown(&mut self, content: Value, calls: Value) -> Vec<WireEvent> {
        let is_due = self.pending.as_mut().is_some_and(PendingMessage::is_due);
        let Some(pending) = &self.pending else { return Vec::new() };
        let mut events = Vec::new();
        if self.modes.has(Mode::Messages) && is_due {
            let partial = json!([messages::write_message(&pending.message())]);
            events.push(WireEvent::new("messages/partial", partial));
        }
        if self.modes.has(Mode::MessagesTuple) {
            let chunk = messages::write_chunk(&pending.id, content, calls);
            events.push(WireEvent::new("messages", json!([chunk, self.metadata(Node::Agent)])));
        }
        events
    }

    /// The last piece of a message has what only its end tells: tokens, the reason of the end, signatures.
    fn message_finished(&mut self, message: &Message) -> Vec<WireEvent> {
        let mut events = Vec::new();
        if self.modes.has(Mode::Messages) {
            events.push(WireEvent::new("messages/partial", json!([messages::write_message(message)])));
        }
        if self.modes.has(Mode::MessagesTuple) {
            let whole = messages::write_message(message);
            let mut chunk = messages::write_chunk(&message.id, "".into(), json!([]));
            chunk["response_metadata"] = whole["response_metadata"].clone();
            chunk["usage_metadata"] = whole["usage_metadata"].clone();
            chunk["chunk_position"] = "last".into();
            events.push(WireEvent::new("messages", json!([chunk, self.metadata(Node::Agent)])));
        }
        self.pending = None;
        events
    }

    fn tool_finished(&mut self, message: &Message) -> Vec<WireEvent> {
        let mut events = self.custom(json!({
            "type": "tool_finished", "tool_call_id": message.tool_result().map(|result| result.call.as_str()),
        }));
        if self.modes.has(Mode::MessagesTuple) {
            let whole = messages::write_message(message);
            events.push(WireEvent::new("messages", json!([whole, self.metadata(Node::Tools)])));
        }
        events
    }

    fn interrupted(&self, pending: &[atoll_types::conversation::Interrupt]) -> Vec<WireEvent> {
        match interrupts::write(pending) {
            Some(interrupt) if self.modes.has(Mode::Updates) => {
                vec![WireEvent::new("updates", json!({ "__interrupt__": [interrupt] }))]
            }
            _ => Vec::new(),
        }
    }
}

/// How many messages of an input's checkpoint were there before it: those up to the last that is not a person's.
fn said_before(messages: &[Arc<Message>]) -> usize {
    let last = messages.iter().rposition(|message| !matches!(message.role, Role::User | Role::System));
    last.map_or(0, |at| at + 1)
}

pub(crate) fn stream_name(stream: atoll_agent::OutputStream) -> &'static str {
    match stream {
        atoll_agent::OutputStream::Stdout => "stdout",
        atoll_agent::OutputStream::Stderr => "stderr",
    }
}

fn checkpoint_data(checkpoint: &Checkpoint) -> Value {
    let config = |id| json!({ "configurable": state::reference(&checkpoint.thread, Some(id)) });
    json!({
        "config": config(checkpoint.id), "parent_config": checkpoint.parent.map(config),
        "values": state::values(&checkpoint.state), "metadata": state::metadata(checkpoint),
        "next": checkpoint.next.into_iter().collect::<Vec<_>>(), "tasks": state::tasks(checkpoint),
    })
}

fn finished(
    status: RunStatus,
    stopped: StopReason,
    failure: Option<&atoll_types::conversation::RunFailure>,
) -> Vec<WireEvent> {
    if let Some(failure) = failure {
        let data = json!({ "error": failure.code, "message": failure.message });
        return vec![WireEvent::new("error", data)];
    }
    let mut data = json!({ "status": status });
    if stopped != StopReason::Answered {
        data["stop_reason"] = stopped.as_str().into();
    }
    vec![WireEvent::new("end", data)]
}
