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
mod terminal;
mod watch;

pub use follow::{ExecFollow, ExecUpdate};
pub(crate) use request::LONGEST_COMMAND;
pub use request::{ExecCommand, ExecMode, MAX_BACKGROUND_SECONDS, MAX_TIMEOUT_SECONDS};
pub use run::{ExecOutcome, OutputObserver, OutputTail};
pub(crate) use task::{ExecEntry, ExecTask, ExecTasks};
pub use terminal::{Keyboard, Terminal, TerminalEvent, TerminalRequest, TerminalStream};

use crate::{
    AnswerBudget, Snapshots, actor::SandboxRegistry, ceiling::CallerLimits, egress::Running,
    execution::EndWriter, images::Catalogue, lifecycle::ActivityTracker, operation::Operations,
};
use atoll_audit::Ledger;
use atoll_store::Store;
use std::sync::Arc;

/// Commands and terminals.
#[derive(Clone)]
pub struct Execs {
    pub(crate) operations: Operations,
    pub(crate) limits: CallerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Ledger,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) answers: AnswerBudget,
    pub(crate) running: Arc<Running>,
    pub(crate) activity_tracker: Arc<ActivityTracker>,
    pub(crate) end_writer: EndWriter,
    /// Made before commands, where the sandbox says so.
    pub(crate) snapshots: Snapshots,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) exec_tasks: Arc<ExecTasks>,
    /// When this server started.
    pub(crate) began: i64,
}
