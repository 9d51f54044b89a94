//! Files of a sandbox, and what came of them.

use crate::names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, bpf, configfs, mqueue, nsfs, pidfs, selinux,
/// efivarfs, binfmt_misc, pstore, and the kernel's nameless objects.
const KERNEL_FILESYSTEMS: [u64; 17] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6265_6570,
    0x1980_0202,
    0x6e73_6673,
    0x5049_4446,
    0xf97c_ff8c,
    0xde5e_81e4,
    0x4249_4e4d,
    0x6165_676c,
    0x0904_1934,
];

/// Whether a file system of this type, as `statfs` reports it, stores no files but is an interface of the kernel.
#[must_use]
pub fn is_kernels_own(kind: u64) -> bool {
    // The kernel's own type is signed on some machines.
    KERNEL_FILESYSTEMS.contains(&(kind & 0xffff_ffff))
}

/// The parameter of an upload that `permission_denied` names where the sandbox's user may not write the file: with `force` it is
/// replaced.
pub const OVERWRITE: &str = "overwrite";
/// What is said then, and before what helps by each way of asking.
pub const NOT_WRITABLE: &str = "the sandbox's user may not write this file";

names!(
    /// What a name stands for.
    EntryKind {
        /// A file.
        File = "file",
        /// A folder.
        Directory = "directory",
        /// A symbolic link.
        Symlink = "symlink",
        /// A device, FIFO or socket.
        Other = "other",
    }
);

/// A file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without its folder.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Its owner inside.
    pub uid: u32,
    /// Its group inside.
    pub gid: u32,
    /// When it was last changed.
    pub modified_unix_ns: i64,
    /// Where a link leads.
    pub target: Option<String>,
}

/// How to write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Permission bits; without them those of the file it replaces, else 0644.
    pub mode: Option<u32>,
    /// Whether to make the folders above it.
    pub create_parents: bool,
    /// Whether to add to its end.
    pub append: bool,
    /// Whether to fail where something has that name.
    pub exclusive: bool,
    /// Whether to replace a file that the sandbox's user may not write.
    pub force: bool,
}

names!(
    /// What came of a file.
    FileAction {
        /// It was not there.
        Created = "created",
        /// It is another than it was.
        Modified = "modified",
        /// It is not there any more.
        Deleted = "deleted",
    }
);

impl FileAction {
    /// Two things that happened to one file, as one; none when nothing is left of them.
    fn then(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::Created, Self::Deleted) => None,
            (Self::Created, _) => Some(Self::Created),
            (Self::Deleted, Self::Created | Self::Modified) => Some(Self::Modified),
            (_, later) => Some(later),
        }
    }
}

/// One file of /workspace that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to /workspace; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What came of it.
    pub action: FileAction,
    /// Its size now; zero when it is gone.
    pub size_bytes: u64,
}

/// What changed between two questions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changed {
    /// By path.
    pub files: Vec<FileChange>,
    /// There may be more.
    pub truncated: bool,
}

impl Changed {
    /// This report and the one after it, as one.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let mut files: BTreeMap<String, FileChange> =
            self.files.into_iter().map(|change| (change.path.clone(), change)).collect();
        for change in later.files {
            let action = match files.remove(&change.path) {
                None => Some(change.action),
                Some(earlier) => earlier.action.then(change.action),
            };
            if let Some(action) = action {
                files.insert(change.path.clone(), FileChange { action, ..change });
            }
        }
        Self { files: files.into_values().collect(), truncated: self.truncated || later.truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileAction::{Created, Deleted, Modified};

    fn changed(list: &[(&str, FileAction)]) -> Changed {
        let file = |(path, action): &(&str, FileAction)| FileChange {
            path: (*path).to_owned(),
            action: *action,
            size_bytes: 1,
        };
        Changed { files: list.iter().map(file).collect(), truncated: false }
    }

    #[test]
    fn two_reports_become_one() {
        let before =
            changed(&[("a", Created), ("b", Created), ("c", Modified), ("d", Deleted), ("e", Modified)]);
        let after =
            changed(&[("a", Deleted), ("b", Modified), ("c", Deleted), ("d", Created), ("f", Created)]);
        let wanted =
            changed(&[("b", Created), ("c", Deleted), ("d", Modified), ("e", Modified), ("f", Created)]);
        assert_eq!(before.then(after), wanted);
    }
}
