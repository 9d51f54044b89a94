//! From a failed system call to an error that a caller may see: a code, the operation that failed, the system's
//! own message. Never a path.

use atoll_types::{Error, ErrorCode};
use rustix::io::Errno;
use std::io;

/// Turns a system error into ours; `doing` completes "could not …".
pub(crate) fn failed<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |cause| {
        let cause = cause.into();
        let code = match cause.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorCode::DiskFull,
            Some(libc::EBUSY) => ErrorCode::Conflict,
            Some(libc::EROFS) => ErrorCode::Unavailable,
            _ => ErrorCode::Internal,
        };
        Error::new(code, format!("could not {doing}: {cause}"))
    }
}

/// The same of a copy of a whole tree.
pub(crate) fn copy_failed(cause: Errno) -> Error {
    match cause {
        Errno::NAMETOOLONG => unsupported("folders nested deeper than 200 cannot be copied"),
        cause => failed("copy the volume")(cause),
    }
}

pub(crate) fn disk_full(asked: u64, free: u64) -> Error {
    let message = format!("{asked} bytes of disk were requested and {free} bytes can still be promised");
    Error::new(ErrorCode::DiskFull, message).at("disk_bytes")
}

pub(crate) fn below_use(limit: u64, used: u64) -> Error {
    let least = used.div_ceil(1 << 20);
    let message = format!(
        "{used} bytes are in use, so the limit cannot become {limit} bytes; {least} MiB is the least"
    );
    Error::new(ErrorCode::Conflict, message).at("disk_bytes")
}

pub(crate) fn no_tree() -> Error {
    Error::new(ErrorCode::NotFound, "no such volume")
}

pub(crate) fn no_snapshot() -> Error {
    Error::new(ErrorCode::NotFound, "the volume has no such snapshot").at("snapshot")
}

pub(crate) fn no_image() -> Error {
    Error::new(ErrorCode::NotFound, "there is no such image").at("image")
}

pub(crate) fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unsupported, message)
}
