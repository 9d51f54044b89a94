//! Where a request's path points, and the paths of results.

use crate::errno::on_path;
use atoll_types::Result;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::OwnedFd;

const WORKSPACE: &str = "/workspace";

/// A path of a request as an absolute one without needless slashes and dots.
pub(super) fn absolute(path: &str) -> String {
    let parts = path.split('/').filter(|p| !matches!(*p, "" | "."));
    let top = if path.starts_with('/') { "" } else { WORKSPACE };
    let mut whole = String::from(top);
    for part in parts {
        whole.push('/');
        whole.push_str(part);
    }
    if whole.is_empty() { "/".into() } else { whole }
}

/// Opens the path of a request, whatever its type.
pub(super) fn open(path: &str, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    openat(CWD, path, flags, Mode::empty()).map_err(|e| on_path(e, "path"))
}

/// The path of a result, as a caller may use it again: relative to /workspace where it is below that, else
/// absolute. Bytes that are not UTF-8 are replaced.
pub(super) fn shown_path(top: &str, below: &[u8]) -> String {
    let below = String::from_utf8_lossy(below);
    let slash = if top.ends_with('/') || below.is_empty() { "" } else { "/" };
    let whole = format!("{top}{slash}{below}");
    match whole.strip_prefix(WORKSPACE).and_then(|rest| rest.strip_prefix('/')) {
        Some(relative) => relative.to_owned(),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_can_be_asked_for_again() {
        assert_eq!(absolute("a//b/./c/"), "/workspace/a/b/c");
        assert_eq!(
            (absolute("."), absolute("/"), absolute("//tmp")),
            ("/workspace".into(), "/".into(), "/tmp".into())
        );
        assert_eq!(shown_path("/workspace/a", b"b/c"), "a/b/c");
        assert_eq!(shown_path("/workspace", b"b"), "b");
        assert_eq!(shown_path("/workspace", b""), "/workspace");
        assert_eq!(shown_path("/", b"etc/x"), "/etc/x");
        assert_eq!(shown_path("/workspaces", b"x"), "/workspaces/x");
        assert_eq!(shown_path("/tmp", b"\xff"), "/tmp/\u{fffd}");
    }
}
