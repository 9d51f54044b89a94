//! Calls of tools, in parallel. Whatever a model asks for, each call has one result: an unknown tool, arguments that are no
//! JSON and a refusal are results too.

use super::{Turn, TurnEnd, approval::Word, budget::Budget};
use crate::{EventKind, OutputStream, model::shown_beside};
use atoll_core::{caused_by, repeatable_uuid};
use atoll_tool_sessions::{Progress, ToolCaller, ToolReply, describe};
use atoll_types::{
    CellId, ExecId, OperationId, Result,
    audit::EgressQuery,
    conversation::{
        Block, CheckpointSource, MOST_CHANGED, Message, Node, Role, StopReason, ToolCall, ToolCallStatus,
        ToolPicture, ToolResult,
    },
    files::Changed,
    time::now_ms,
};
use futures_util::{FutureExt, future::join_all};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most network decisions that a result names of one operation.
const MOST_DECISIONS: u32 = 64;

/// The tools whose work is joined by its id.
const CODE: &str = "execute_code";
const TERMINAL: &str = "execute_terminal";

/// The calls of the last message that have no result yet.
pub(super) fn open_calls(messages: &[Arc<Message>]) -> Vec<ToolCall> {
    let Some(asked) = messages.iter().rposition(|message| message.role == Role::Assistant) else {
        return Vec::new();
    };
    let done = |call: &ToolCall| {
        messages[asked..]
            .iter()
            .filter_map(|message| message.tool_result())
            .any(|result| result.call == call.id)
    };
    messages[asked].tool_calls().filter(|call| !done(call)).cloned().collect()
}

/// A result without a call: why it was not carried out.
pub(super) fn not_done(call: &ToolCall, error: &str, hint: &str) -> ToolResult {
    ToolResult {
        call: call.id.clone(),
        name: call.name.clone(),
        status: ToolCallStatus::Error,
        value: json!({ "success": false, "error": error, "hint": hint }),
        pictures: Vec::new(),
        sandbox: None,
        exec: None,
        cell: None,
        operations: Vec::new(),
        egress: Vec::new(),
        changed: None,
        asked: None,
        duration_ms: 0,
    }
}

/// The call that a person wants in the place of the model's, where that is another one.
fn edited(call: &ToolCall, word: Option<&Word>) -> Option<ToolCall> {
    let Some(Word::Edit { name, arguments }) = word else { return None };
    let mut edited = ToolCall { arguments: arguments.clone(), broken: None, ..call.clone() };
    edited.name = name.clone().unwrap_or(edited.name);
    (edited != *call).then_some(edited)
}

/// Puts what is carried out in the place of what the model asked for, in the message that asked: neither the model nor a reader
/// may take arguments for real that never ran. Returns that message, where anything in it changed.
fn carry_edits(messages: &mut [Arc<Message>], edits: &[ToolCall]) -> Option<Arc<Message>> {
    let asking = messages.iter_mut().rfind(|message| message.role == Role::Assistant)?;
    if edits.is_empty() {
        return None;
    }
    let mut changed = Message::clone(asking);
    for block in &mut changed.content {
        if let Block::ToolCall(call) = block
            && let Some(edit) = edits.iter().find(|edit| edit.id == call.id)
        {
            *call = edit.clone();
        }
    }
    *asking = Arc::new(changed);
    Some(Arc::clone(asking))
}

/// Takes the pictures out of a reply's value. Those that are kept beside it have numbers in their order.
fn without_pictures(mut value: Value, kept: &[ToolPicture]) -> Value {
    let outputs = value.get_mut("display_outputs").and_then(Value::as_array_mut);
    let mut number = 0;
    for output in outputs.into_iter().flatten() {
        if output["type"].as_str().is_some_and(|kind| kind.starts_with("image/") && kind != "image/svg+xml") {
            let is_kept = kept.get(number).is_some_and(|picture| output["data"] == *picture.data);
            output["data"] = match is_kept {
                true => shown_beside(number).into(),
                false => "[a picture, which is not kept]".into(),
            };
            number += usize::from(is_kept);
        }
    }
    value
}

/// As many of the changed files as a result names.
fn first_changed(mut changed: Changed) -> Changed {
    changed.truncated |= changed.files.len() > MOST_CHANGED;
    changed.files.truncate(MOST_CHANGED);
    changed
}

impl Turn<'_> {
    /// Calls the tools that the model asked for; where the run was cancelled meanwhile, says so.
    pub(super) async fn call_tools(
        &mut self,
        step: i64,
        decided: Option<Vec<Word>>,
        budget: &Budget,
    ) -> Result<Option<TurnEnd>> {
        let calls = open_calls(&self.head.state.messages);
        let words = self.words_by_call(decided);
        let word = |call: &ToolCall| words.iter().find(|(id, _)| *id == call.id).map(|(_, word)| word);
        let (results, late) = {
            let works = calls.iter().map(|call| self.one(call, word(call)).boxed());
            let mut working = std::pin::pin!(join_all(works));
            tokio::select! {
                results = &mut working => (results, false),
                () = budget.time_up() => {
                    self.cancel.cancel();
                    (working.await, true)
                }
            }
        };
        let edits: Vec<_> = calls.iter().filter_map(|call| edited(call, word(call))).collect();
        let mut messages = self.head.state.messages.clone();
        let asking = carry_edits(&mut messages, &edits);
        messages.extend(results.iter().cloned());
        let told = Arc::new(asking.into_iter().chain(results).collect());
        self.tell(EventKind::NodeFinished { node: Node::Tools, step, messages: told });
        self.checkpoint(CheckpointSource::Loop, (Some(Node::Tools), Some(Node::Agent)), messages, Vec::new())
            .await?;
        let stopped = if late { StopReason::Time } else { StopReason::Cancelled };
        Ok(self.cancel.is_cancelled().then(|| TurnEnd::of(stopped)))
    }

    fn words_by_call(&self, decided: Option<Vec<Word>>) -> Vec<(String, Word)> {
        let questions = self.head.interrupts.iter().map(|question| question.call.id.clone());
        questions.zip(decided.unwrap_or_default()).collect()
    }

    /// One call and its result as a message.
    async fn one(&self, asked: &ToolCall, word: Option<&Word>) -> Arc<Message> {
        let edit = edited(asked, word);
        let original = edit.as_ref().map(|_| Box::new(asked.clone()));
        let call = edit.unwrap_or_else(|| asked.clone());
        self.tell(EventKind::ToolStarted { call: call.clone() });
        let began = now_ms();
        let mut result = match self.refused(&call, word) {
            Some(result) => result,
            None => self.carry_out(&call).await,
        };
        result.asked = original;
        result.duration_ms = u64::try_from(now_ms() - began).unwrap_or(0);
        let run = self.record.new.id.to_string();
        let id = repeatable_uuid(&["agent-result", &run, &call.id, &self.head.id.to_string()]);
        let message = Message::new(id.hyphenated().to_string(), Role::Tool, vec![Block::ToolResult(result)]);
        let message = Arc::new(message);
        self.tell(EventKind::ToolFinished { message: Arc::clone(&message) });
        message
    }

    /// Why a call is not carried out.
    fn refused(&self, call: &ToolCall, word: Option<&Word>) -> Option<ToolResult> {
        if let Some(Word::Refuse(why)) = word {
            let error = if why.is_empty() {
                "the person refused this call".to_owned()
            } else {
                format!("the person refused this call: {why}")
            };
            return Some(not_done(call, &error, "Do something else, or ask the person."));
        }
        if !describe().iter().any(|tool| tool.name == call.name) {
            let names = describe().iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
            let name: String = call.name.chars().take(64).collect();
            return Some(not_done(
                call,
                &format!("there is no tool {name:?}"),
                &format!("The tools are {names}."),
            ));
        }
        if call.broken.is_some() {
            let hint = "Call the tool again with arguments that are one JSON object.";
            return Some(not_done(call, "the arguments are no JSON object", hint));
        }
        if self.resumed && ![CODE, TERMINAL].contains(&call.name.as_str()) {
            let error =
                "the server was started anew while this call was carried out; it may or may not have worked";
            return Some(not_done(call, error, "Find out what is there before you call it again."));
        }
        None
    }

    async fn carry_out(&self, call: &ToolCall) -> ToolResult {
        let id = repeatable_uuid(&[
            "agent-call",
            &self.record.new.id.to_string(),
            &call.id,
            &self.head.id.to_string(),
        ]);
        let who = ToolCaller {
            caller: self.caller.clone(),
            thread: self.record.new.thread.clone(),
            address: self.plan.address.clone(),
        };
        let mut listener = |progress: Progress| {
            let (stream, text) = match progress {
                Progress::Stdout(text) => (OutputStream::Stdout, text),
                Progress::Stderr(text) => (OutputStream::Stderr, text),
                Progress::Installing | Progress::Display(_) => return,
            };
            self.tell(EventKind::ToolOutput { call: call.id.clone(), stream, text });
        };
        let sessions = &self.agents.sessions;
        let arguments = call.arguments.clone();
        let working = sessions.call_as(&who, id, &call.name, arguments, &mut listener, &self.cancel).boxed();
        let (reply, operations) = caused_by(working).await;
        let ToolReply { value, failure, images, changed } = reply;
        let session =
            call.arguments.get("session_id").or_else(|| value.get("session_id")).and_then(Value::as_str);
        let sandbox = match session {
            Some(session) => sessions.sandbox_of(&who, session).await,
            None => None,
        };
        if let Some(sandbox) = sandbox {
            self.agents.core.egress.settle(sandbox).await;
        }
        let picture = |image: atoll_tool_sessions::Image| ToolPicture { mime: image.mime, data: image.data };
        let pictures: Vec<_> = images.into_iter().map(picture).collect();
        ToolResult {
            call: call.id.clone(),
            name: call.name.clone(),
            status: if failure.is_some() { ToolCallStatus::Error } else { ToolCallStatus::Success },
            value: without_pictures(value, &pictures),
            pictures,
            sandbox,
            exec: (call.name == TERMINAL).then(|| ExecId::from_uuid(id)),
            cell: (call.name == CODE).then(|| CellId::from_uuid(id)),
            egress: self.decisions(&operations).await,
            operations,
            changed: changed.map(first_changed),
            asked: None,
            duration_ms: 0,
        }
    }

    /// The rows of the network decisions under these operations, the oldest first.
    async fn decisions(&self, operations: &[OperationId]) -> Vec<u64> {
        let mut found = Vec::new();
        for operation in operations {
            let query =
                EgressQuery { operation: Some(*operation), limit: MOST_DECISIONS, ..EgressQuery::default() };
            match self.agents.store.audit_egress(&query).await {
                Ok(rows) => found.extend(rows.iter().map(|row| row.seq)),
                Err(error) => tracing::debug!(%error, "the network decisions of a call cannot be read"),
            }
        }
        found.sort_unstable();
        found
    }
}
