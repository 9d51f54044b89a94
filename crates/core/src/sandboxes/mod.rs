//! Sandboxes: making, starting, changing, listing and ending them. Requests are validated and admitted here;
//! the sandbox's actor ([`crate::actor`]) checks its state and carries them out.

mod bulk;
mod change_state;
mod checks;
mod create;
mod extension;
mod fork;
mod image_start;
mod list;
mod patch;
mod start;
mod step;

pub use bulk::{BulkAction, BulkOutcome, BulkTarget, MOST_AT_ONCE};
pub(crate) use checks::{check_environment, disk_limit, limits, own_labels};
pub use create::{CreateSandbox, Created};
pub use extension::{ExtensionOperation, repeatable_uuid};
pub use fork::ForkSandbox;
pub use list::LARGEST_PAGE;
pub use patch::PatchSandbox;

use crate::{
    CoreSettings, Kernels, Providers, Vault, Volumes,
    actor::SandboxRegistry,
    admission::{Admission, Turns},
    ceiling::CallerLimits,
    changes::FileChanges,
    egress::EgressSessions,
    images::Catalogue,
    lifecycle::ActivityTracker,
    operation::Operations,
    pool::Pool,
    runtime_settings::LiveSettings,
};
use atoll_store::Store;
use std::sync::Arc;
use tokio::sync::Notify;

/// Sandboxes.
#[derive(Clone)]
pub struct Sandboxes {
    pub(crate) operations: Operations,
    pub(crate) limits: CallerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) vault: Arc<Vault>,
    pub(crate) settings: Arc<CoreSettings>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) admission: Admission,
    pub(crate) turns: Arc<Turns>,
    pub(crate) pool: Pool,
    pub(crate) activity_tracker: Arc<ActivityTracker>,
    pub(crate) egress_sessions: Arc<EgressSessions>,
    pub(crate) changes: Arc<FileChanges>,
    /// Dependencies of a new sandbox are installed for its kernels.
    pub(crate) kernels: Kernels,
    /// A sandbox with a lifetime of its own was made: the lifecycle has to know when that ends.
    pub(crate) new_lifetime: Arc<Notify>,
    /// A new sandbox names volumes to attach.
    pub(crate) volumes: Volumes,
    pub(crate) catalogue: Arc<Catalogue>,
}
