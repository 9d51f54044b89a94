//! The loop of one run: the model is asked, the tools that it asks for are called, their results go back, until it answers or
//! a budget is used up. A checkpoint is written after every step, and what a step did before its checkpoint was sent as events.
//!
//! A run that goes on after a restart begins at its last checkpoint. Commands and cells have ids that derive from run and call,
//! so they are joined; any other tool may have worked before the server ended, so it is reported as uncertain and not called
//! again.

mod approval;
mod budget;
mod partial;
mod plan;
mod start;
mod tools;

pub(crate) use approval::words;
pub(crate) use plan::{PlanBase, PlanSources, RunPlan, without_keys};

use crate::{
    Agents, EventKind,
    model::{Delta, ModelFailure, ModelTarget, Question, estimated},
};
use atoll_core::Caller;
use atoll_store::RunProgress;
use atoll_types::{
    Result, ThreadCheckpointId,
    conversation::{
        Checkpoint, CheckpointSource, Interrupt, Message, NewCheckpoint, Node, RunFailure, RunRecord,
        StopReason,
    },
    time::now_ms,
};
use budget::Budget;
use futures_util::FutureExt;
use partial::PartialAnswer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How often a model that fails for the moment is asked again.
const RETRIES: u32 = 4;
/// Of the window, the least that is used after the provider said that the conversation was too long: half as much each time.
const LEAST_SHARE: f64 = 0.1;

/// Why a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnEnd {
    pub(crate) stopped: StopReason,
    pub(crate) failure: Option<RunFailure>,
    pub(crate) interrupts: Vec<Interrupt>,
}

impl TurnEnd {
    fn of(stopped: StopReason) -> Self {
        Self { stopped, failure: None, interrupts: Vec::new() }
    }

    /// Of a run that was ended before it began.
    pub(crate) fn cancelled() -> Self {
        Self::of(StopReason::Cancelled)
    }

    pub(crate) fn failed(failure: RunFailure) -> Self {
        Self { failure: Some(failure), ..Self::of(StopReason::Failed) }
    }
}

/// A run that is carried out.
pub(crate) struct Turn<'a> {
    pub(crate) agents: &'a Agents,
    pub(crate) caller: Caller,
    pub(crate) record: &'a RunRecord,
    pub(crate) plan: RunPlan,
    pub(crate) cancel: CancellationToken,
    head: Checkpoint,
    progress: RunProgress,
    /// Whether the next step may have been begun before a restart.
    resumed: bool,
}

impl<'a> Turn<'a> {
    fn tell(&self, kind: EventKind) {
        let new = &self.record.new;
        self.agents.logs.append(&new.owner, &new.thread, new.id, kind);
    }

    /// Writes a checkpoint after the head and makes it the head.
    async fn checkpoint(
        &mut self,
        source: CheckpointSource,
        (node, next): (Option<Node>, Option<Node>),
        messages: Vec<Arc<Message>>,
        interrupts: Vec<Interrupt>,
    ) -> Result<()> {
        let new = &self.record.new;
        let keep = crate::service::common(&self.head.state.messages, &messages);
        let made = NewCheckpoint {
            id: ThreadCheckpointId::random(),
            parent: Some(self.head.id).filter(|id| !id.uuid().is_nil()),
            run: Some(new.id),
            step: self.head.step + 1,
            source,
            node,
            next,
            keep,
            added: messages[keep..].iter().map(|message| Message::clone(message)).collect(),
            values: self.head.state.values.clone(),
            interrupts: interrupts.clone(),
            metadata: new.metadata.clone(),
            created_at: now_ms(),
        };
        let head = Checkpoint {
            id: made.id,
            thread: new.thread.clone(),
            parent: made.parent,
            run: made.run,
            step: made.step,
            source,
            node,
            next,
            state: atoll_types::conversation::ConversationState { messages, values: made.values.clone() },
            interrupts,
            metadata: made.metadata.clone(),
            created_at: made.created_at,
        };
        self.agents.store.append_checkpoint(&new.owner, &new.thread, made, Some(self.progress)).await?;
        self.head = head;
        self.tell(EventKind::Checkpoint(Arc::new(self.head.clone())));
        Ok(())
    }

    /// Goes through the steps to the end.
    pub(crate) async fn go(&mut self, mut decided: Option<Vec<approval::Word>>) -> Result<TurnEnd> {
        let budget = Budget::new(&self.plan.budget, self.record.started_at.unwrap_or_else(now_ms));
        loop {
            if !self.head.interrupts.is_empty() && decided.is_none() {
                let interrupts = self.head.interrupts.clone();
                return Ok(TurnEnd { interrupts, ..TurnEnd::of(StopReason::Approval) });
            }
            let Some(next) = self.head.next else { return Ok(TurnEnd::of(StopReason::Answered)) };
            if self.cancel.is_cancelled() {
                return Ok(TurnEnd::of(StopReason::Cancelled));
            }
            let stops_before =
                self.plan.interrupt_before.contains(&next) && self.head.run == Some(self.record.new.id);
            let stops_after = self.head.node.is_some_and(|node| {
                self.plan.interrupt_after.contains(&node) && self.head.run == Some(self.record.new.id)
            });
            if stops_before || stops_after {
                return Ok(TurnEnd::of(StopReason::Approval));
            }
            if let Some(stopped) = budget.used_up(next, self.progress) {
                return Ok(TurnEnd::of(stopped));
            }
            // A key that was revoked meanwhile works no further.
            self.caller = self.agents.caller_of(self.record).await?;
            let step = self.head.step + 1;
            self.tell(EventKind::NodeStarted { node: next, step });
            let ended = match next {
                Node::Agent => self.ask(step, &budget).boxed().await?,
                Node::Tools => self.call_tools(step, decided.take(), &budget).boxed().await?,
            };
            self.resumed = false;
            if let Some(end) = ended {
                return Ok(end);
            }
        }
    }

    /// Asks the model, and again where its provider fails for the moment.
    async fn ask(&mut self, step: i64, budget: &Budget) -> Result<Option<TurnEnd>> {
        let target = match ModelTarget::of(&self.plan.model.settings, self.plan.model.trusted) {
            Ok(target) => target,
            Err(failure) => return Ok(Some(TurnEnd::failed(failure.told(None)))),
        };
        let (mut attempt, mut share, partial) = (0, 1.0, PartialAnswer::default());
        let stopped = loop {
            let asked = tokio::select! {
                asked = self.ask_once(step, &target, share, &partial) => asked,
                () = self.cancel.cancelled() => break StopReason::Cancelled,
                () = budget.time_up() => break StopReason::Time,
            };
            match asked {
                Ok(message) => {
                    self.answered(step, message).await?;
                    return Ok(None);
                }
                Err(ModelFailure::TooLong) if share / 2.0 > LEAST_SHARE => share /= 2.0,
                Err(failure) => {
                    match failure.retry(attempt).filter(|wait| attempt < RETRIES && budget.has(*wait)) {
                        Some(wait) => tokio::select! {
                            () = tokio::time::sleep(wait) => attempt += 1,
                            () = self.cancel.cancelled() => break StopReason::Cancelled,
                            () = budget.time_up() => break StopReason::Time,
                        },
                        None => return Ok(Some(TurnEnd::failed(failure.told(Some(&target))))),
                    }
                }
            }
        };
        if let Some(said) = partial.into_message() {
            self.answered(step, said).await?;
        }
        Ok(Some(TurnEnd::of(stopped)))
    }

    async fn ask_once(
        &self,
        step: i64,
        target: &ModelTarget,
        share: f64,
        partial: &PartialAnswer,
    ) -> Result<Message, ModelFailure> {
        let id = Uuid::new_v4().hyphenated().to_string();
        self.tell(EventKind::MessageStarted { message: id.clone(), model: target.model.clone(), step });
        partial.begin(&id, &target.model);
        let question = Question {
            system: &self.plan.system_prompt,
            messages: &self.head.state.messages,
            id: &id,
            share,
        };
        let mut told = |delta: Delta| {
            partial.add(&delta);
            let message = id.clone();
            self.tell(match delta {
                Delta::Text { block, text } => EventKind::Text { message, block, text },
                Delta::Reasoning { block, text } => EventKind::Reasoning { message, block, text },
                Delta::Call { block, index, id, name, arguments } => {
                    EventKind::ToolCallDelta { message, block, index, id, name, arguments }
                }
            });
        };
        self.agents.models.ask(target, &question, &mut told).boxed().await
    }

    async fn answered(&mut self, step: i64, message: Message) -> Result<()> {
        self.progress.iterations += 1;
        let used = message.usage.map(|usage| usage.total()).filter(|tokens| *tokens > 0);
        // Some providers do not say what was used; a budget holds nevertheless.
        let guessed = || estimated(&self.plan.system_prompt, &self.head.state.messages, &message);
        self.progress.tokens += used.unwrap_or_else(guessed);
        let message = Arc::new(message);
        self.tell(EventKind::MessageFinished { step, message: Arc::clone(&message) });
        let added = Arc::new(vec![Arc::clone(&message)]);
        self.tell(EventKind::NodeFinished { node: Node::Agent, step, messages: added });
        let next = message.tool_calls().next().map(|_| Node::Tools);
        let interrupts = approval::questions(self.plan.approval, self.record.new.id, &message);
        let mut messages = self.head.state.messages.clone();
        messages.push(message);
        self.checkpoint(CheckpointSource::Loop, (Some(Node::Agent), next), messages, interrupts).await
    }
}
