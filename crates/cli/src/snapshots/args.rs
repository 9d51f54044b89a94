//! The command line of snapshots and forks.

use crate::{
    pairs::{self, Pair},
    resources::Resources,
    server::Server,
};
use clap::{Args, Subcommand};

/// `snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotOptions {
    #[command(subcommand)]
    pub(crate) command: SnapshotCommand,
}

/// What `snapshot` does.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Keeps a sandbox's files as they are, and prints the snapshot's id
    Create(SnapshotCreate),
    /// Lists the snapshots of a sandbox, the newest first
    Ls(SnapshotLs),
    /// Labels a snapshot, so that it is not removed by itself
    Label(SnapshotLabel),
    /// Makes a sandbox's files what they were; what runs in it ends
    Rollback(SnapshotRollback),
    /// Lists the files that differ between a snapshot and another, or now
    Diff(SnapshotDiffOptions),
    /// Deletes snapshots
    Rm(SnapshotRm),
}

impl SnapshotOptions {
    /// Whether programs read the output.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            SnapshotCommand::Create(SnapshotCreate { server, .. })
            | SnapshotCommand::Ls(SnapshotLs { server, .. })
            | SnapshotCommand::Label(SnapshotLabel { server, .. })
            | SnapshotCommand::Rollback(SnapshotRollback { server, .. })
            | SnapshotCommand::Diff(SnapshotDiffOptions { server, .. })
            | SnapshotCommand::Rm(SnapshotRm { server, .. }) => server.json,
        }
    }
}

/// `snapshot create`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotCreate {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What to call it
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Keep the variables of its Python kernels too
    #[arg(short, long)]
    pub(crate) kernels: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `snapshot ls`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotLs {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `snapshot label`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotLabel {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A snapshot: an id, the start of one, or a label
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// What to call it; left out, it has no label any more
    #[arg(value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `snapshot rollback`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotRollback {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A snapshot: an id, the start of one, or a label
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Make the kernels that were kept with it what they were too; the container stays
    #[arg(short, long)]
    pub(crate) kernels: bool,
    /// Do not keep the files as they are now
    #[arg(long)]
    pub(crate) no_before: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `snapshot diff`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotDiffOptions {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A snapshot: an id, the start of one, or a label
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Another one to compare it with [default: the files as they are now]
    #[arg(value_name = "TO")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `snapshot rm`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotRm {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Snapshots: ids, starts of them, or labels
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub(crate) snapshots: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `fork`.
#[derive(Debug, Args)]
pub struct Fork {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The snapshot to make it of: an id, the start of one, or a label [default: the files as they are now]
    #[arg(short, long, value_name = "SNAPSHOT")]
    pub(crate) snapshot: Option<String>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// An environment variable, instead of all of the other sandbox: NAME=VALUE, or NAME to pass yours on
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = pairs::environment)]
    pub(crate) env: Vec<Pair>,
    /// A secret variable, instead of all of the other sandbox: NAME=VALUE, or NAME to pass yours on without showing it here
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = pairs::environment)]
    pub(crate) secret: Vec<Pair>,
    /// How many processes and threads it may have
    #[arg(long, value_name = "COUNT")]
    pub(crate) processes: Option<u32>,
    /// Before what the server keeps its files by itself [default: as the other sandbox]
    #[arg(long, value_name = "WHEN", value_parser = ["off", "before_exec", "before_run"])]
    pub(crate) auto_snapshot: Option<String>,
    /// A label, instead of all of the other sandbox: NAME=VALUE
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pairs::label)]
    pub(crate) label: Vec<Pair>,
    #[command(flatten)]
    pub(crate) server: Server,
}
