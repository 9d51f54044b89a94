//! The one table from the kernel's error numbers to the codes that a caller sees.

use atoll_types::{Error, ErrorCode};
use rustix::io::Errno;

/// The code for this error number in file operations.
#[must_use]
pub fn code(errno: Errno) -> ErrorCode {
    match errno {
        Errno::NOENT => ErrorCode::NotFound,
        Errno::ACCESS | Errno::PERM => ErrorCode::PermissionDenied,
        Errno::EXIST => ErrorCode::AlreadyExists,
        Errno::NOTDIR => ErrorCode::NotADirectory,
        Errno::ISDIR => ErrorCode::IsADirectory,
        Errno::NOTEMPTY => ErrorCode::DirectoryNotEmpty,
        Errno::XDEV | Errno::LOOP => ErrorCode::PathOutsideRoot,
        Errno::NXIO | Errno::NODEV => ErrorCode::SpecialFile,
        Errno::NOSPC | Errno::DQUOT => ErrorCode::DiskFull,
        Errno::ROFS => ErrorCode::ReadOnly,
        Errno::FBIG | Errno::OVERFLOW => ErrorCode::TooLarge,
        Errno::NAMETOOLONG | Errno::INVAL => ErrorCode::InvalidArgument,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::MLINK => ErrorCode::LimitExceeded,
        Errno::BUSY | Errno::TXTBSY => ErrorCode::Conflict,
        Errno::OPNOTSUPP | Errno::NOSYS => ErrorCode::Unsupported,
        _ => ErrorCode::Internal,
    }
}

/// What the number means, for a person, without the number that `Display` would add.
#[must_use]
pub fn text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// The error for a failed call on the path that this field gave.
#[must_use]
pub fn on_path(errno: Errno, field: &str) -> Error {
    let code = code(errno);
    let message = match code {
        ErrorCode::PathOutsideRoot => "the path leads out of its directory through a symbolic link".into(),
        ErrorCode::SpecialFile => "it is a device, FIFO or socket".into(),
        _ => text(errno),
    };
    Error::new(code, message).at(field)
}

/// The error for a failed call on an entry that the walk or the archive named.
pub(crate) fn on_name(errno: Errno, name: &[u8]) -> Error {
    Error::new(code(errno), format!("{}: {}", shown(name), text(errno)))
}

/// A name of any bytes, for a message.
pub(crate) fn shown(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let cut: String = name.chars().take(200).collect();
    cut.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_a_caller_can_act_on() {
        assert_eq!(code(Errno::DQUOT), ErrorCode::DiskFull);
        assert_eq!(code(Errno::ROFS), ErrorCode::ReadOnly);
        assert_eq!(code(Errno::XDEV), ErrorCode::PathOutsideRoot);
        assert_eq!(text(Errno::NOENT), "no such file or directory");
        let error = on_path(Errno::NOENT, "from");
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("from")));
    }
}
