//! Whether this launcher outlasts its last container, and which users it serves beside those of its command line.
//! A request may say so later than the command line did; a file of the run folder stores it, because the worker
//! that reads the request is another process than the launcher, and a launcher may be restarted.

use crate::{context::Folders, options::Options};
use atoll_types::{Error, ErrorCode, Result};
use std::{collections::BTreeSet, fs, path::PathBuf};

fn file(folders: &Folders) -> PathBuf {
    folders.layout.run().join("stay")
}

fn remembered(folders: &Folders) -> Option<BTreeSet<u32>> {
    serde_json::from_slice(&fs::read(file(folders)).ok()?).ok()
}

/// Stores it. `asker` is the peer's uid, from the kernel.
pub(crate) fn remember(folders: &Folders, asker: Option<u32>, client_uids: &[u32]) -> Result<()> {
    if !client_uids.is_empty() && asker != Some(0) {
        return Err(Error::new(ErrorCode::PermissionDenied, "only root may add client users"));
    }
    let mut all = remembered(folders).unwrap_or_default();
    all.extend(client_uids);
    let fault = |e: std::io::Error| Error::internal(format!("the launcher's folder cannot be written: {e}"));
    let (fresh, text) = (file(folders).with_extension("new"), serde_json::to_vec(&all).unwrap_or_default());
    fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, file(folders))).map_err(fault)
}

/// Applies what is stored.
pub(crate) fn apply(folders: &Folders, options: &mut Options) {
    if let Some(uids) = remembered(folders) {
        options.ephemeral = false;
        options.client_uids.extend(uids);
        options.client_uids.sort_unstable();
        options.client_uids.dedup();
    }
}
