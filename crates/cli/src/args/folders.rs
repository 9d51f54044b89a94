//! The command line of files and folders.

use crate::{
    copy_end::{self, CopyEnd},
    server::Server,
};
use clap::Args;
use std::path::PathBuf;

/// `cp`.
#[derive(Debug, Args)]
pub struct Cp {
    /// What to copy: a file or folder here, ID:PATH inside, or - for standard input
    #[arg(value_name = "SOURCE", value_parser = copy_end::parser())]
    pub(crate) source: CopyEnd,
    /// Where to: a file or folder here, ID:PATH inside, or - for standard output
    #[arg(value_name = "DESTINATION", value_parser = copy_end::parser())]
    pub(crate) destination: CopyEnd,
    /// Replace a file inside also where its owner made it read-only
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `find`.
#[derive(Debug, Args)]
pub struct Find {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A glob for names, or with a slash in it for paths, such as '*.rs' or 'src/**/*.rs'
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Where to look, absolute or relative to /workspace
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// What to look for
    #[arg(long, value_name = "KIND", value_parser = ["file", "directory", "symlink", "any"])]
    pub(crate) kind: Option<String>,
    /// How deep to look; 1 is the folder itself
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_depth: Option<u32>,
    /// Most entries
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `grep`.
#[derive(Debug, Args)]
pub struct Grep {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A regular expression
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
    /// Where to look, absolute or relative to /workspace
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Only in files whose names match this glob
    #[arg(long, value_name = "GLOB")]
    pub(crate) glob: Option<String>,
    /// The pattern is a text and no expression
    #[arg(short = 'F', long)]
    pub(crate) literal: bool,
    /// Case does not matter
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Lines before and after each
    #[arg(short = 'C', long, value_name = "NUMBER")]
    pub(crate) context: Option<u32>,
    /// Most lines that match
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Which folder, absolute or relative to /workspace
    #[arg(value_name = "PATH", default_value = "/workspace")]
    pub(crate) path: String,
    /// Not the folders below it
    #[arg(long)]
    pub(crate) shallow: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `history`.
#[derive(Debug, Args)]
pub struct History {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A file of /workspace, absolute or relative to it; it may be gone
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Most changes
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 50)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `export`.
#[derive(Debug, Args)]
#[command(
    after_help = "`atoll export ID | atoll import --url URL` makes a copy on another server. Values that are secret are not exported."
)]
pub struct Export {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Where to: a new file, or - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Leaves the sandbox's snapshots out
    #[arg(long)]
    pub(crate) no_snapshots: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// An archive that `atoll export` wrote, or - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Leaves the archive's snapshots out
    #[arg(long)]
    pub(crate) no_snapshots: bool,
    /// Attaches your volumes of the names that the archive has
    #[arg(long)]
    pub(crate) volumes: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
