//! Encryption of what must not lie in the database in plain: the environments of sandboxes. And the key
//! that preview tokens are signed with, which is derived from the same secret.

use crate::preview::PreviewKey;
use atoll_store::Sealed;
use atoll_types::{Error, Result};
use chacha20poly1305::{
    AeadCore, ChaCha20Poly1305, KeyInit,
    aead::{Aead, OsRng, Payload},
};
use std::collections::BTreeMap;

const NONCE: usize = 12;

/// Seals and opens with one key.
pub struct Vault {
    cipher: ChaCha20Poly1305,
    preview: PreviewKey,
}

impl Vault {
    /// A vault with this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self { cipher: ChaCha20Poly1305::new(key.into()), preview: PreviewKey::derive(key) }
    }

    /// What preview tokens are signed with.
    pub(crate) fn preview(&self) -> &PreviewKey {
        &self.preview
    }

    /// A new random key.
    #[must_use]
    pub fn random_key() -> [u8; 32] {
        ChaCha20Poly1305::generate_key(&mut OsRng).into()
    }

    /// Seals an environment for one sandbox: it opens for no other.
    pub fn seal(&self, sandbox: &str, environment: &BTreeMap<String, String>) -> Result<Sealed> {
        let plain = serde_json::to_vec(environment).map_err(|e| Error::internal(e.to_string()))?;
        let nonce = ChaCha20Poly1305::generate_nonce(&mut OsRng);
        let payload = Payload { msg: &plain, aad: sandbox.as_bytes() };
        let sealed = self
            .cipher
            .encrypt(&nonce, payload)
            .map_err(|_| Error::internal("cannot seal an environment"))?;
        Ok(Sealed([nonce.as_slice(), &sealed].concat()))
    }

    /// Opens what was sealed for this sandbox.
    pub fn open(&self, sandbox: &str, sealed: &Sealed) -> Result<BTreeMap<String, String>> {
        let broken = || Error::internal("an environment cannot be opened; was the secret key replaced?");
        let (nonce, sealed) = sealed.0.split_at_checked(NONCE).ok_or_else(broken)?;
        let payload = Payload { msg: sealed, aad: sandbox.as_bytes() };
        let plain = self.cipher.decrypt(nonce.into(), payload).map_err(|_| broken())?;
        serde_json::from_slice(&plain).map_err(|_| broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_for_its_sandbox_and_key_only() {
        let vault = Vault::new(&Vault::random_key());
        let environment: BTreeMap<_, _> = [("TOKEN".to_string(), "hunter2".to_string())].into();
        let sealed = vault.seal("a", &environment).unwrap();
        assert!(!sealed.0.windows(7).any(|w| w == b"hunter2"));
        assert_eq!(vault.open("a", &sealed), Ok(environment));
        assert!(vault.open("b", &sealed).is_err());
        assert!(Vault::new(&Vault::random_key()).open("a", &sealed).is_err());
        assert!(vault.open("a", &Sealed(vec![1, 2])).is_err());
    }
}
