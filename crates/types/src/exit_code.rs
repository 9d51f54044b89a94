//! The exit code of a command as a shell shows it. Every front, the audit trail, events and the command line
//! use it.

use std::fmt;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(i32);

impl ExitCode {
    /// Its timeout expired.
    pub const TIMED_OUT: Self = Self(124);
    /// Its program could not be started.
    pub const NOT_EXECUTABLE: Self = Self(126);
    /// There is no such program; also of a command without any report.
    pub const NOT_FOUND: Self = Self(127);

    const ENOENT: i32 = 2;

    /// Of a command that could not start, with the kernel's error.
    #[must_use]
    pub fn not_started(errno: i32) -> Self {
        if errno == Self::ENOENT { Self::NOT_FOUND } else { Self::NOT_EXECUTABLE }
    }

    /// Of a command that ran: its own, or 128 and the signal that ended it.
    #[must_use]
    pub fn ended(timed_out: bool, exit_status: Option<i32>, signal: Option<i32>) -> Self {
        match (timed_out, exit_status, signal) {
            (true, ..) => Self::TIMED_OUT,
            (false, Some(status), _) => Self(status),
            (false, None, Some(signal)) => Self::signal(signal),
            (false, None, None) => Self::NOT_FOUND,
        }
    }

    /// Of a command that a signal ended.
    #[must_use]
    pub fn signal(signal: i32) -> Self {
        Self(signal.saturating_add(128))
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }

    /// As the exit status of this process.
    #[must_use]
    pub fn as_u8(self) -> u8 {
        u8::try_from(self.0).unwrap_or(u8::MAX)
    }

    /// Whether all went well.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode;

    #[test]
    fn a_shell_would_show_the_same() {
        assert_eq!([2, 13, 8].map(|errno| ExitCode::not_started(errno).get()), [127, 126, 126]);
        assert_eq!(ExitCode::ended(false, Some(3), None).get(), 3);
        assert_eq!(ExitCode::ended(false, None, Some(9)).get(), 137);
        assert_eq!(ExitCode::ended(true, Some(0), Some(9)).get(), 124, "whatever it did in the end");
        assert_eq!(ExitCode::ended(false, None, None).get(), 127);
        assert_eq!([ExitCode::signal(200).as_u8(), ExitCode::signal(i32::MAX).as_u8()], [255; 2]);
        assert!(ExitCode::ended(false, Some(0), None).is_success() && !ExitCode::TIMED_OUT.is_success());
    }
}
