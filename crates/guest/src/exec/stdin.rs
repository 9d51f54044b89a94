//! Feeding a command's stdin. A command that does not read holds up only the one who writes to it.

use super::record::{Exec, Phase};
use atoll_types::{Error, ErrorCode, Result};
use std::os::fd::OwnedFd;
use tokio::{io::unix::AsyncFd, sync::Mutex};

/// Our end of the pipe, until somebody closes it. Writers take turns.
#[derive(Default)]
pub(crate) struct Stdin(Mutex<Option<AsyncFd<OwnedFd>>>);

impl Stdin {
    pub(crate) fn new(pipe: Option<AsyncFd<OwnedFd>>) -> Self {
        Self(Mutex::new(pipe))
    }

    /// Writes all of it, counting as it goes; false when the command has closed its end.
    async fn write(&self, bytes: &[u8], written: &mut u64) -> Result<bool> {
        let mut slot = self.0.lock().await;
        let Some(pipe) = slot.as_ref() else {
            return Err(Error::new(ErrorCode::Conflict, "the command's stdin is closed"));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let Ok(mut ready) = pipe.writable().await else { break };
            match ready.try_io(|fd| Ok(rustix::io::write(fd, rest)?)) {
                Ok(Ok(length)) => {
                    *written += length as u64;
                    rest = &rest[length..];
                }
                Ok(Err(_)) => break,
                Err(_would_block) => {}
            }
        }
        if !rest.is_empty() {
            *slot = None;
        }
        Ok(rest.is_empty())
    }

    /// Lets the command see the end.
    pub(crate) async fn close(&self) {
        *self.0.lock().await = None;
    }

    /// Closes unless a writer is at it, which stops when the command has ended and closes then.
    pub(crate) fn close_now(&self) {
        if let Ok(mut slot) = self.0.try_lock() {
            *slot = None;
        }
    }
}

impl Exec {
    /// Writes to stdin until all is written, or the command closes it or ends; false for the latter.
    pub(crate) async fn feed(&self, bytes: &[u8], written: &mut u64) -> Result<bool> {
        let mut watch = self.watch();
        tokio::select! {
            biased;
            more = self.stdin.write(bytes, written) => return more,
            _ = watch.wait_for(|s| s.phase == Phase::Ended) => {}
        }
        self.stdin.close().await;
        Ok(false)
    }
}
