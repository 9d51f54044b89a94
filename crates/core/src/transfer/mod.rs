//! Sandboxes as archives: out of one server, into another or into a file. The format is described in
//! docs/export.md.
//!
//! This process reads and writes the two ends of an archive, the manifest and the digest of the whole; what
//! lies between is packed and unpacked inside a sandbox, by its user. Nothing is kept on the way: an archive is
//! a stream in both directions. Snapshots follow the files, the newest first, each as its difference to the one before it; an
//! import makes the files what they were, one snapshot after another, and rolls back in the end.

mod export;
mod import;
mod manifest;
mod parts;
mod tail;

pub use export::Export;
pub(crate) use import::half_imported;
pub use import::{ImportOptions, Imported};

use crate::{Sandboxes, Snapshots, actor::SandboxRegistry, operation::Operations};
use atoll_guest_tools::ExportFolder;
use atoll_types::Profile;
use std::sync::Arc;

/// Exports and imports sandboxes.
#[derive(Clone)]
pub struct Transfers {
    pub(crate) operations: Operations,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) snapshots: Snapshots,
}

/// What survives a stop, by its name in an archive.
fn folders(profile: &Profile) -> Vec<ExportFolder> {
    let folder = |name: &str, path: &str| ExportFolder { name: name.into(), path: path.into() };
    vec![folder("workspace", "/workspace"), folder("home", profile.home())]
}
