//! Live interpreters. A sandbox that uses them has one kernel manager inside (see `atoll_kernels`), a command of
//! PID 1's own that this server talks to, as the next one will: kernels outlive it. Here is what callers
//! may ask of them; each is an operation with its two audit rows. An executing cell is work, a waiting
//! kernel is not.
//!
//! What the kernel manager says is hostile input: ids that were not asked for are passed over, lines, counts and
//! texts are bounded, and whether memory was the reason of a death is told by PID 1's count and not by it.

mod cell;
mod control;
mod execute;
mod follow;
mod install;
mod link;
mod managers;
mod packages;
mod request;
mod send;
mod warm;
mod watch;
mod wire;

pub(crate) use execute::CellTasks;
pub use follow::CellFollow;
pub(crate) use managers::KernelManagers;
pub(crate) use packages::check as check_packages;
pub use request::{
    CellOutcome, CellRequest, CellTarget, Dependencies, ForkKernel, Installed, KernelRequest,
    MAX_CELL_SECONDS,
};
pub(crate) use warm::{configure, is_warm, warm_up};
pub(crate) use watch::LeftCell;
