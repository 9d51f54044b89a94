//! Sandboxes as archives: out of one server, into another or into a file. The format is described in
//! docs/export.md.
//!
//! This process reads and writes the two ends of an archive, the manifest and the digest of the whole; what
//! lies between is packed and unpacked inside a sandbox, by its user. Nothing is kept on the way: an archive is
//! a stream in both directions.

mod export;
mod import;
mod manifest;
mod tail;

pub use export::Export;
pub use import::Imported;
pub(crate) use import::half_imported;

use crate::{Sandboxes, actor::SandboxRegistry, operation::Operations};
use atoll_guest_tools::{ExportFolder, ExportFolders};
use atoll_types::Profile;
use std::sync::Arc;

/// Exports and imports sandboxes.
#[derive(Clone)]
pub struct Transfers {
    pub(crate) operations: Operations,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) sandboxes: Sandboxes,
}

/// What survives a stop, by its name in an archive.
fn folders(profile: &Profile) -> ExportFolders {
    let folder = |name: &str, path: &str| ExportFolder { name: name.into(), path: path.into() };
    ExportFolders { folders: vec![folder("workspace", "/workspace"), folder("home", profile.home())] }
}
