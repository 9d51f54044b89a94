//! What is asked for, checked before anything is done.

use atoll_kernels::{CellReport, Language, OutputLimits};
use atoll_provider::Changed;
use atoll_types::{CellId, CheckpointId, KernelId};
use std::collections::BTreeMap;

/// The longest that a cell may ask for.
pub const MAX_CELL_SECONDS: u64 = 24 * 3600;

/// A kernel that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelRequest {
    /// What it speaks.
    pub language: Language,
    /// The one that is used where none is named; where there is one, that one is the answer.
    pub default: bool,
    /// Where, absolute or relative to /workspace.
    pub working_directory: Option<String>,
    /// On top of the sandbox's own.
    pub env_vars: BTreeMap<String, String>,
}

/// Where a cell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellTarget {
    /// In this kernel. One that is dead refuses it with `kernel_died`.
    Kernel(KernelId),
    /// In the default kernel of a language, which is started where there is none. One that is dead is
    /// started anew, and the report then says that its variables are lost.
    Default(Language),
}

/// A cell that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRequest {
    /// Where.
    pub target: CellTarget,
    /// The code.
    pub code: String,
    /// When to interrupt it; 30 where none is given.
    pub timeout_seconds: Option<u64>,
    /// How much of its output is wanted.
    pub limits: OutputLimits,
    /// Of a request that may be repeated: a cell with this id is joined and not run again.
    pub id: Option<CellId>,
}

/// A cell that was waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellOutcome {
    /// Its id.
    pub cell: CellId,
    /// How it went.
    pub report: CellReport,
    /// Which files changed since what ran before; none where nobody can tell.
    pub changed: Option<Changed>,
}

/// One kernel from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkKernel {
    /// From which.
    pub kernel: KernelId,
    /// Not as it is now but as it was then.
    pub checkpoint: Option<CheckpointId>,
}

/// Packages that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependencies {
    /// Of which language: pip, npm or R's own.
    pub language: Language,
    /// Versions by name; an empty one is the latest.
    pub packages: BTreeMap<String, String>,
    /// When to give up; 600 where none is given.
    pub timeout_seconds: Option<u64>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Whether all of them are there.
    pub success: bool,
    /// What the package manager said.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
}
