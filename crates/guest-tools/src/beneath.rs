//! Opening what lies below a folder without following a symbolic link on the way. The kernel walks in one call;
//! where it cannot (an old one, gVisor's, a path too long for it) each name is opened by itself.

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat, openat2},
    io::{Errno, Result},
};
use std::os::fd::{AsFd, OwnedFd};

pub(crate) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The kernel fails with EAGAIN when a directory is renamed on the way; a retry succeeds.
const TRIES: usize = 32;

/// The names of a relative path.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

/// Opens a path below `folder`; an empty one is the folder itself. `LOOP` where a link is in the way.
pub(crate) fn open(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(&folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::NAMETOOLONG) => return step_by_step(folder, path, flags),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

fn step_by_step(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut at = openat(folder, ".", FOLDER, Mode::empty())?;
    let mut rest = names(path).peekable();
    if rest.peek().is_none() {
        return openat(at, ".", flags, Mode::empty());
    }
    while let Some(name) = rest.next() {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        if rest.peek().is_none() {
            return openat(at, name, flags, Mode::empty());
        }
        at = openat(at, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn both_ways_open_the_same_and_follow_no_link() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        fs::write(top.path().join("a/b/f"), "x").unwrap();
        symlink("a", top.path().join("link")).unwrap();
        symlink("b/f", top.path().join("a/last")).unwrap();
        let root = openat(rustix::fs::CWD, top.path(), FOLDER, Mode::empty()).unwrap();
        let step = |path: &[u8]| step_by_step(&root, path, OFlags::RDONLY | OFlags::NOFOLLOW);
        for path in [&b"a/b/f"[..], b"a//b/./f", b"a", b"."] {
            assert!(open(&root, path, OFlags::RDONLY).is_ok() && step(path).is_ok(), "{path:?}");
        }
        for path in [&b"link/b/f"[..], b"a/last", b"../x", b"a/../../x", b"nothing"] {
            assert!(open(&root, path, OFlags::RDONLY).is_err() && step(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_opened() {
        let top = tempfile::tempdir().unwrap();
        let root = openat(rustix::fs::CWD, top.path(), FOLDER, Mode::empty()).unwrap();
        let name = "d".repeat(200);
        let mut at = openat(&root, ".", FOLDER, Mode::empty()).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755)).unwrap();
            at = openat(&at, &name, FOLDER, Mode::empty()).unwrap();
        }
        let long = vec![name; 30].join("/");
        assert!(long.len() > 4096);
        assert!(open(&root, long.as_bytes(), FOLDER).is_ok());
    }
}
