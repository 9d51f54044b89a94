//! Live interpreters. A sandbox that uses them has one kernel manager inside (see `atoll_kernels`), a command
//! of PID 1's own that this server talks to, as the next one will: kernels outlive the server. Each request
//! of a caller is an operation with its two audit rows. An executing cell counts as activity, a waiting
//! kernel does not.
//!
//! What the kernel manager says is hostile input: the server ignores ids that it did not ask for, bounds
//! lines, counts and texts, and takes PID 1's count of kills, not the kernel manager's word, for whether
//! memory was the reason of a death.

mod cell;
mod control;
mod execute;
mod follow;
mod held;
mod install;
mod link;
mod managers;
pub(crate) mod packages;
mod request;
mod send;
mod warm;
mod watch;
mod wire;

pub(crate) use execute::CellTasks;
pub use execute::FoundCell;
pub use follow::CellFollow;
pub(crate) use held::kernels_gone;
pub(crate) use managers::{KernelManagers, manager_exec};
pub(crate) use packages::check as check_packages;
pub use request::{
    CellOutcome, CellRequest, CellTarget, DEFAULT_CELL_SECONDS, Dependencies, ForkKernel, Installed,
    KernelRequest, MAX_CELL_SECONDS,
};
pub(crate) use warm::{configure, is_warm, warm_up};
pub(crate) use watch::LeftCell;

use crate::{
    AnswerBudget, EgressControl, Execs, Snapshots, actor::SandboxRegistry, ceiling::CallerLimits,
    egress::Running, execution::EndWriter, lifecycle::ActivityTracker, operation::Operations,
};
use atoll_audit::Ledger;
use std::sync::Arc;

/// Kernels and cells.
#[derive(Clone)]
pub struct Kernels {
    pub(crate) operations: Operations,
    pub(crate) limits: CallerLimits,
    pub(crate) ledger: Ledger,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) running: Arc<Running>,
    pub(crate) activity_tracker: Arc<ActivityTracker>,
    pub(crate) end_writer: EndWriter,
    pub(crate) managers: Arc<KernelManagers>,
    pub(crate) cell_tasks: Arc<CellTasks>,
    pub(crate) answers: AnswerBudget,
    /// Packages are installed by commands.
    pub(crate) execs: Execs,
    pub(crate) egress: EgressControl,
    /// Made before cells, where the sandbox says so.
    pub(crate) snapshots: Snapshots,
}
