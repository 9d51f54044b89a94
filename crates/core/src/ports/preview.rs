//! Bearer tokens that open a sandbox's port for a while. The server stores none of them: a token consists of
//! what it allows, signed. It is void once it expires or its sandbox is destroyed.

use crate::{Caller, PortAccess, bounds::TOKEN_SECONDS, operation::OperationSpec};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, MacKey, Operation, Result, time::now_s};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// The default validity of a token.
const USUAL_SECONDS: u32 = 3600;

const VERSION: u8 = 1;
/// Version, port and end; the signature follows.
const CLAIMS: usize = 1 + 2 + 8;
const SIGNATURE: usize = 32;
/// Names what the key is for, so that no other use of the same secret gives the same bytes.
const PURPOSE: &[u8] = b"atoll preview tokens, version 1";

/// A token that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewToken {
    /// What the client sends.
    pub token: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: i64,
}

/// What tokens are signed with.
pub(crate) struct PreviewKey(MacKey);

impl PreviewKey {
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self(MacKey::new(&MacKey::new(secret).derive(PURPOSE)))
    }

    /// Signs access to one port, or to every port, until `end` in seconds since 1970.
    fn sign(&self, sandbox: SandboxId, port: Option<u16>, end: u64) -> String {
        let mut token = vec![VERSION];
        token.extend(port.unwrap_or(0).to_be_bytes());
        token.extend(end.to_be_bytes());
        let signature = self.0.sign(&[sandbox.uuid().as_bytes(), &token]);
        token.extend(signature);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// When the token ends, if it opens this port of this sandbox at this moment.
    fn check(&self, token: &str, sandbox: SandboxId, port: u16, now: u64) -> Option<u64> {
        let token = URL_SAFE_NO_PAD.decode(token).ok().filter(|t| t.len() == CLAIMS + SIGNATURE)?;
        let (claims, signature) = token.split_at(CLAIMS);
        // In constant time, and before any field is read.
        self.0.verify(&[sandbox.uuid().as_bytes(), claims], signature).then_some(())?;
        let (version, rest) = claims.split_first()?;
        let (allowed, end) = rest.split_first_chunk::<2>()?;
        let (allowed, end) = (u16::from_be_bytes(*allowed), u64::from_be_bytes(end.try_into().ok()?));
        (*version == VERSION && (allowed == 0 || allowed == port) && now < end).then_some(end)
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
        let what = OperationSpec::to(Operation::PreviewToken, id).and("ttl_seconds", ttl);
        let what = port.into_iter().fold(what, |what, port| what.and("port", port));
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            self.registry.check_state(id, audited.kind()).await?;
            let end = now_s() + u64::from(ttl);
            let token = self.vault.preview().sign(id, port, end);
            Ok(PreviewToken { token, expires_at: i64::try_from(end * 1000).unwrap_or(i64::MAX) })
        }
        .await;
        audited.done(result).await
    }

    /// When a token ends, in seconds since 1970, if it opens this port of this sandbox.
    pub(crate) fn check_preview(&self, token: &str, id: SandboxId, port: u16) -> Result<u64> {
        let refused = || {
            let message = "the preview token is not for this port of this sandbox, or has expired";
            Error::new(ErrorCode::PermissionDenied, message)
        };
        self.vault.preview().check(token, id, port, now_s()).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_what_it_says_until_it_ends() {
        let key = PreviewKey::derive(&[7; 32]);
        let (one, other) = (SandboxId::random(), SandboxId::random());
        let token = key.sign(one, Some(8080), 1000);
        assert_eq!(key.check(&token, one, 8080, 999), Some(1000));
        assert_eq!(key.check(&token, one, 8080, 1000), None, "expired");
        assert_eq!(key.check(&token, one, 8081, 999), None, "another port");
        assert_eq!(key.check(&token, other, 8080, 999), None, "another sandbox");
        assert_eq!(PreviewKey::derive(&[8; 32]).check(&token, one, 8080, 999), None, "another server");
        assert_eq!(key.check(&key.sign(one, None, 1000), one, 9, 0), Some(1000));
    }

    #[test]
    fn no_changed_token_opens_anything() {
        let (key, sandbox) = (PreviewKey::derive(&[7; 32]), SandboxId::random());
        let token = key.sign(sandbox, Some(8080), 1000);
        let raw = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..raw.len() * 8 {
            let mut spoiled = raw.clone();
            spoiled[at / 8] ^= 1 << (at % 8);
            let spoiled = URL_SAFE_NO_PAD.encode(spoiled);
            assert_eq!(key.check(&spoiled, sandbox, 8080, 0), None, "bit {at}");
        }
        for text in ["", "x", &token[1..], &format!("{token}A"), &format!("{token}="), "é"] {
            assert_eq!(key.check(text, sandbox, 8080, 0), None, "{text:?}");
        }
    }
}
