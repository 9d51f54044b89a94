//! Where a run begins: at its last checkpoint where it was begun before, or at its input.

use super::{
    RunPlan, Turn, approval,
    tools::{not_done, open_calls},
};
use crate::{
    Agents,
    service::{changed, next_after},
};
use atoll_core::Caller;
use atoll_store::RunProgress;
use atoll_types::{
    Error, Result, ThreadCheckpointId,
    conversation::{
        Block, Checkpoint, CheckpointQuery, CheckpointSource, ConversationState, Message, Metadata, Node,
        Role, RunInput, RunRecord,
    },
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Before anything was said.
fn nothing(record: &RunRecord) -> Checkpoint {
    Checkpoint {
        id: ThreadCheckpointId::from_uuid(Uuid::nil()),
        thread: record.new.thread.clone(),
        parent: None,
        run: None,
        step: -2,
        source: CheckpointSource::Input,
        node: None,
        next: None,
        state: ConversationState::default(),
        interrupts: Vec::new(),
        metadata: Metadata::new(),
        created_at: 0,
    }
}

/// The messages with a result for every call: a person spoke before the tools did.
fn with_results(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut all = messages.to_vec();
    for call in open_calls(messages) {
        let result = not_done(&call, "this call was not carried out: the person said something else", "");
        let id = Uuid::new_v4().hyphenated().to_string();
        all.push(Arc::new(Message::new(id, Role::Tool, vec![Block::ToolResult(result)])));
    }
    all
}

impl<'a> Turn<'a> {
    /// Puts a run where it goes on, and returns the words of a person that it was given.
    pub(crate) async fn begin(
        agents: &'a Agents,
        caller: Caller,
        record: &'a RunRecord,
        plan: RunPlan,
        cancel: CancellationToken,
    ) -> Result<(Self, Option<Vec<approval::Word>>)> {
        let new = &record.new;
        let query = CheckpointQuery { run: Some(new.id), limit: 1, ..CheckpointQuery::default() };
        let own = agents.store.thread_checkpoints(&new.owner, &new.thread, &query).await?.pop();
        let progress = RunProgress { iterations: record.iterations, tokens: record.tokens };
        let turn = |head, resumed| Self { agents, caller, record, plan, cancel, head, progress, resumed };
        if let Some(head) = own {
            return Ok((turn(head, record.attempts > 1), None));
        }
        let thread = agents.store.conversation(&new.owner, &new.thread).await?;
        let base = match new.from.or(thread.and_then(|thread| thread.head)) {
            Some(at) => agents.store.thread_checkpoint(&new.owner, &new.thread, at).await?,
            None => None,
        };
        // A run that takes up an earlier one's step has no checkpoint before that step is done: what was begun before a
        // restart may have been done.
        let takes_up = matches!(&new.input, RunInput::Resume { .. }) || new.input.is_empty();
        let resumed = takes_up && record.attempts > 1;
        let mut turn = turn(base.unwrap_or_else(|| nothing(record)), resumed);
        let words = turn.take_input().await?;
        Ok((turn, words))
    }

    async fn take_input(&mut self) -> Result<Option<Vec<approval::Word>>> {
        match self.record.new.input.clone() {
            RunInput::Resume { value } => {
                if self.head.interrupts.is_empty() {
                    return Err(Error::invalid("command.resume", "the thread waits for no approval"));
                }
                let words = approval::words(&value, &self.head.interrupts)?;
                self.tell_head();
                Ok(Some(words))
            }
            input if input.is_empty() => {
                // The run goes on where the thread stands.
                self.tell_head();
                Ok(None)
            }
            RunInput::Messages { messages, values } => {
                let old = match messages.is_empty() {
                    true => self.head.state.messages.clone(),
                    false => with_results(&self.head.state.messages),
                };
                let all = changed(&old, messages, &[]);
                self.head.state.values.extend(values);
                let next = next_after(&all).filter(|next| *next == Node::Agent || !all.is_empty());
                self.checkpoint(CheckpointSource::Input, (None, next), all, Vec::new()).await?;
                Ok(None)
            }
        }
    }

    fn tell_head(&self) {
        if !self.head.id.uuid().is_nil() {
            self.tell(crate::EventKind::Checkpoint(Arc::new(self.head.clone())));
        }
    }
}
