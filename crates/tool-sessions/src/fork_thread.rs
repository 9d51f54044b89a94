//! The sessions of a conversation that is copied together with its sandboxes.

use crate::{Sessions, ToolCaller, create::Origin, failure::Failure, runtime, tools::input::CreateSession};
use atoll_store::{ToolSession, ToolStatus};
use atoll_types::{Error, ErrorCode, Result, ThreadId};
use futures_util::FutureExt;

/// A session and the one that was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedSession {
    /// The id in the first thread.
    pub of: String,
    /// The id in the other one.
    pub session: String,
}

impl Sessions {
    /// Makes sessions of another thread with the files of those that run in this one: all of them, or none. Their variables are
    /// their own.
    pub async fn fork_thread(&self, who: &ToolCaller, to: &ThreadId) -> Result<Vec<ForkedSession>> {
        let target = ToolCaller { thread: to.clone(), ..who.clone() };
        let all = self.store.tool_sessions(Some((&who.caller.owner, who.thread.as_str()))).await?;
        let mut forked = Vec::new();
        for of in all.into_iter().filter(|session| session.status == ToolStatus::Running) {
            match self.fork_session(&target, &of).boxed().await {
                Ok(session) => forked.push(ForkedSession { of: of.id.to_string(), session }),
                Err(error) => {
                    self.delete_thread(&target, "another session of its thread cannot be forked").await?;
                    return Err(error);
                }
            }
        }
        Ok(forked)
    }

    async fn fork_session(&self, who: &ToolCaller, of: &ToolSession) -> Result<String> {
        let _using = self.core.sandboxes.keep_active(of.sandbox);
        let (language, dependencies) = (runtime(of), of.dependencies.clone());
        let input = CreateSession { language, dependencies, ..CreateSession::default() };
        let made = self.create_from(who, input, Origin::Fork(of.sandbox, None), &mut |_| {}).await;
        let reply = made.map_err(|failure| match failure {
            Failure::Other { error, .. } => error,
            Failure::Died { reason, .. } => Error::new(ErrorCode::ContainerDied, reason),
            Failure::Invalid(_) => Error::internal("an input was not checked"),
        })?;
        let id = reply.value["session_id"].as_str();
        id.map(str::to_owned).ok_or_else(|| Error::internal("a forked session has no id"))
    }
}
