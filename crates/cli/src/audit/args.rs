//! The command line of `atoll audit`.

use crate::{server::Server, when};
use clap::{Args, Subcommand};

/// What can be asked of a server's audit trail.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Lists operations, the last begun first
    Ls(Ls),
    /// Shows all about one operation
    Show(One),
    /// Prints what is kept of what an operation wrote
    Output(One),
    /// Adds operations up, by day, sandbox and outcome
    Summary(Summary),
    /// Prints the rows of the trail as JSON Lines; needs an admin key
    Export(Export),
    /// Removes the rows that are too old, and leaves a checkpoint; needs an admin key
    Cleanup(Cleanup),
}

impl Audit {
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Ls(Ls { server, .. })
            | Self::Show(One { server, .. })
            | Self::Output(One { server, .. })
            | Self::Summary(Summary { server, .. })
            | Self::Export(Export { server, .. })
            | Self::Cleanup(Cleanup { server, .. }) => server.json,
        }
    }
}

/// Which operations.
#[derive(Debug, Args)]
pub(crate) struct Filters {
    /// On this sandbox: an id, also of one that was removed, the start of one, or a session key
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// By this owner: a name or an id
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Ended with this code
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub(crate) exit_code: Option<i32>,
    /// Of this kind, such as exec
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Ended so
    #[arg(long, value_parser = ["ok", "failed", "refused", "lost"])]
    pub(crate) outcome: Option<String>,
    /// With this text in the command or path
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Begun then or later: 2h ago as 2h, or a time such as 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = when::moment)]
    pub(crate) since: Option<String>,
    /// Begun then or earlier
    #[arg(long, value_name = "TIME", value_parser = when::moment)]
    pub(crate) until: Option<String>,
    /// Not ended yet
    #[arg(long)]
    pub(crate) open: bool,
}

/// `audit ls`.
#[derive(Debug, Args)]
pub struct Ls {
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `audit show` and `audit output`.
#[derive(Debug, Args)]
pub struct One {
    /// The row of its beginning, as `ls` shows it, or its id
    #[arg(value_name = "ROW")]
    pub(crate) operation: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `audit summary`.
#[derive(Debug, Args)]
pub struct Summary {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `audit export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The first row
    #[arg(long, value_name = "ROW", default_value_t = 0)]
    pub(crate) from: u64,
    /// With what commands wrote
    #[arg(long)]
    pub(crate) output: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `audit cleanup`.
#[derive(Debug, Args)]
pub struct Cleanup {
    /// What is older than this goes: 90 days ago as 90d, or a time such as 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = when::moment)]
    pub(crate) before: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Whom `audit verify` asks.
#[derive(Debug, Args)]
pub struct Ask {
    /// Let the server check it instead, with an admin key
    #[arg(long)]
    pub(crate) remote: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl Ask {
    /// Whether the server verifies.
    #[must_use]
    pub fn remote(&self) -> bool {
        self.remote
    }

    /// Whether programs read the output.
    #[must_use]
    pub fn json(&self) -> bool {
        self.server.json
    }
}
