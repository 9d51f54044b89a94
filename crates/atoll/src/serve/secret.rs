//! The key that environments are encrypted with and the audit trail's keys are derived from: a file that only
//! the server can read, made once.
//!
//! With `ENCRYPTION_KEY` the vault needs that too, so that a copy of the data folder opens nothing. Which of both it was is
//! remembered beside the key, as a fingerprint: a server that could not open what is stored does not start.

use atoll_core::Vault;
use atoll_types::{Error, Result};
use std::{fs, io, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

fn whole(bytes: Vec<u8>) -> Result<[u8; 32]> {
    bytes.try_into().map_err(|_| {
        Error::internal(
            "secret.key is damaged; restore it from a backup, or delete it and lose every environment",
        )
    })
}

/// Reads the key; makes none.
pub(crate) fn load(path: &Path) -> Result<[u8; 32]> {
    let bytes = fs::read(path)
        .map_err(|e| Error::internal(format!("the server's secret.key cannot be read: {e}")))?;
    whole(bytes)
}

/// Writes a file whole or not at all: a half-written key would lose every environment.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

fn wrong_passphrase(why: &str) -> Error {
    Error::invalid("ENCRYPTION_KEY", format!("ENCRYPTION_KEY: {why}"))
}

/// Reads the key, or makes one where there is none, for a vault with this passphrase. One that is too short is refused before
/// anything is written: its fingerprint would stay, and the folder would start with no other.
pub(super) fn load_or_make(path: &Path, passphrase: Option<&str>) -> Result<[u8; 32]> {
    if passphrase.is_some_and(|text| text.len() < SHORTEST) {
        return Err(wrong_passphrase(&format!("must have at least {SHORTEST} bytes")));
    }
    let fault = |e: io::Error| Error::internal(format!("the secret key cannot be read or made: {e}"));
    match fs::read(path) {
        Ok(bytes) => whole(bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let key = Vault::random_key();
            // Before the key: with a fingerprint and no key the next start makes both anew.
            let mark = path.with_extension("fingerprint");
            match passphrase {
                Some(passphrase) => {
                    write(&mark, &Vault::with_passphrase(&key, passphrase).fingerprint()).map_err(fault)?;
                }
                None if mark.exists() => fs::remove_file(&mark).map_err(fault)?,
                None => {}
            }
            write(path, &key).map_err(fault)?;
            Ok(key)
        }
        Err(e) => Err(fault(e)),
    }
}

/// What the operator has set for the vault. It counts in the environment alone, as `config::env_file` says.
pub(super) fn passphrase() -> Option<String> {
    std::env::var("ENCRYPTION_KEY").ok().filter(|text| !text.is_empty())
}

/// The shortest `ENCRYPTION_KEY`, in bytes.
const SHORTEST: usize = 32;

/// The vault of a server whose own key is in this file.
pub(super) fn vault(path: &Path, key: &[u8; 32], passphrase: Option<&str>) -> Result<Vault> {
    let vault =
        passphrase.map_or_else(|| Vault::new(key), |passphrase| Vault::with_passphrase(key, passphrase));
    let fault = |e: io::Error| Error::internal(format!("the fingerprint of the vault cannot be read: {e}"));
    let sealed_by = match fs::read(path.with_extension("fingerprint")) {
        Ok(bytes) => bytes,
        // What was made without it has none.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vault::new(key).fingerprint().to_vec(),
        Err(e) => return Err(fault(e)),
    };
    match (sealed_by == vault.fingerprint(), passphrase) {
        (true, _) => Ok(vault),
        (false, None) => Err(wrong_passphrase("this data folder was sealed with one, which must be set")),
        (false, Some(_)) => Err(wrong_passphrase(
            "this data folder was sealed with another one, or before there was one; it counts from the first start on",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_made_once_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let first = load_or_make(&path, None).unwrap();
        assert_eq!(load_or_make(&path, None).unwrap(), first);
        assert_eq!(load(&path).unwrap(), first);
        assert!(load(&folder.path().join("other.key")).is_err() && !folder.path().join("other.key").exists());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "short").unwrap();
        assert!(load_or_make(&path, None).is_err());
    }

    #[test]
    fn a_vault_with_a_passphrase_opens_with_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let (first, other) =
            ("a passphrase of 32 bytes or more, one", "a passphrase of 32 bytes or more, two");
        assert!(load_or_make(&path, Some("short")).unwrap_err().message.contains("32 bytes"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the refused one leaves nothing behind");
        let key = load_or_make(&path, Some(first)).unwrap();
        assert_eq!(load_or_make(&path, Some(first)).unwrap(), key);
        assert!(vault(&path, &key, Some(first)).is_ok());
        for wrong in [None, Some(other)] {
            let error = vault(&path, &key, wrong).err().unwrap();
            assert!(error.message.starts_with("ENCRYPTION_KEY: "), "{wrong:?}: {error}");
        }
        // One that was made without a passphrase needs none, and takes none.
        fs::remove_file(&path).unwrap();
        let key = load_or_make(&path, None).unwrap();
        assert!(vault(&path, &key, None).is_ok() && vault(&path, &key, Some(first)).is_err());
    }
}
