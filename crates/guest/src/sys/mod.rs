//! The system calls that no library offers in the form needed here, each behind a safe function.
//!
//! Every function is one raw call: no allocation, no lock, no change of library state, so that all
//! of them may be used between fork and exec, where threads of file work may hold any lock.

pub(crate) mod caps;
mod io;
mod proc;
mod process;

pub(crate) use io::*;
pub(crate) use proc::*;
pub(crate) use process::*;

use rustix::io::{Errno, Result};

/// The result of `libc::syscall` as a value or an error number.
fn check(value: libc::c_long) -> Result<usize> {
    if value >= 0 {
        return Ok(value as usize);
    }
    // SAFETY: reads this thread's `errno`, which the failed call has just set.
    Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
}
