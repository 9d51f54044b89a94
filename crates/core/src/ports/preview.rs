//! Bearer tokens that open a sandbox's port for a while. A token is the id of its record, signed for its sandbox: a forged one is
//! refused before the database is asked, and the database holds nothing that opens a port. It is void once its record is
//! removed or expires, or its sandbox is destroyed.

use crate::{Caller, PortAccess, TokenUse, bounds::TOKEN_SECONDS, operation::OperationSpec};
use atoll_store::{PreviewTokenId, PreviewTokenRecord, SandboxId};
use atoll_types::{Error, ErrorCode, MacKey, Operation, Result, time::now_ms};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

/// The default validity of a token.
const USUAL_SECONDS: u32 = 3600;

const VERSION: u8 = 2;
/// Version and id; the signature follows.
const CLAIMS: usize = 1 + 16;
const SIGNATURE: usize = 32;
/// Names what the key is for, so that no other use of the same secret gives the same bytes. Tokens of version 1, which had
/// no record, are signed with another.
const PURPOSE: &[u8] = b"atoll preview tokens, version 2";

/// A token that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewToken {
    /// What the client sends.
    pub token: String,
    /// What is stored of it.
    pub record: PreviewTokenRecord,
}

/// What tokens are signed with.
pub(crate) struct PreviewKey(MacKey);

impl PreviewKey {
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self(MacKey::new(&MacKey::new(secret).derive(PURPOSE)))
    }

    fn sign(&self, sandbox: SandboxId, id: PreviewTokenId) -> String {
        let mut token = vec![VERSION];
        token.extend(id.uuid().as_bytes());
        let signature = self.0.sign(&[sandbox.uuid().as_bytes(), &token]);
        token.extend(signature);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The id in a token, if this server made it for this sandbox.
    fn check(&self, token: &str, sandbox: SandboxId) -> Option<PreviewTokenId> {
        let token = URL_SAFE_NO_PAD.decode(token).ok().filter(|t| t.len() == CLAIMS + SIGNATURE)?;
        let (claims, signature) = token.split_at(CLAIMS);
        // In constant time, and before any field is read.
        self.0.verify(&[sandbox.uuid().as_bytes(), claims], signature).then_some(())?;
        let (version, id) = claims.split_first()?;
        let id = Uuid::from_slice(id).ok().filter(|_| *version == VERSION)?;
        Some(PreviewTokenId::from_uuid(id))
    }
}

impl PortAccess {
    /// Makes a token for one port of a sandbox, or for all of them.
    pub async fn preview_token(
        &self,
        caller: &Caller,
        id: SandboxId,
        port: Option<u16>,
        ttl_seconds: Option<u32>,
    ) -> Result<PreviewToken> {
        if port == Some(0) {
            return Err(Error::invalid("port", "port must be between 1 and 65535"));
        }
        let ttl = ttl_seconds.unwrap_or(USUAL_SECONDS);
        if !TOKEN_SECONDS.contains(&ttl) {
            let message = format!("ttl_seconds must be between 1 and {} (7 days)", TOKEN_SECONDS.end());
            return Err(Error::invalid("ttl_seconds", message));
        }
        let created_at = now_ms();
        let expires_at = created_at + i64::from(ttl) * 1000;
        let record =
            PreviewTokenRecord { id: PreviewTokenId::random(), sandbox: id, port, created_at, expires_at };
        let what = OperationSpec::to(Operation::PreviewToken, id)
            .and("ttl_seconds", ttl)
            .and("token_id", record.id.uuid());
        let what = port.into_iter().fold(what, |what, port| what.and("port", port));
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            self.registry.check_state(id, audited.kind()).await?;
            self.store.insert_preview_token(record.clone()).await?;
            Ok(PreviewToken { token: self.vault.preview().sign(id, record.id), record })
        }
        .await;
        audited.done(result).await
    }

    /// The tokens of a sandbox that are valid, the newest first. They are no tokens to send: those are not stored.
    pub async fn preview_tokens(&self, caller: &Caller, id: SandboxId) -> Result<Vec<PreviewTokenRecord>> {
        self.operations.visible(caller, id).await?;
        self.registry.check_state(id, Operation::PreviewToken).await?;
        Ok(self.store.preview_tokens(id, now_ms()).await?)
    }

    /// Revokes a token, and ends the connections that it opened.
    pub async fn revoke_preview_token(
        &self,
        caller: &Caller,
        id: SandboxId,
        token: PreviewTokenId,
    ) -> Result<()> {
        let what = OperationSpec::to(Operation::PreviewRevoke, id).and("token_id", token.uuid());
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            self.registry.check_state(id, audited.kind()).await?;
            let removed = self.store.remove_preview_token(id, token).await?;
            // Also where an earlier request removed it: its client may have gone before this.
            self.token_uses.end((id, token));
            let missing = || Error::new(ErrorCode::NotFound, "the sandbox has no preview token with this id");
            removed.then_some(()).ok_or_else(missing)
        }
        .await;
        audited.done(result).await
    }

    /// The use of a token, if it opens this port of this sandbox.
    pub(crate) async fn check_preview(&self, token: &str, id: SandboxId, port: u16) -> Result<TokenUse> {
        let refused = || {
            let message =
                "the preview token is not for this port of this sandbox, was revoked or has expired";
            Error::new(ErrorCode::PermissionDenied, message)
        };
        let token = self.vault.preview().check(token, id).ok_or_else(refused)?;
        let mut valid = self.token_uses.enter((id, token));
        let record = self.store.preview_token(id, token, now_ms()).await?.ok_or_else(refused)?;
        let PreviewTokenRecord { port: opened, expires_at, .. } = record;
        if opened.is_some_and(|opened| opened != port) {
            return Err(refused());
        }
        valid.expires_at = expires_at;
        Ok(valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_its_sandbox_and_server() {
        let key = PreviewKey::derive(&[7; 32]);
        let (one, other, id) = (SandboxId::random(), SandboxId::random(), PreviewTokenId::random());
        let token = key.sign(one, id);
        assert_eq!(key.check(&token, one), Some(id));
        assert_eq!(key.check(&token, other), None, "another sandbox");
        assert_eq!(PreviewKey::derive(&[8; 32]).check(&token, one), None, "another server");
    }

    #[test]
    fn no_changed_token_opens_anything() {
        let (key, sandbox) = (PreviewKey::derive(&[7; 32]), SandboxId::random());
        let token = key.sign(sandbox, PreviewTokenId::random());
        let raw = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..raw.len() * 8 {
            let mut spoiled = raw.clone();
            spoiled[at / 8] ^= 1 << (at % 8);
            let spoiled = URL_SAFE_NO_PAD.encode(spoiled);
            assert_eq!(key.check(&spoiled, sandbox), None, "bit {at}");
        }
        for text in ["", "x", &token[1..], &format!("{token}A"), &format!("{token}="), "é"] {
            assert_eq!(key.check(text, sandbox), None, "{text:?}");
        }
    }
}
