//! Requests and answers, as JSON. The host checks a request before it sends it, and the tool checks it again; an
//! answer is one line for each result, and the host trusts none of it.

use atoll_types::{Error, ErrorCode, Result, files::EntryKind, names};
use serde::{Deserialize, Serialize};

/// The longest path.
pub const LONGEST_PATH: usize = 4096;
/// The longest line of an answer: a match with all its context, every character escaped.
pub const LONGEST_LINE: usize = 512 << 10;
/// Most bytes of an answer; beyond, it says `truncated`.
pub const MOST_OUTPUT: usize = 16 << 20;

/// Most entries that a find reports.
pub const MOST_FOUND: u32 = 100_000;
/// Most lines that a grep reports.
pub const MOST_MATCHES: u32 = 10_000;
/// Most lines before and after each.
pub const MOST_CONTEXT: u32 = 10;
/// The largest file that a grep reads.
pub const LARGEST_FILE: u64 = 64 << 20;
/// The longest pattern, in bytes.
pub const LONGEST_PATTERN: usize = 8 << 10;

/// A part of a path that is neither empty nor `..`, as a regular expression.
const PART: &str = r"(?:(?:[^/.\u0000]|\.[^/.\u0000]|\.\.[^/\u0000])[^/\u0000]*|\.)";

/// What [`checked_path`] takes as a regular expression, but for the length.
#[must_use]
pub fn path_pattern() -> String {
    format!("^{PART}?(?:/{PART}?)*$")
}

/// The same for a path that is relative.
#[must_use]
pub fn relative_pattern() -> String {
    format!("^{PART}(?:/{PART}?)*$")
}

/// Which kinds of entries to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KindFilter {
    File,
    Directory,
    Symlink,
    #[default]
    Any,
}

/// Where the process API listens, on the sandbox's loopback.
pub const PROCESS_API_PORT: u16 = 2024;

/// Serve commands and files of the sandbox's user by HTTP, until the sandbox ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessApi {}

/// Entries of a folder and all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Find {
    /// Where to look.
    pub path: String,
    /// A glob for the name, or with a slash in it for the path below `path`.
    pub pattern: Option<String>,
    /// What to look for.
    pub kind: KindFilter,
    /// How deep; 1 is the folder itself.
    pub max_depth: Option<u32>,
    /// Whether names that begin with a dot count.
    pub hidden: bool,
    /// Bytes of a file, at least.
    pub min_size: Option<u64>,
    /// Bytes of a file, at most.
    pub max_size: Option<u64>,
    /// Changed after this moment, in milliseconds since 1970.
    pub modified_after: Option<i64>,
    /// Most entries.
    pub limit: u32,
}

impl Default for Find {
    fn default() -> Self {
        Self {
            path: "/workspace".into(),
            pattern: None,
            kind: KindFilter::Any,
            max_depth: None,
            hidden: true,
            min_size: None,
            max_size: None,
            modified_after: None,
            limit: 1000,
        }
    }
}

/// Lines of files that match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grep {
    /// Where to look: a folder or a file.
    pub path: String,
    /// A regular expression, or with `literal` a text.
    pub pattern: String,
    /// Whether the pattern is a text.
    pub literal: bool,
    /// Whether case does not matter.
    pub ignore_case: bool,
    /// Only files whose name, or with a slash in it whose path below `path`, matches this glob.
    pub glob: Option<String>,
    /// Whether names that begin with a dot count.
    pub hidden: bool,
    /// Most matching lines.
    pub max_matches: u32,
    /// Most matching lines of one file.
    pub max_per_file: Option<u32>,
    /// Lines before and after each.
    pub context: u32,
    /// Larger files are passed over.
    pub max_file_size: u64,
}

impl Default for Grep {
    fn default() -> Self {
        Self {
            path: "/workspace".into(),
            pattern: String::new(),
            literal: false,
            ignore_case: false,
            glob: None,
            hidden: true,
            max_matches: 1000,
            max_per_file: None,
            context: 0,
            max_file_size: 10 << 20,
        }
    }
}

/// A folder, or a file, as a tar archive on stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    /// What.
    pub path: String,
    /// What the names in the archive begin with; without it they are relative to the folder.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// A tar archive from stdin into a folder, which is made if it is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unpack {
    /// Where to.
    pub path: String,
}

/// The folders of a sandbox as one archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportFolders {
    /// What is in the archive under which name.
    pub folders: Vec<ExportFolder>,
    /// The folders as they were, each time as a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<ExportSnapshots>,
}

/// Earlier states of a sandbox's folders. The folders of the first are in `{path}/000001`, under their names in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSnapshots {
    /// The folder of all of them.
    pub path: String,
    /// When each was made, in milliseconds since 1970. Each is packed as its difference to the one before it, and the first
    /// as its difference to the present.
    pub made_ms: Vec<i64>,
}

/// An archive of a sandbox's folders, or a part of one, to be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportFolders {
    /// What goes where.
    pub folders: Vec<ExportFolder>,
    /// The number of the snapshot whose difference follows; none for the folders themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u32>,
}

/// A folder of a sandbox, and its name in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportFolder {
    pub name: String,
    pub path: String,
}

/// What happens in a folder, until stdin ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Which.
    pub path: String,
    /// Whether the folders below it count.
    pub recursive: bool,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Relative to /workspace where it is below that, else absolute.
    pub path: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was last changed, in milliseconds since 1970.
    pub modified: i64,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Relative to /workspace where it is below that, else absolute.
    pub path: String,
    /// Which line, from 1.
    pub line: u64,
    /// Where in it the first match begins, in characters from 1.
    pub column: u64,
    /// The line, without its end; long ones are cut.
    pub text: String,
    /// Lines before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Lines after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// The last line of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// There may be more.
    pub truncated: bool,
    /// Folders and files that could not be read.
    pub skipped: u64,
}

/// A line of find's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindLine {
    Entry(Found),
    End(End),
}

/// A line of grep's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrepLine {
    Match(Match),
    End(End),
}

/// What unpack has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unpacked {
    /// Files, links and folders.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
}

names!(
    /// What happened.
    WatchEventKind {
        /// Everything is watched from here on.
        Ready = "ready",
        /// It did not exist before.
        Created = "created",
        /// Its bytes changed.
        Modified = "modified",
        /// It no longer exists.
        Deleted = "deleted",
        /// It was renamed to `to`.
        Renamed = "renamed",
        /// More happened than could be reported; the client must list the folder again.
        Overflow = "overflow",
        /// This folder, and perhaps others, cannot be watched: there are too many.
        Limit = "limit",
    }
);

/// A line of watch's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchEvent {
    /// What happened.
    pub event: WatchEventKind,
    /// To what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new name of what was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its type. A deleted entry is reported only as a folder or a file.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<EntryKind>,
}

/// Refuses a text that cannot be a path.
pub fn checked_path(field: &str, path: &str) -> Result<()> {
    if path.is_empty() || path.len() > LONGEST_PATH || path.contains('\0') {
        return Err(Error::invalid(field, format!("{field} must be 1 to {LONGEST_PATH} bytes without NUL")));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Error::new(ErrorCode::PathOutsideRoot, "a path must not contain '..'").at(field));
    }
    Ok(())
}

fn within<T: PartialOrd + std::fmt::Display>(field: &str, value: T, low: T, high: T) -> Result<()> {
    if value < low || value > high {
        return Err(Error::invalid(field, format!("{field} must be between {low} and {high}")));
    }
    Ok(())
}

fn checked_pattern(field: &str, pattern: Option<&str>) -> Result<()> {
    match pattern {
        Some(pattern) if pattern.is_empty() || pattern.len() > LONGEST_PATTERN => {
            Err(Error::invalid(field, format!("{field} must have 1 to {LONGEST_PATTERN} bytes")))
        }
        _ => Ok(()),
    }
}

impl Find {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)?;
        checked_pattern("pattern", self.pattern.as_deref())?;
        within("max_depth", self.max_depth.unwrap_or(1), 1, u32::MAX)?;
        within("limit", self.limit, 1, MOST_FOUND)
    }
}

impl Grep {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)?;
        checked_pattern("pattern", Some(&self.pattern))?;
        checked_pattern("glob", self.glob.as_deref())?;
        within("max_matches", self.max_matches, 1, MOST_MATCHES)?;
        within("max_per_file", self.max_per_file.unwrap_or(1), 1, MOST_MATCHES)?;
        within("context", self.context, 0, MOST_CONTEXT)?;
        within("max_file_size", self.max_file_size, 1, LARGEST_FILE)
    }
}

impl Pack {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)?;
        match &self.prefix {
            Some(prefix) if prefix.starts_with('/') => {
                Err(Error::invalid("prefix", "prefix must be relative"))
            }
            Some(prefix) => checked_path("prefix", prefix),
            None => Ok(()),
        }
    }
}

impl Unpack {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)
    }
}

impl Watch {
    /// Refuses an invalid request.
    pub fn check(&self) -> Result<()> {
        checked_path("path", &self.path)
    }
}

#[cfg(all(test, feature = "run"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_patterns_are_the_checks(path in "[/.a\\x00é]{1,8}") {
            let is = |pattern: String| regex::Regex::new(&pattern).unwrap().is_match(&path);
            prop_assert_eq!(is(path_pattern()), checked_path("path", &path).is_ok(), "{:?}", path);
            let pack = Pack { path: ".".into(), prefix: Some(path.clone()) };
            prop_assert_eq!(is(relative_pattern()), pack.check().is_ok(), "{:?}", path);
        }
    }
}
