//! The key that environments are encrypted with and the audit trail's keys are derived from: a file that only
//! the server can read, made once.

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

/// Reads the key, or makes one where there is none.
pub(super) fn load_or_make(path: &Path) -> Result<[u8; 32]> {
    let fault = |e: io::Error| Error::internal(format!("the secret key cannot be read or made: {e}"));
    match fs::read(path) {
        Ok(bytes) => whole(bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let key = Vault::random_key();
            // Whole or not at all: a half-written key would lose every environment.
            let temporary = path.with_extension("new");
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)
                .map_err(fault)?;
            file.write_all(&key).and_then(|()| file.sync_all()).map_err(fault)?;
            fs::rename(&temporary, path).map_err(fault)?;
            Ok(key)
        }
        Err(e) => Err(fault(e)),
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
        let first = load_or_make(&path).unwrap();
        assert_eq!(load_or_make(&path).unwrap(), first);
        assert_eq!(load(&path).unwrap(), first);
        assert!(load(&folder.path().join("other.key")).is_err() && !folder.path().join("other.key").exists());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "short").unwrap();
        assert!(load_or_make(&path).is_err());
    }
}
