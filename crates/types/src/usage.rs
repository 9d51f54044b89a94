//! Usage of a container, as the kernel counts it.

use serde::{Deserialize, Serialize};

/// Usage of a container at one moment. A figure that the machine does not count is none, never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Its age: the clock to compare two moments by, independent of the wall clock.
    pub age_usec: u64,
    /// Processor time since it began.
    pub cpu_usec: Option<u64>,
    /// How long its limit kept it from running.
    pub throttled_usec: Option<u64>,
    /// Memory as its limit counts it: page cache and tmpfs included.
    pub memory_bytes: Option<u64>,
    /// The most that this ever was.
    pub memory_peak_bytes: Option<u64>,
    /// None also where there is no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Processes that the kernel ended for memory.
    pub oom_kills: Option<u64>,
    /// How often its commands were ended because its sockets held too much memory. Launchers of before do not say.
    #[serde(default)]
    pub socket_kills: Option<u64>,
    /// Processes and threads, Atoll's own included.
    pub processes: Option<u64>,
    /// The most of them, Atoll's own included.
    pub processes_limit: Option<u64>,
    /// What its volume holds; none where only walking it could find out.
    pub disk_bytes: Option<u64>,
    /// The limit of its volume; none where the limit is not enforced.
    pub disk_limit_bytes: Option<u64>,
}
