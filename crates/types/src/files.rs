//! Files of a sandbox, and what came of them.

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

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

/// What came of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// It was not there.
    Created,
    /// It is another than it was.
    Modified,
    /// It is not there any more.
    Deleted,
}

/// One file of /workspace that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to /workspace.
    pub path: String,
    /// What came of it.
    pub action: FileAction,
    /// Its size now; zero when it is gone.
    pub size_bytes: u64,
}

/// What changed between two questions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// By path.
    pub files: Vec<FileChange>,
    /// There may be more.
    pub truncated: bool,
}
