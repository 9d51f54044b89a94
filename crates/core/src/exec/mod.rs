//! Commands. Foreground, streamed and background are one thing: a command with an id in the sandbox's
//! PID 1, whose output has offsets and can be read by anyone at any of them until it is forgotten. They
//! differ in who waits: a caller that goes away takes a foreground or streamed command along, unless it
//! said that it may come back; a background command has nobody to lose.
//!
//! Each end is noted once, by whoever holds the claim on it ([`claim`]).

mod claim;
mod control;
mod follow;
mod leash;
mod request;
mod run;
mod start;
mod watch;

pub(crate) use claim::Claims;
pub use follow::{ExecFollow, ExecGrip, ExecUpdate};
pub(crate) use request::LONGEST_COMMAND;
pub use request::{ExecCommand, ExecMode, MAX_BACKGROUND_SECONDS, MAX_TIMEOUT_SECONDS};
pub use run::{ExecOutcome, OutputTail};
