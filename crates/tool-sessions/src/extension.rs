//! For tools beyond the six: their work in a session's sandbox follows the same rules. The session must be
//! the thread's and alive, the collector leaves it alone meanwhile, and a failure is a reply.

use crate::{Sessions, ToolCaller, ToolReply, failure::Failure};
use atoll_store::SandboxId;
use atoll_types::{Result, time::now_ms};
use serde_json::Value;

impl Sessions {
    /// Runs work in a session's sandbox.
    pub async fn beyond<F>(
        &self,
        who: &ToolCaller,
        session: &str,
        work: impl FnOnce(SandboxId) -> F,
    ) -> ToolReply
    where
        F: Future<Output = Result<Value>>,
    {
        let answer = async {
            let (session, _using) = self.use_session(who, session).await?;
            let done = work(session.sandbox).await;
            self.store.touch_tool_session(session.id, now_ms()).await?;
            match done {
                Ok(value) => Ok(ToolReply { value, failure: None, images: Vec::new(), changed: None }),
                Err(error) => Err(self.failed_in(&session, error).await),
            }
        };
        self.reply_of(who, answer.await).await
    }

    /// The reply of work in no session.
    pub async fn reply(&self, who: &ToolCaller, done: Result<Value>) -> ToolReply {
        let reply = |value| ToolReply { value, failure: None, images: Vec::new(), changed: None };
        self.reply_of(who, done.map(reply).map_err(Failure::from)).await
    }
}
