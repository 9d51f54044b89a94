//! Faults with tool sessions.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{
    McpSession, McpSessions, Millis, Result, SessionLimits, SessionSlot, StoreError, Thing, ToolExport,
    ToolSession, ToolSessionId, ToolSessions, ToolStatus, ToolThread,
};
use atoll_types::KernelId;

#[async_trait]
impl ToolSessions for Broken {
    async fn insert_tool_session(
        &self,
        mut session: ToolSession,
        mut limits: SessionLimits,
    ) -> Result<SessionSlot> {
        match self.fault {
            Fault::LosesDependencies => session.dependencies.clear(),
            Fault::SeatsEverybody => limits = SessionLimits { of_owner: u32::MAX, of_thread: u32::MAX },
            _ => {}
        }
        self.inner.insert_tool_session(session, limits).await
    }

    async fn tool_session(&self, id: ToolSessionId) -> Result<Option<ToolSession>> {
        self.inner.tool_session(id).await
    }

    async fn tool_sessions(&self, of: Option<(&str, &str)>) -> Result<Vec<ToolSession>> {
        match (of, self.fault) {
            (Some((_, thread)), Fault::MixesThreads) => {
                let all = self.inner.tool_sessions(None).await?;
                Ok(all.into_iter().filter(|session| session.thread == thread).collect())
            }
            _ => self.inner.tool_sessions(of).await,
        }
    }

    async fn set_tool_session(
        &self,
        id: ToolSessionId,
        status: ToolStatus,
        reason: Option<&str>,
    ) -> Result<bool> {
        self.inner.set_tool_session(id, status, reason).await
    }

    async fn start_tool_session(&self, id: ToolSessionId, kernel: KernelId) -> Result<bool> {
        self.inner.start_tool_session(id, kernel).await
    }

    async fn touch_tool_session(&self, id: ToolSessionId, at: Millis) -> Result<()> {
        if self.is(Fault::ForgetsWhatWasDone) {
            return Ok(());
        }
        self.inner.touch_tool_session(id, at).await
    }

    async fn remove_tool_session(&self, id: ToolSessionId) -> Result<bool> {
        if self.is(Fault::KeepsExports) {
            for export in self.inner.tool_exports(id).await? {
                self.kept.lock().unwrap().push(export);
            }
        }
        self.inner.remove_tool_session(id).await
    }

    async fn touch_tool_thread(&self, owner: &str, thread: &str, at: Millis) -> Result<()> {
        self.inner.touch_tool_thread(owner, thread, at).await
    }

    async fn tool_threads(&self) -> Result<Vec<ToolThread>> {
        self.inner.tool_threads().await
    }

    async fn remove_tool_thread(&self, owner: &str, thread: &str) -> Result<bool> {
        self.inner.remove_tool_thread(owner, thread).await
    }

    async fn put_tool_export(&self, export: ToolExport) -> Result<()> {
        match (self.inner.put_tool_export(export).await, self.fault) {
            (Err(StoreError::NotFound(Thing::Session)), Fault::ExportsForNobody) => Ok(()),
            (result, _) => result,
        }
    }

    async fn tool_exports(&self, session: ToolSessionId) -> Result<Vec<ToolExport>> {
        let mut exports = self.inner.tool_exports(session).await?;
        exports.extend(self.kept.lock().unwrap().iter().filter(|one| one.session == session).cloned());
        Ok(exports)
    }
}

#[async_trait]
impl McpSessions for Broken {
    async fn put_mcp_session(&self, mut session: McpSession) -> Result<()> {
        if self.is(Fault::ForgetsTheThread) {
            session.thread = None;
        }
        self.inner.put_mcp_session(session).await
    }

    async fn mcp_session(&self, id: &str) -> Result<Option<McpSession>> {
        self.inner.mcp_session(id).await
    }

    async fn touch_mcp_sessions(&self, ids: &[String], at: Millis) -> Result<()> {
        self.inner.touch_mcp_sessions(ids, at).await
    }

    async fn remove_mcp_session(&self, id: &str) -> Result<bool> {
        self.inner.remove_mcp_session(id).await
    }

    async fn mcp_sessions(&self) -> Result<Vec<McpSession>> {
        self.inner.mcp_sessions().await
    }

    async fn count_mcp_sessions(&self, holder: &str) -> Result<(u64, u64)> {
        self.inner.count_mcp_sessions(holder).await
    }
}
