//! Preview tokens, with faults.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{Millis, PreviewTokenId, PreviewTokenRecord, PreviewTokens, Result, SandboxId, StoreError};

#[async_trait]
impl PreviewTokens for Broken {
    async fn insert_preview_token(&self, token: PreviewTokenRecord) -> Result<()> {
        match (self.inner.insert_preview_token(token).await, self.fault) {
            (Err(StoreError::Beyond(_)), Fault::AllowsManyTokens) => Ok(()),
            (result, _) => result,
        }
    }

    async fn preview_token(
        &self,
        sandbox: SandboxId,
        id: PreviewTokenId,
        now: Millis,
    ) -> Result<Option<PreviewTokenRecord>> {
        let now = if self.is(Fault::FindsExpiredTokens) { 0 } else { now };
        self.inner.preview_token(sandbox, id, now).await
    }

    async fn preview_tokens(&self, sandbox: SandboxId, now: Millis) -> Result<Vec<PreviewTokenRecord>> {
        self.inner.preview_tokens(sandbox, now).await
    }

    async fn remove_preview_token(&self, sandbox: SandboxId, id: PreviewTokenId) -> Result<bool> {
        if self.is(Fault::KeepsRevokedTokens) {
            return Ok(true);
        }
        self.inner.remove_preview_token(sandbox, id).await
    }
}
