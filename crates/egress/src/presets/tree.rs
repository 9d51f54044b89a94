//! Reads files of a root folder: the machine's `/`, or an image's. The kernel resolves every path with that
//! folder as its root, so no link and no `..` leads out of it; only plain files are opened, and never more
//! of them is read than the caller's limit. Nothing is ever run. A server has no folder of an image: it reads these files
//! through a container of it ([`ImageFiles`]), whose root they are below.

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

/// Names of one folder that are looked at.
const MOST_NAMES: usize = 512;
/// Paths that one pattern may become.
const MOST_PATHS: usize = 256;
/// A file of settings or source code.
const MOST_TEXT: u64 = 1 << 20;

/// Bytes of a file as they are read.
pub type FileBytes = Box<dyn Read + Send>;

/// The files of an image, as a container of it sees them. It is asked by a thread that may wait.
pub trait ImageFiles: Send {
    /// Opens a plain file that is no larger than this.
    fn open(&self, path: &str, most: u64) -> Option<FileBytes>;
    /// The first names in a folder, at most so many.
    fn names(&self, folder: &str, most: usize) -> Vec<String>;
}

/// A root folder.
pub(super) enum Tree {
    /// A folder of this machine.
    Folder(OwnedFd),
    /// That of a container.
    Image(Box<dyn ImageFiles>),
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder(_) => "Folder",
            Self::Image(_) => "Image",
        })
    }
}

fn at(root: &OwnedFd, path: &str, flags: OFlags) -> Option<OwnedFd> {
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // A path of the tree's own making may hold anything but a zero byte, which no path has.
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how).ok()
}

impl Tree {
    /// Opens a root folder.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Folder(rustix::fs::open(root, flags, Mode::empty())?))
    }

    /// Opens a plain file that is no larger than this.
    pub(super) fn file(&self, path: &str, most: u64) -> Option<FileBytes> {
        let root = match self {
            Self::Folder(root) => root,
            Self::Image(files) => return files.open(path, most),
        };
        // First without opening it: opening a device or a pipe can already have effects.
        let found = at(root, path, OFlags::PATH)?;
        let stat = fstat(&found).ok()?;
        let size = u64::try_from(stat.st_size).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > most {
            return None;
        }
        Some(Box::new(File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?))
    }

    /// The text of a file. A file that is too large, or not UTF-8, counts as none.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        self.file(path, MOST_TEXT)?.take(MOST_TEXT + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= MOST_TEXT && !bytes.contains(&0)).then_some(())?;
        String::from_utf8(bytes).ok()
    }

    /// The names in a folder, in order.
    fn names(&self, folder: &str) -> Vec<String> {
        let root = match self {
            Self::Folder(root) => root,
            Self::Image(files) => return files.names(folder, MOST_NAMES),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let Some(dir) = at(root, folder, flags).and_then(|d| Dir::read_from(d).ok()) else {
            return Vec::new();
        };
        let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
            entry.ok()?.file_name().to_str().ok().filter(|n| !matches!(*n, "." | "..")).map(str::to_owned)
        };
        let mut names: Vec<String> = dir.take(MOST_NAMES).filter_map(name).collect();
        names.sort();
        names
    }

    /// The paths that a pattern stands for: each part may hold one `*`. A part without one is not looked at,
    /// so what comes back need not be there.
    pub(super) fn paths(&self, pattern: &str) -> Vec<String> {
        let mut paths = vec![String::new()];
        for part in pattern.split('/').filter(|p| !p.is_empty()) {
            paths = match part.split_once('*') {
                None => paths.into_iter().map(|p| format!("{p}/{part}")).collect(),
                Some((head, tail)) => {
                    let fits = |name: &String| {
                        name.len() >= head.len() + tail.len()
                            && name.starts_with(head)
                            && name.ends_with(tail)
                    };
                    let below = |p: String| {
                        self.names(if p.is_empty() { "/" } else { &p })
                            .into_iter()
                            .filter(fits)
                            .map(move |name| format!("{p}/{name}"))
                    };
                    paths.into_iter().flat_map(below).take(MOST_PATHS).collect()
                }
            };
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn no_link_leads_out_and_nothing_but_plain_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("etc/deep")).unwrap();
        fs::write(folder.path().join("outside"), "secret").unwrap();
        fs::write(root.join("etc/inside"), "plain").unwrap();
        fs::write(root.join("etc/binary"), b"a\0b").unwrap();
        fs::write(root.join("etc/latin"), b"\xff\xfe").unwrap();
        fs::write(root.join("etc/huge"), vec![b'x'; MOST_TEXT as usize + 1]).unwrap();
        symlink("../../outside", root.join("etc/up")).unwrap();
        symlink(folder.path().join("outside"), root.join("etc/away")).unwrap();
        symlink("/etc/inside", root.join("etc/deep/absolute")).unwrap();
        symlink("loop", root.join("etc/loop")).unwrap();
        symlink("/proc/self/environ", root.join("etc/magic")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("etc/pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let tree = Tree::open(&root).unwrap();
        assert_eq!(tree.text("/etc/inside").as_deref(), Some("plain"));
        assert_eq!(tree.text("/etc/deep/absolute").as_deref(), Some("plain"), "its root is the tree's");
        for nothing in ["up", "away", "loop", "magic", "pipe", "huge", "binary", "latin", "deep", "absent"] {
            assert_eq!(tree.text(&format!("/etc/{nothing}")), None, "{nothing}");
        }
        assert_eq!(tree.text("../outside"), None);
        assert_eq!(tree.text("/etc/ins\0ide"), None);
    }

    #[test]
    fn patterns_become_the_paths_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lib/python3.9/x", "lib/python3.11/x", "lib/perl/x"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        assert_eq!(tree.paths("/lib/python*/y"), ["/lib/python3.11/y", "/lib/python3.9/y"]);
        assert_eq!(tree.paths("/absent/*/y"), Vec::<String>::new());
        for n in 0..MOST_NAMES + 10 {
            fs::create_dir(folder.path().join(format!("many{n}"))).unwrap();
        }
        assert!(tree.paths("/many*").len() <= MOST_PATHS);
    }
}
