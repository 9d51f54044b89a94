//! Reads for how long the sandbox was paused. The launcher writes it before it thaws the sandbox, so that time
//! spent paused does not count towards a command's timeout.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

#[derive(Clone)]
pub(crate) struct StillClock(Option<Arc<OwnedFd>>);

impl StillClock {
    pub(crate) fn new(fd: Option<OwnedFd>) -> Self {
        Self(fd.map(Arc::new))
    }

    /// How long in all; zero where the launcher passed no file.
    pub(crate) fn read(&self) -> Duration {
        let Some(fd) = &self.0 else { return Duration::ZERO };
        let mut bytes = [0; 8];
        match rustix::io::pread(fd, &mut bytes, 0) {
            Ok(8) => Duration::from_nanos(u64::from_le_bytes(bytes)),
            _ => Duration::ZERO,
        }
    }
}
