//! Requests for kernels, cells and packages, checked before anything is done.

use crate::{
    bounds::{CODE, check_directory},
    ceiling::{TierCeiling, check_timeout},
    operation::OperationSpec,
};
use atoll_audit::Redactor;
use atoll_kernels::{CellReport, LONGEST_CODE, Language, OutputLimits};
use atoll_provider::Changed;
use atoll_store::SandboxId;
use atoll_types::{CellId, CheckpointId, Error, ErrorCode, ExecId, ExitCode, KernelId, Operation, Result};
use std::{collections::BTreeMap, time::Duration};

/// The longest that a cell may ask for.
pub const MAX_CELL_SECONDS: u64 = 24 * 3600;
/// How long a cell may take whose request names no timeout.
pub const DEFAULT_CELL_SECONDS: u64 = 30;

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

impl KernelRequest {
    pub(super) fn check(&self) -> Result<()> {
        crate::sandboxes::check_environment("env_vars", &self.env_vars)?;
        check_directory(self.working_directory.as_deref())?;
        Ok(())
    }

    pub(super) fn what(&self, sandbox: SandboxId, kernel: KernelId) -> OperationSpec {
        let mut what = OperationSpec::to(Operation::KernelStart, sandbox)
            .with(self.language.name())
            .and("kernel_id", kernel)
            .and("default", self.default);
        what.directory.clone_from(&self.working_directory);
        what.variables = self.env_vars.keys().cloned().collect();
        what
    }
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
#[derive(Debug, Clone, PartialEq)]
pub struct CellRequest {
    /// Where.
    pub target: CellTarget,
    /// The code.
    pub code: String,
    /// When to interrupt it; 30 where none is given.
    pub timeout_seconds: Option<f64>,
    /// How much of its output is wanted.
    pub limits: OutputLimits,
    /// Of a request that may be repeated: a cell with this id is joined and not run again.
    pub id: Option<CellId>,
    /// Whether Python code without a last expression has the value of the variable `result`, where it names that.
    pub result_variable: bool,
}

impl CellRequest {
    pub(super) fn check(&self) -> Result<()> {
        if self.code.is_empty() {
            return Err(Error::invalid("code", "code must not be empty"));
        }
        if self.code.len() > LONGEST_CODE {
            return Err(Error::new(ErrorCode::TooLarge, "code may have 1 MiB").at("code"));
        }
        if !CODE.fits(&self.code) {
            return Err(Error::invalid("code", "code cannot hold a NUL character"));
        }
        Ok(())
    }

    pub(super) fn timeout(&self, most: TierCeiling) -> Result<Duration> {
        const FIELD: &str = "timeout";
        check_timeout(FIELD, self.timeout_seconds, MAX_CELL_SECONDS)?;
        let seconds = most.timeout(FIELD, self.timeout_seconds, Some(DEFAULT_CELL_SECONDS))?;
        Ok(seconds.map_or(Duration::from_secs(DEFAULT_CELL_SECONDS), Duration::from_secs_f64))
    }

    /// The limits, none above what one line can hold.
    pub(super) fn limits(&self) -> OutputLimits {
        let OutputLimits { stdout, stderr, result, traceback, display_bytes, displays_bytes, displays } =
            self.limits;
        let usual = OutputLimits::default();
        OutputLimits {
            stdout: stdout.min(1_000_000),
            stderr: stderr.min(1_000_000),
            result: result.min(1_000_000),
            traceback: traceback.min(100_000),
            display_bytes: display_bytes.min(usual.display_bytes),
            displays_bytes: displays_bytes.min(usual.displays_bytes),
            displays: displays.min(256),
        }
    }

    /// What the audit trail records before the cell runs.
    pub(super) fn what(&self, sandbox: SandboxId, cell: CellId, streamed: bool) -> OperationSpec {
        let what = OperationSpec::to(Operation::KernelExecute, sandbox)
            .with(&self.code)
            .and("cell_id", cell)
            .and("mode", if streamed { "streamed" } else { "foreground" });
        match self.target {
            CellTarget::Kernel(kernel) => what.and("kernel_id", kernel),
            CellTarget::Default(language) => what.and("language", language.name()),
        }
    }
}

/// A cell that was waited for.
#[derive(Debug, Clone)]
pub struct CellOutcome {
    /// Its id.
    pub cell: CellId,
    /// How it went.
    pub report: CellReport,
    /// Which files changed since what ran before; none where that is not known.
    pub changed: Option<Changed>,
    /// Takes secret values out of a copy that is kept.
    pub redactor: Redactor,
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
#[derive(Debug, Clone, PartialEq)]
pub struct Dependencies {
    /// Of which language: pip, npm or R's own.
    pub language: Language,
    /// Versions by name; an empty one is the latest.
    pub packages: BTreeMap<String, String>,
    /// When to give up.
    pub timeout_seconds: Option<f64>,
    /// The same where none is given, as far as the caller's tier allows; 600 where this is not given either.
    pub usual_seconds: Option<u64>,
    /// Of a request that may be repeated: an installation with this id is joined and not begun again.
    pub id: Option<ExecId>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Whether all of them are there.
    pub success: bool,
    /// How the package manager ended, as a shell would say it.
    pub exit_code: ExitCode,
    /// Whether it was ended because it took too long.
    pub timed_out: bool,
    /// What the package manager said.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// Takes secret values out of a copy that is kept.
    pub redactor: Redactor,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(code: &str, timeout_seconds: Option<f64>) -> CellRequest {
        CellRequest {
            target: CellTarget::Default(Language::Python),
            code: code.into(),
            timeout_seconds,
            limits: OutputLimits::default(),
            id: None,
            result_variable: false,
        }
    }

    #[test]
    fn wrong_requests_name_their_field() {
        for code in ["", "a\0b", &"x".repeat(LONGEST_CODE + 1)] {
            assert_eq!(cell(code, None).check().unwrap_err().field.as_deref(), Some("code"));
        }
        for seconds in [0.0, -1.0, f64::NAN, MAX_CELL_SECONDS as f64 + 0.5] {
            let error = cell("1", Some(seconds)).timeout(TierCeiling::default()).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("timeout"));
        }
        assert_eq!(cell("1", None).timeout(TierCeiling::default()), Ok(Duration::from_secs(30)));
        assert_eq!(cell("1", Some(0.25)).timeout(TierCeiling::default()), Ok(Duration::from_millis(250)));
        let wrong = KernelRequest { working_directory: Some("a\0".into()), ..KernelRequest::default() };
        assert_eq!(wrong.check().unwrap_err().field.as_deref(), Some("working_directory"));
    }

    #[test]
    fn nobody_asks_for_more_than_a_line_holds() {
        let all = u32::MAX;
        let limits = OutputLimits {
            stdout: all,
            stderr: all,
            result: all,
            traceback: all,
            display_bytes: all,
            displays_bytes: all,
            displays: all,
        };
        let limits = CellRequest { limits, ..cell("1", None) }.limits();
        assert!(limits.stdout <= 1_000_000 && limits.displays_bytes <= 12 << 20 && limits.displays <= 256);
    }
}
