//! The command line of `atoll egress`, and its options of `atoll create`.

use crate::server::Server;
use clap::{Args, Subcommand};
use serde_json::Number;
use std::path::PathBuf;

/// `egress`.
#[derive(Debug, Args)]
pub struct Egress {
    #[command(subcommand)]
    pub(crate) command: EgressCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Shows what a sandbox may reach, what it used, and what it was refused
    Show(Show),
    /// Replaces what a sandbox may reach; this applies at once, open connections included
    Set(Set),
    /// Lists what a sandbox asked for and what was decided, the latest last
    Log(Log),
    /// Lists the named lists of hosts, and where each host was learned
    Presets(Presets),
}

impl EgressCommand {
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Show(Show { server, .. })
            | Self::Set(Set { server, .. })
            | Self::Log(Log { server, .. })
            | Self::Presets(Presets { server, .. }) => server.json,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Lists of a policy.
#[derive(Debug, Args)]
pub(crate) struct Lists {
    /// A named list to allow, such as python; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Vec<String>,
    /// What to allow: a host, *.suffix, host:port, an address or a range; may be repeated
    #[arg(long, value_name = "ENTRY")]
    pub(crate) allow: Vec<String>,
    /// What to deny, whatever else is said; may be repeated
    #[arg(long, value_name = "ENTRY")]
    pub(crate) deny: Vec<String>,
    /// What it may use: connections, connections_per_second, bytes, bytes_per_second, connection_seconds;
    /// may be repeated
    #[arg(long, value_name = "NAME=NUMBER", value_parser = limit)]
    pub(crate) limit: Vec<(String, Number)>,
}

fn limit(text: &str) -> Result<(String, Number), String> {
    let (name, number) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
    let number = number.parse().map_err(|_| "expected a number after the =")?;
    Ok((name.trim().to_owned(), number))
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What is reachable at all [default: allowlist where something is listed, otherwise it must be said]
    #[arg(long, value_parser = ["none", "allowlist", "full"], conflicts_with = "file")]
    pub(crate) mode: Option<String>,
    #[command(flatten)]
    pub(crate) lists: Lists,
    /// A policy as JSON, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "allow", "deny", "limit"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// An id, also of one that was removed, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Only with this verdict
    #[arg(long, value_parser = ["allowed", "refused"])]
    pub(crate) verdict: Option<String>,
    /// Only for this host
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Go on with what comes
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Presets {
    /// For sandboxes of this image
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}
