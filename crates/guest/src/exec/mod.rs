//! Commands: parsing a request, starting a process for it, spooling its output, and ending it.
//!
//! PID 1 never waits for a command itself. Each has a shim process that owns its descendants and
//! reports over a socket; each has one task here, the only writer of its record and spool.

mod child;
mod clock;
mod control;
mod driver;
mod environment;
mod followers;
mod oom;
mod plan;
mod program;
mod record;
mod registry;
mod replay;
mod share;
mod shim;
mod spawn;
mod spool;
mod start;
mod stdin;
mod sweep;
mod terminal;
mod tree;
mod usage;
mod users;
mod wire;

pub(crate) use registry::{Execs, inherited};
pub(crate) use replay::{EventStream, follow};
pub(crate) use usage::infos;
pub(crate) use users::{User, profile_user};
