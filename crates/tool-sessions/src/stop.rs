//! Ending sessions: because a caller requested it, because their thread was removed, or because the collector
//! found that they are due. The sandbox is destroyed first and its records removed after, so that none is
//! forgotten.

use crate::{
    Sessions, ToolCaller, ToolReply,
    failure::ToolResult,
    tools::{input::StopSession, output::SessionStopped},
};
use atoll_core::{Caller, ExtensionOperation};
use atoll_store::ToolSession;
use atoll_types::{ErrorCode, Operation, Result};

impl Sessions {
    pub(crate) async fn stop(&self, who: &ToolCaller, input: StopSession) -> ToolResult {
        let session = match self.find(who, &input.session_id).await {
            Ok(session) => session,
            Err(error) if error.code == ErrorCode::NotFound => {
                return Ok(ToolReply::of(&SessionStopped { success: false }));
            }
            Err(error) => return Err(error.into()),
        };
        let operation = ExtensionOperation::new(Operation::SessionStop)
            .with(session.id.to_string())
            .and("thread", &who.thread);
        let operation = operation.and("sandbox", session.sandbox);
        let stopping = async {
            match self.core.sandboxes.destroy(&who.caller, session.sandbox).await {
                // Another call was faster.
                Err(error) if error.code == ErrorCode::NotFound => {}
                other => other?,
            }
            Ok(self.store.remove_tool_session(session.id).await?)
        };
        let success = self.core.operations.carry_out(&who.caller, operation, stopping).await?;
        Ok(ToolReply::of(&SessionStopped { success }))
    }

    /// Ends a session without a request for it, for a reason that the event and the audit trail name.
    pub(crate) async fn end(&self, session: &ToolSession, reason: &str) -> Result<()> {
        let caller = Caller::lifecycle(&session.owner, &session.owner_name);
        let operation = ExtensionOperation::new(Operation::SessionStop)
            .with(session.id.to_string())
            .and("thread", &session.thread);
        let operation = operation.and("sandbox", session.sandbox).and("reason", reason);
        let ending = async {
            self.core.sandboxes.end(session.sandbox, reason).await?;
            self.store.remove_tool_session(session.id).await?;
            Ok(())
        };
        self.core.operations.carry_out(&caller, operation, ending).await
    }

    /// Ends all sessions of a thread, with their exports and the thread's uploads. Returns how many there
    /// were.
    pub async fn delete_thread(&self, who: &ToolCaller, reason: &str) -> Result<usize> {
        let operation = ExtensionOperation::new(Operation::ThreadDelete)
            .with(who.thread.to_string())
            .and("reason", reason);
        let (owner, thread) = (who.caller.owner.as_str(), who.thread.as_str());
        let deleting = async {
            let sessions = self.store.tool_sessions(Some((owner, thread))).await?;
            for session in &sessions {
                self.end(session, reason).await?;
            }
            self.remove_uploads(owner, thread).await?;
            self.store.remove_tool_thread(owner, thread).await?;
            Ok(sessions.len())
        };
        self.core.operations.carry_out(&who.caller, operation, deleting).await
    }
}
