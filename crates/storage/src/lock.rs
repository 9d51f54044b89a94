//! One lock per storage folder, held while space is promised. It is opened anew each time: a descriptor
//! inherited over fork would share its lock with the parent.

use crate::error::failed;
use atoll_types::Result;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held until dropped, and given up by the kernel when the holder dies.
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("open the storage lock"))?;
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).map_err(failed("lock the storage"))?;
        Ok(Self(file))
    }
}
