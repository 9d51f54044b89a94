//! Conversations whose client has gone. Their sessions wait for a client that comes back, and are the first to end
//! where their owner needs a slot. A restart of the server forgets which these are; their sessions end when they
//! have been idle for long.

use crate::{Sessions, ToolCaller};
use atoll_store::{ToolSession, ToolStatus};
use atoll_types::Result;
use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Owners and threads whose client has gone.
#[derive(Debug, Default)]
pub(crate) struct LeftThreads(Mutex<HashSet<(String, String)>>);

impl LeftThreads {
    fn all(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, session: &ToolSession) -> bool {
        self.all().contains(&(session.owner.clone(), session.thread.clone()))
    }

    /// Forgets all but these.
    pub(crate) fn retain(&self, with_sessions: &HashSet<(String, String)>) {
        self.all().retain(|thread| with_sessions.contains(thread));
    }
}

fn key(who: &ToolCaller) -> (String, String) {
    (who.caller.owner.clone(), who.thread.to_string())
}

impl Sessions {
    /// The last client of a thread has gone. Its sessions stay until their owner needs a slot.
    pub async fn client_left(&self, who: &ToolCaller) -> Result<()> {
        let sessions = self.store.tool_sessions(Some((&who.caller.owner, who.thread.as_str()))).await?;
        if !sessions.is_empty() {
            self.left.all().insert(key(who));
        }
        Ok(())
    }

    /// A client of a thread is there.
    pub fn client_came(&self, who: &ToolCaller) {
        self.left.all().remove(&key(who));
    }

    /// Ends the least recently used session of the owner whose client has gone and in which nothing runs. False
    /// where there is none.
    pub(crate) async fn end_left(&self, who: &ToolCaller) -> Result<bool> {
        let all = self.store.tool_sessions(None).await?;
        let idle = all.iter().filter(|session| {
            session.owner == who.caller.owner
                && session.status == ToolStatus::Running
                && self.left.has(session)
                && !self.core.sandboxes.is_active(session.sandbox)
        });
        let Some(session) = idle.min_by_key(|session| session.active_at) else { return Ok(false) };
        self.end(session, "its client had gone, and another session needed its slot").await?;
        Ok(true)
    }
}
