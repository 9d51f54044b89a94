//! Commands. Foreground, streamed and background are one thing: a command with an id in the sandbox's PID 1,
//! whose output has offsets and can be read from any of them until it is forgotten. They differ in their
//! caller: one that goes away ends its foreground or streamed command, unless the request may be repeated; a
//! background command is tied to no caller.
//!
//! One task owns each command and writes its end ([`task`]); callers receive its output and its end from
//! there.
//!
//! 512 ended commands are remembered and their output is kept until room is needed: ended commands hold half
//! of the spool at most, running ones that keep their newest output share a quarter, and the rest is for
//! those that keep their oldest.

mod control;
mod follow;
mod output_channel;
mod request;
mod run;
mod start;
mod task;
mod watch;

pub use follow::{ExecFollow, ExecUpdate};
pub(crate) use request::LONGEST_COMMAND;
pub use request::{ExecCommand, ExecMode, MAX_BACKGROUND_SECONDS, MAX_TIMEOUT_SECONDS};
pub use run::{ExecOutcome, OutputTail};
pub(crate) use task::{ExecEntry, ExecTask, ExecTasks};
