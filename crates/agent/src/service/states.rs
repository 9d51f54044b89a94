//! States of threads: at a checkpoint, in their order, and changed by a client.

use super::{Agents, StateUpdate, threads::no_thread};
use atoll_core::{Caller, ExtensionOperation};
use atoll_types::{
    Error, ErrorCode, Operation, Result, ThreadCheckpointId, ThreadId,
    conversation::{
        Checkpoint, CheckpointQuery, CheckpointSource, Message, Metadata, NewCheckpoint, Node, Role,
        ThreadRecord, ThreadStatus,
    },
    time::now_ms,
};
use std::sync::Arc;

fn no_checkpoint() -> Error {
    Error::new(ErrorCode::NotFound, "the thread has no such checkpoint").at("checkpoint_id")
}

/// Messages after a change: those of a known id are replaced, removed ones are gone, others come at the end.
pub(crate) fn changed(old: &[Arc<Message>], new: Vec<Message>, removed: &[String]) -> Vec<Arc<Message>> {
    let mut messages: Vec<_> = old.iter().filter(|one| !removed.contains(&one.id)).cloned().collect();
    for message in new {
        match messages.iter_mut().find(|one| one.id == message.id) {
            Some(one) => *one = Arc::new(message),
            None => messages.push(Arc::new(message)),
        }
    }
    messages
}

/// How many messages two lists have in common at their beginning.
pub(crate) fn common(old: &[Arc<Message>], new: &[Arc<Message>]) -> usize {
    old.iter().zip(new).take_while(|(old, new)| Arc::ptr_eq(old, new) || old == new).count()
}

/// What comes after messages: the tools that the last one asks for, the model where it waits for an answer, or nothing.
pub(crate) fn next_after(messages: &[Arc<Message>]) -> Option<Node> {
    let last = messages.last()?;
    match last.role {
        Role::Assistant => last.tool_calls().next().map(|_| Node::Tools),
        Role::User | Role::Tool | Role::System => Some(Node::Agent),
    }
}

impl Agents {
    async fn record(&self, caller: &Caller, id: &ThreadId) -> Result<ThreadRecord> {
        self.store.conversation(&caller.owner, id).await?.ok_or_else(no_thread)
    }

    /// The state at a checkpoint, or at the head; none of a thread without any. An unknown thread or checkpoint is
    /// `NotFound`.
    pub async fn state(
        &self,
        caller: &Caller,
        id: &ThreadId,
        at: Option<ThreadCheckpointId>,
    ) -> Result<Option<Checkpoint>> {
        let thread = self.record(caller, id).await?;
        let Some(at) = at.or(thread.head) else { return Ok(None) };
        let found = self.store.thread_checkpoint(&caller.owner, id, at).await?;
        found.map(Some).ok_or_else(no_checkpoint)
    }

    /// Adds a checkpoint with changed values, which becomes the head. Refused while a run is under way.
    pub async fn update_state(
        &self,
        caller: &Caller,
        id: &ThreadId,
        update: StateUpdate,
    ) -> Result<Checkpoint> {
        let operation = ExtensionOperation::new(Operation::ThreadState).with(id.as_str());
        let work = self.change_state(caller, id, update);
        self.core.operations.carry_out(caller, operation, work).await
    }

    async fn change_state(&self, caller: &Caller, id: &ThreadId, update: StateUpdate) -> Result<Checkpoint> {
        let thread = self.record(caller, id).await?;
        if thread.status == ThreadStatus::Busy {
            let message = "a run of this thread is under way; wait for its end or cancel it";
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let base = match update.at.or(thread.head) {
            Some(at) => {
                let found = self.store.thread_checkpoint(&caller.owner, id, at).await?;
                Some(found.ok_or_else(no_checkpoint)?)
            }
            None => None,
        };
        let old = base.as_ref().map_or(&[][..], |base| &base.state.messages);
        let messages = changed(old, update.messages, &update.removed);
        let keep = common(old, &messages);
        let mut values = base.as_ref().map_or_else(Metadata::new, |base| base.state.values.clone());
        values.extend(update.values);
        let next = match update.as_node {
            Some(Node::Tools) => Some(Node::Agent),
            Some(Node::Agent) | None => next_after(&messages),
        };
        // A question stays open as long as the call that it is about may still be carried out.
        let asked = base.as_ref().filter(|_| next == Some(Node::Tools)).map(|base| base.interrupts.clone());
        let made = ThreadCheckpointId::random();
        let new = NewCheckpoint {
            id: made,
            parent: base.as_ref().map(|base| base.id),
            run: None,
            step: base.as_ref().map_or(0, |base| base.step + 1),
            source: CheckpointSource::Update,
            node: update.as_node,
            next,
            keep,
            added: messages[keep..].iter().map(|message| Message::clone(message)).collect(),
            values,
            interrupts: asked.unwrap_or_default(),
            metadata: update.metadata,
            created_at: now_ms(),
        };
        self.store.append_checkpoint(&caller.owner, id, new, None).await?;
        let found = self.store.thread_checkpoint(&caller.owner, id, made).await?;
        found.ok_or_else(no_checkpoint)
    }

    /// Checkpoints, the newest first.
    pub async fn history(
        &self,
        caller: &Caller,
        id: &ThreadId,
        query: &CheckpointQuery,
    ) -> Result<Vec<Checkpoint>> {
        self.record(caller, id).await?;
        Ok(self.store.thread_checkpoints(&caller.owner, id, query).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_replaced_by_their_ids() {
        let said = |id: &str, text: &str| Message::text(id, Role::User, text);
        let old = [said("a", "1"), said("b", "2"), said("c", "3")].map(Arc::new);
        let new = changed(&old, vec![said("b", "two"), said("d", "4")], &["c".to_owned()]);
        assert_eq!(new, [said("a", "1"), said("b", "two"), said("d", "4")].map(Arc::new));
        assert_eq!(common(&old, &new), 1);
        assert_eq!(next_after(&new), Some(Node::Agent));
        assert_eq!(next_after(&[Arc::new(Message::text("m", Role::Assistant, "done"))]), None);
    }
}
