//! Why a container died, as data.

use serde::{Deserialize, Serialize};

/// What ended PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathKind {
    /// The kernel killed it for memory.
    OutOfMemory,
    /// A signal from outside the sandbox.
    Signal,
    /// It exited by itself.
    Exited,
    /// It was found dead without a record of how it ended (a reboot, a killed monitor).
    Lost,
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Death {
    /// What ended it.
    pub kind: DeathKind,
    /// The signal, where one did.
    pub signal: Option<i32>,
    /// The exit status, where there is one.
    pub exit_status: Option<i32>,
}

impl Death {
    /// From the result of `waitid` and whether the memory limit killed a process meanwhile.
    #[must_use]
    pub fn from_wait(exit_status: Option<i32>, signal: Option<i32>, out_of_memory: bool) -> Self {
        let kind = match (signal, exit_status) {
            (Some(9), _) if out_of_memory => DeathKind::OutOfMemory,
            (Some(_), _) => DeathKind::Signal,
            (None, Some(_)) => DeathKind::Exited,
            (None, None) => DeathKind::Lost,
        };
        Self { kind, signal, exit_status }
    }

    /// There is no record of how it ended.
    #[must_use]
    pub fn lost() -> Self {
        Self { kind: DeathKind::Lost, signal: None, exit_status: None }
    }

    /// The reason in a few words.
    #[must_use]
    pub fn reason(&self) -> String {
        match (self.kind, self.signal, self.exit_status) {
            (DeathKind::OutOfMemory, ..) => "out of memory".into(),
            (DeathKind::Signal, Some(9), _) => "killed by SIGKILL (137)".into(),
            (DeathKind::Signal, Some(11), _) => "segmentation fault (139)".into(),
            (DeathKind::Signal, Some(15), _) => "terminated by SIGTERM (143)".into(),
            (DeathKind::Signal, Some(n), _) => format!("killed by signal {n}"),
            (DeathKind::Exited, _, Some(n)) => format!("exited with status {n}"),
            _ => "gone without a trace".into(),
        }
    }

    /// The exit code as a shell tells it: 128 and the signal, or the exit status; none where nothing recorded it.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.signal.map(|number| number.saturating_add(128)).or(self.exit_status)
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self.kind {
            DeathKind::OutOfMemory => "raise memory_mb or use less memory, then resume; the volume is kept",
            DeathKind::Signal | DeathKind::Exited | DeathKind::Lost => {
                "resume the sandbox; the volume is kept"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_exit_code_of_a_shell() {
        for (death, code) in [
            (Death::from_wait(None, Some(9), true), Some(137)),
            (Death::from_wait(None, Some(6), true), Some(134)),
            (Death::from_wait(Some(3), None, false), Some(3)),
            (Death::lost(), None),
        ] {
            assert_eq!(death.exit_code(), code, "{death:?}");
        }
    }
}
