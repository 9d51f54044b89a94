//! PID 1's configuration. It is passed in one environment variable, which PID 1 removes and which no process
//! inside can read, because PID 1 is not dumpable.

use atoll_types::{Capability, Seccomp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The variable that carries a [`GuestConfig`] as JSON.
pub const CONFIG_VARIABLE: &str = "ATOLL_INIT";

/// Where PID 1 listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Listen {
    /// A listening Unix socket, inherited under this number.
    Inherited(i32),
    /// A TCP address inside, for runtimes that pass no sockets; every call must carry the token.
    Tcp {
        /// Such as `127.0.0.1:2024`.
        address: String,
        /// Sent as `authorization: Bearer <token>`.
        token: String,
    },
}

/// PID 1's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestConfig {
    /// Where to listen.
    pub listen: Listen,
    /// A directory for command output outside the sandbox's memory and volume, inherited as a
    /// descriptor; without one, `/tmp/.atoll-spool` is used.
    pub spool_fd: Option<i32>,
    /// The cgroup file that counts `oom_kill`, inherited as a descriptor.
    pub oom_fd: Option<i32>,
    /// A file whose first eight bytes say for how many nanoseconds the sandbox was paused in all, inherited as a
    /// descriptor. Little-endian.
    #[serde(default)]
    pub clock_fd: Option<i32>,
    /// The user that commands run as.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its home directory.
    pub home: String,
    /// The environment that every command starts with.
    pub environment: BTreeMap<String, String>,
    /// What user code may hold.
    pub capabilities: Vec<Capability>,
    /// The system call filter.
    pub seccomp: Seccomp,
    /// Open files of one process.
    pub open_files: u32,
    /// Processes and threads of one user; 0: as many as the cgroup allows. The cgroup allows more, so that
    /// PID 1 can start a command where user code has used up all of its own.
    #[serde(default)]
    pub processes: u32,
    /// Most bytes of output kept for one command.
    pub output_limit: u64,
    /// Most ended commands that stay listed; the oldest is forgotten first.
    pub max_ended_execs: usize,
    /// What all output together may take; ended commands get half of it.
    #[serde(default = "spool_bytes")]
    pub spool_bytes: u64,
    /// Whether PID 1, which then has CAP_SYS_ADMIN until it has done so, makes /proc read-only for all processes
    /// but itself: none of them can then change its own OOM score or PID 1's.
    #[serde(default)]
    pub guard_proc: bool,
    /// A directory with the trees of the areas below, inherited as a descriptor.
    #[serde(default)]
    pub areas_fd: Option<i32>,
    /// Where file requests do not work on what commands see, and where again they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub areas: Vec<FileAreaConfig>,
}

/// A folder and all below it, as file requests see it. The innermost one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileAreaConfig {
    /// Where it is.
    pub path: String,
    /// The name of the tree that file requests work on there, which commands may only read. Without one, what is there.
    pub tree: Option<String>,
}

fn spool_bytes() -> u64 {
    256 << 20
}
