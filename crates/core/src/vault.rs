//! Encryption of what must not be in the database in plain text: the environments of sandboxes, and stored
//! responses of idempotent requests. And the keys that tokens are signed with, which are derived from the
//! same secret.

use crate::ports::PreviewKey;
use atoll_store::Sealed;
use atoll_types::{Error, MacKey, Result};
use chacha20poly1305::{
    AeadCore, ChaCha20Poly1305, KeyInit,
    aead::{Aead, OsRng, Payload},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const NONCE: usize = 12;
const EGRESS: &[u8] = b"atoll egress tokens, version 1";
const FINGERPRINT: &[u8] = b"atoll vault fingerprint, version 1";
const PASSPHRASE: &[u8] = b"atoll vault with a passphrase, version 1: ";

/// The environment of a sandbox's commands, and which variables are secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// By name.
    pub variables: BTreeMap<String, String>,
    /// The names whose values are secret.
    #[serde(default)]
    pub secret: BTreeSet<String>,
}

impl Environment {
    /// Plain variables and secret ones, which take precedence where both have a name.
    #[must_use]
    pub fn new(plain: BTreeMap<String, String>, secrets: BTreeMap<String, String>) -> Self {
        let secret = secrets.keys().cloned().collect();
        Self { variables: plain.into_iter().chain(secrets).collect(), secret }
    }

    /// The values that no audit row may show.
    pub(crate) fn secret_values(&self) -> impl Iterator<Item = String> {
        self.secret.iter().filter_map(|name| self.variables.get(name).cloned())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// Seals and opens with one key.
pub struct Vault {
    cipher: ChaCha20Poly1305,
    preview: PreviewKey,
    egress: [u8; 32],
    fingerprint: [u8; 32],
}

impl Vault {
    /// A vault with this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let cipher = ChaCha20Poly1305::new(key.into());
        let mac = MacKey::new(key);
        let (egress, fingerprint) = (mac.derive(EGRESS), mac.derive(FINGERPRINT));
        Self { cipher, preview: PreviewKey::derive(key), egress, fingerprint }
    }

    /// A vault with a key that the operator keeps elsewhere too: the server's own key alone does not open it.
    #[must_use]
    pub fn with_passphrase(key: &[u8; 32], passphrase: &str) -> Self {
        Self::new(&MacKey::new(key).sign(&[PASSPHRASE, passphrase.as_bytes()]))
    }

    /// Tells this vault's key from others, and nothing about it.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The key that preview tokens are signed with.
    pub(crate) fn preview(&self) -> &PreviewKey {
        &self.preview
    }

    /// The key that tokens for the proxy are signed with.
    pub(crate) fn egress(&self) -> &[u8; 32] {
        &self.egress
    }

    /// A new random key.
    #[must_use]
    pub fn random_key() -> [u8; 32] {
        ChaCha20Poly1305::generate_key(&mut OsRng).into()
    }

    /// Seals an environment for one sandbox: it opens for no other.
    pub fn seal(&self, sandbox: &str, environment: &Environment) -> Result<Sealed> {
        let plain = serde_json::to_vec(environment).map_err(|e| Error::internal(e.to_string()))?;
        self.seal_bytes(sandbox, &plain)
    }

    /// Opens what was sealed for this sandbox.
    pub fn open(&self, sandbox: &str, sealed: &Sealed) -> Result<Environment> {
        serde_json::from_slice(&self.open_bytes(sandbox, sealed)?).map_err(|_| broken())
    }

    /// Seals bytes for one context: they open in no other.
    pub(crate) fn seal_bytes(&self, context: &str, plain: &[u8]) -> Result<Sealed> {
        let nonce = ChaCha20Poly1305::generate_nonce(&mut OsRng);
        let payload = Payload { msg: plain, aad: context.as_bytes() };
        let sealed = self.cipher.encrypt(&nonce, payload).map_err(|_| Error::internal("cannot seal"))?;
        Ok(Sealed([nonce.as_slice(), &sealed].concat()))
    }

    /// Opens what was sealed for this context.
    pub(crate) fn open_bytes(&self, context: &str, sealed: &Sealed) -> Result<Vec<u8>> {
        let (nonce, sealed) = sealed.0.split_at_checked(NONCE).ok_or_else(broken)?;
        let payload = Payload { msg: sealed, aad: context.as_bytes() };
        self.cipher.decrypt(nonce.into(), payload).map_err(|_| broken())
    }
}

fn broken() -> Error {
    Error::internal("what is sealed in the database cannot be opened; was the secret key replaced?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_for_its_sandbox_and_key_only() {
        let vault = Vault::new(&Vault::random_key());
        let environment =
            Environment::new(BTreeMap::new(), [("TOKEN".to_string(), "hunter2".to_string())].into());
        assert!(!format!("{environment:?}").contains("hunter2"));
        let sealed = vault.seal("a", &environment).unwrap();
        assert!(!sealed.0.windows(7).any(|w| w == b"hunter2"));
        assert_eq!(vault.open("a", &sealed), Ok(environment));
        assert!(vault.open("b", &sealed).is_err());
        assert!(Vault::new(&Vault::random_key()).open("a", &sealed).is_err());
        assert!(vault.open("a", &Sealed(vec![1, 2])).is_err());
    }

    #[test]
    fn a_passphrase_is_needed_beside_the_key() {
        let key = Vault::random_key();
        let of = |passphrase: Option<&str>| match passphrase {
            Some(passphrase) => Vault::with_passphrase(&key, passphrase),
            None => Vault::new(&key),
        };
        let sealed = of(Some("p")).seal_bytes("a", b"secret").unwrap();
        assert_eq!(of(Some("p")).open_bytes("a", &sealed).unwrap(), b"secret");
        assert_eq!(of(Some("p")).fingerprint(), of(Some("p")).fingerprint());
        for other in [None, Some(""), Some("q")] {
            assert!(of(other).open_bytes("a", &sealed).is_err(), "{other:?}");
            assert_ne!(of(other).fingerprint(), of(Some("p")).fingerprint(), "{other:?}");
        }
    }
}
