//! Live interpreters that keep their variables. In every sandbox that uses them runs one *kernel manager*, a
//! program of atoll-init's own that PID 1 starts as an ordinary command of the sandbox's user. It starts an
//! interpreter for each kernel, gives it cells one after another, enforces timeouts, bounds the output, and
//! stores the last answers. The host talks to it over its stdin and stdout, one JSON line for each message
//! ([`shapes`]); it outlives the server as any command does.
//!
//! Without features this is the protocol of both sides. `run` holds the kernel manager and the drivers, which run
//! inside each interpreter. The kernel manager has no rights that the user's own code has not, and the host
//! trusts none of its messages.

#[cfg(feature = "run")]
pub mod run;
pub mod shapes;

pub use shapes::{
    Answer, CellError, CellErrorKind, CellEvent, CellReport, CellStream, CheckpointInfo, CodeStatus,
    Completion, Display, Execute, Fork, KernelInfo, KernelStatus, LONGEST_CODE, LONGEST_LINE, Language, Line,
    MOST_CHECKPOINTS, MOST_KERNELS, MOST_MATCHES, MOST_QUEUED, OutputLimits, Request, RequestKind, Start,
};
