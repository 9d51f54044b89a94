//! The caller of a tool, and its conversation.

use atoll_core::Caller;
use atoll_types::ThreadId;

/// The caller and its conversation. A thread belongs to its owner: the same id of another owner is another
/// thread.
#[derive(Debug, Clone)]
pub struct ToolCaller {
    /// The caller.
    pub caller: Caller,
    /// Its conversation.
    pub thread: ThreadId,
    /// The URL that the caller reaches this server by, without a slash at its end; none over stdio. Only
    /// replies to this caller contain it.
    pub address: Option<String>,
}
