//! The file itself: only its owner may read it. SQLite gives its log and its shared memory the same
//! permissions.

use atoll_store::{Outage, Result, StoreError};
use std::{
    fs::{self, OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Makes the file where there is none, and removes other users' permissions.
pub(crate) fn prepare(path: &Path) -> Result<()> {
    let refuse = |error: std::io::Error| {
        let outage = if error.kind() == ErrorKind::StorageFull { Outage::DiskFull } else { Outage::NoAccess };
        StoreError::Unavailable(outage, error.into())
    };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        // Not opened here: closing a descriptor of a file drops every lock that this process has on it,
        // and it may have it open as a database already.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path).map_err(refuse)?.permissions().mode();
            if mode & 0o077 != 0 {
                fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(refuse)?;
            }
            Ok(())
        }
        Err(error) => Err(refuse(error)),
    }
}
