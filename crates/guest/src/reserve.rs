//! Descriptors that PID 1 keeps back. Commands, and files and output on their way to callers, are held for long; they are
//! refused while enough descriptors are left for what must not fail: the output of commands that run, a look at /proc
//! to kill by, and file work, which opens a few for a moment.
//!
//! The kernel gives the lowest free number, so a high one means that few are left.

use rustix::{
    io::{Errno, Result},
    process::{Resource, getrlimit},
};
use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicU64, Ordering},
};

/// What a new command leaves.
pub(crate) const COMMAND: u64 = 64;
/// What a caller's file, or its reader of output, leaves.
pub(crate) const STREAM: u64 = 32;
/// What a new connection leaves; one that leaves fewer is closed.
pub(crate) const CONNECTION: u64 = 16;

/// Files for output that commands have not opened yet.
static OWED: AtomicU64 = AtomicU64::new(0);

/// Refuses what was just opened, if it leaves fewer than this beside what is owed.
pub(crate) fn check(opened: &impl AsRawFd, leaves: u64) -> Result<()> {
    let number = u64::from(opened.as_raw_fd().unsigned_abs());
    let needed = leaves + OWED.load(Ordering::Relaxed);
    match getrlimit(Resource::Nofile).current {
        Some(most) if number + needed > most => Err(Errno::MFILE),
        _ => Ok(()),
    }
}

/// Descriptors that something will open later. They are free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Owed(u64);

impl Owed {
    pub(crate) fn new(count: u64) -> Self {
        OWED.fetch_add(count, Ordering::Relaxed);
        Self(count)
    }

    /// One of them is open now.
    pub(crate) fn opened(&mut self) {
        if self.0 > 0 {
            self.0 -= 1;
            OWED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        OWED.fetch_sub(self.0, Ordering::Relaxed);
    }
}
