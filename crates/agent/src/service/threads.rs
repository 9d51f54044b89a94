//! Threads: made, found, changed and copied. Deleting one ends its runs first and is with them.

use super::{Agents, IfExists, NewThreadRequest, ThreadView};
use atoll_core::{Caller, ExtensionOperation};
use atoll_store::fitting;
use atoll_tool_sessions::{ForkedSession, ToolCaller};
use atoll_types::{
    Error, ErrorCode, Operation, Result, ThreadCheckpointId, ThreadId,
    conversation::{
        Block, CheckpointSource, Message, Metadata, NewCheckpoint, NewThread, ThreadQuery, ThreadRecord,
    },
    time::now_ms,
};
use futures_util::FutureExt;
use serde_json::Value;
use std::io;

pub(crate) fn no_thread() -> Error {
    Error::new(ErrorCode::NotFound, "there is no such thread").at("thread_id")
}

/// What a thread's state is in bytes of JSON.
fn size(view: &ThreadView) -> Result<u64> {
    #[derive(Default)]
    struct Bytes(u64);
    impl io::Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut bytes = Bytes::default();
    if let Some(head) = &view.head {
        let counted = serde_json::to_writer(&mut bytes, &head.state.messages)
            .and_then(|()| serde_json::to_writer(&mut bytes, &head.state.values));
        counted.map_err(|error| Error::internal(error.to_string()))?;
    }
    Ok(bytes.0)
}

impl Agents {
    async fn view(&self, thread: ThreadRecord) -> Result<ThreadView> {
        let head = match thread.head {
            Some(head) => self.store.thread_checkpoint(&thread.owner, &thread.id, head).await?,
            None => None,
        };
        Ok(ThreadView { thread, head })
    }

    /// Makes a thread.
    pub async fn create_thread(&self, caller: &Caller, new: NewThreadRequest) -> Result<ThreadView> {
        let id = new.id.unwrap_or_else(ThreadId::random);
        let operation = ExtensionOperation::new(Operation::ThreadCreate).with(id.as_str());
        let record = NewThread {
            owner: caller.owner.clone(),
            id: id.clone(),
            metadata: new.metadata,
            created_at: now_ms(),
        };
        let made = async { Ok(self.store.insert_thread(record).await?) };
        match self.core.operations.carry_out(caller, operation, made).await {
            Ok(thread) => Ok(ThreadView { thread, head: None }),
            Err(error) if error.code == ErrorCode::AlreadyExists && new.if_exists == IfExists::DoNothing => {
                self.thread(caller, &id).await
            }
            Err(error) if error.code == ErrorCode::AlreadyExists => {
                Err(Error::new(ErrorCode::AlreadyExists, format!("there is a thread {id}")).at("thread_id"))
            }
            Err(error) => Err(error),
        }
    }

    /// The caller's threads. `query.owner` is replaced by the caller's.
    pub async fn threads(&self, caller: &Caller, query: &ThreadQuery) -> Result<Vec<ThreadRecord>> {
        let query = ThreadQuery { owner: caller.owner.clone(), ..query.clone() };
        Ok(self.store.conversations(&query).await?.0)
    }

    /// The same with their states: as many as one answer has room for, and at least one; and whether these are all.
    pub async fn threads_with_states(
        &self,
        caller: &Caller,
        query: &ThreadQuery,
    ) -> Result<(Vec<ThreadView>, bool)> {
        let (mut views, mut sizes) = (Vec::new(), Vec::new());
        for thread in self.threads(caller, query).await? {
            let view = self.view(thread).await?;
            sizes.push(size(&view)?);
            if fitting(sizes.iter().copied()) < sizes.len() {
                return Ok((views, false));
            }
            views.push(view);
        }
        Ok((views, true))
    }

    /// How many there are, whatever the query's limit and offset.
    pub async fn count_threads(&self, caller: &Caller, query: &ThreadQuery) -> Result<u64> {
        let query = ThreadQuery { owner: caller.owner.clone(), ..query.clone() };
        Ok(self.store.conversations(&query).await?.1)
    }

    /// One of them.
    pub async fn thread(&self, caller: &Caller, id: &ThreadId) -> Result<ThreadView> {
        let found = self.store.conversation(&caller.owner, id).await?;
        self.view(found.ok_or_else(no_thread)?).await
    }

    /// Sets metadata: those of the same name are replaced, others stay.
    pub async fn patch_thread(
        &self,
        caller: &Caller,
        id: &ThreadId,
        metadata: Metadata,
    ) -> Result<ThreadView> {
        let operation = ExtensionOperation::new(Operation::ThreadPatch).with(id.as_str());
        let changed = async {
            let changed = self.store.merge_thread_metadata(&caller.owner, id, metadata, now_ms()).await?;
            changed.ok_or_else(no_thread)
        };
        let thread = self.core.operations.carry_out(caller, operation, changed).await?;
        self.view(thread).await
    }

    /// Copies it with its checkpoints. Its sessions stay the first one's; with `sandboxes`, the copy has forks of those that run,
    /// and its last checkpoint names these.
    pub async fn copy_thread(&self, caller: &Caller, id: &ThreadId, sandboxes: bool) -> Result<ThreadView> {
        let copy = ThreadId::random();
        let operation =
            ExtensionOperation::new(Operation::ThreadCopy).with(id.as_str()).and("copy", copy.as_str());
        let copied = async {
            let copied = self.store.copy_thread(&caller.owner, id, copy.clone(), now_ms()).await?;
            let copied = copied.ok_or_else(no_thread)?;
            if !sandboxes {
                return Ok(copied);
            }
            if let Err(error) = self.fork_sessions(caller, id, &copied).boxed().await {
                self.store.remove_conversation(&caller.owner, &copy).await?;
                return Err(error);
            }
            self.store.conversation(&caller.owner, &copy).await?.ok_or_else(no_thread)
        };
        let thread = self.core.operations.carry_out(caller, operation, copied).await?;
        self.view(thread).await
    }

    /// Forks the sessions of a thread for its copy, and adds a checkpoint in which they have their new ids.
    async fn fork_sessions(&self, caller: &Caller, of: &ThreadId, copy: &ThreadRecord) -> Result<()> {
        let who = ToolCaller { caller: caller.clone(), thread: of.clone(), address: None };
        let forked = self.sessions.fork_thread(&who, &copy.id).await?;
        let head = match copy.head {
            Some(head) => self.store.thread_checkpoint(&caller.owner, &copy.id, head).await?,
            None => None,
        };
        let Some(head) = head.filter(|_| !forked.is_empty()) else { return Ok(()) };
        let messages: Vec<Message> =
            head.state.messages.iter().map(|message| renamed(message, &forked)).collect();
        let keep = head.state.messages.iter().zip(&messages).take_while(|(old, new)| ***old == **new).count();
        let mut interrupts = head.interrupts;
        interrupts.iter_mut().for_each(|one| rename(&mut one.call.arguments, &forked));
        let new = NewCheckpoint {
            id: ThreadCheckpointId::random(),
            parent: Some(head.id),
            run: head.run,
            step: head.step + 1,
            source: CheckpointSource::Fork,
            node: head.node,
            next: head.next,
            keep,
            added: messages[keep..].to_vec(),
            values: head.state.values,
            interrupts,
            metadata: head.metadata,
            created_at: now_ms(),
        };
        Ok(self.store.append_checkpoint(&caller.owner, &copy.id, new, None).await?)
    }
}

/// Puts the new ids of sessions where a value has the old ones.
fn rename(value: &mut Value, forked: &[ForkedSession]) {
    match value {
        Value::String(text) => {
            if let Some(found) = forked.iter().find(|one| one.of == *text) {
                text.clone_from(&found.session);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| rename(value, forked)),
        Value::Object(all) => all.values_mut().for_each(|value| rename(value, forked)),
        _ => {}
    }
}

/// A message whose calls and results name the forked sessions.
fn renamed(message: &Message, forked: &[ForkedSession]) -> Message {
    let mut message = message.clone();
    for block in &mut message.content {
        match block {
            Block::ToolCall(call) => rename(&mut call.arguments, forked),
            Block::ToolResult(result) => rename(&mut result.value, forked),
            _ => {}
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::conversation::{Role, ToolCall};
    use serde_json::json;

    #[test]
    fn a_fork_has_the_ids_of_its_own_sessions() {
        let forked = [ForkedSession { of: "12345678".into(), session: "87654321".into() }];
        let arguments = json!({ "session_id": "12345678", "command": "echo 12345678" });
        let call = ToolCall { id: "a".into(), name: "t".into(), arguments, broken: None, signature: None };
        let message = Message::new("m", Role::Assistant, vec![Block::ToolCall(call)]);
        let now = renamed(&message, &forked);
        let arguments = &now.tool_calls().next().unwrap().arguments;
        assert_eq!(*arguments, json!({ "session_id": "87654321", "command": "echo 12345678" }));
        let said = Message::text("u", Role::User, "12345678");
        assert_eq!(renamed(&said, &forked), said, "what was said stays");
    }
}
