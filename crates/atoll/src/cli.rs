//! The command line.

use atoll_cli::size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// A computer of its own for every AI agent.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command in a throw-away sandbox. No server is needed.
    Run(Run),
    /// Says what this machine can and cannot do, and what would help.
    Doctor(Doctor),
    /// Starts the server.
    Serve(Serve),
    /// Serves tools for agents to an MCP client, on stdin and stdout: with sandboxes of its own, or those of a
    /// server
    Mcp(Mcp),
    /// Ends the server and the sandboxes of a data folder, or of every one.
    Down(Down),
    /// The record of who did what.
    #[command(subcommand, arg_required_else_help = true)]
    Audit(Audit),
    /// Makes, lists and revokes API keys
    #[command(subcommand, arg_required_else_help = true)]
    Keys(Keys),
    /// The server's records.
    #[command(subcommand, arg_required_else_help = true)]
    Store(Store),
    /// Prints a completion script for a shell.
    Completion(Completion),
    #[command(flatten)]
    Remote(atoll_cli::Remote),
}

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// The data folder [default: /var/lib/atoll, or ~/.local/state/atoll for an ordinary user]
    #[arg(long, value_name = "DIR", env = "ATOLL_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl Data {
    /// The given data folder, or the default one.
    pub(crate) fn dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(default_data_dir)
    }

    /// The given data folder, if any.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        self.data_dir.clone()
    }
}

/// Root's is the machine's; an ordinary user's is in its home.
pub(crate) fn default_data_dir() -> PathBuf {
    match atoll_cli::state_dir() {
        Some(own) if !rustix::process::geteuid().is_root() => own,
        _ => PathBuf::from("/var/lib/atoll"),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) data: Data,
    /// An image of a server on the same data folder: NAME, NAME:TAG, a digest or an id
    #[arg(long, value_name = "IMAGE", conflicts_with = "mount")]
    pub(crate) image: Option<String>,
    /// What is fixed at start: default, tools, root or build
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) profile: String,
    /// An OCI runtime for stronger or other isolation, such as runsc
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,
    /// Memory, such as 512m or 2g
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = size::bytes)]
    pub(crate) memory: u64,
    /// Cores, such as 0.5 or 2
    #[arg(long, value_name = "CORES", default_value = "1", value_parser = size::cores)]
    pub(crate) cpus: u32,
    /// What may be written, such as 1g
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = size::bytes)]
    pub(crate) disk: u64,
    /// Processes and threads
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    pub(crate) processes: u32,
    /// End the command after this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    pub(crate) timeout: Option<Duration>,
    /// An environment variable: NAME=VALUE, or NAME to pass yours on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Where to run, absolute or relative to /workspace
    #[arg(short, long, value_name = "DIR", default_value = "", hide_default_value = true)]
    pub(crate) workdir: String,
    /// Who runs it inside: a name, UID or UID:GID
    #[arg(short, long, value_name = "USER", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Let it reach any host but this machine, private networks and metadata services
    #[arg(long, conflicts_with = "preset")]
    pub(crate) network: bool,
    /// Let it reach what this preset lists, such as python, node or github; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Vec<String>,
    /// A folder of this machine and where it appears inside, such as .:/workspace; with :ro it cannot be written. What
    /// is yours is the sandbox user's; may be repeated
    #[arg(long, value_name = "DIR:PATH[:ro]", value_parser = crate::run_mount::parse)]
    pub(crate) mount: Vec<crate::run_mount::Mount>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

impl Run {
    /// The options that it shares with a server on the same data folder.
    pub(crate) fn as_serve(&self) -> Serve {
        Serve {
            data: Data { data_dir: Some(self.data.dir()) },
            listen: None,
            config: None,
            user: None,
            no_auth: false,
            set: Vec::new(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Where to listen [default: 127.0.0.1:7300]
    #[arg(long, value_name = "ADDR", env = "ATOLL_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// A configuration file in TOML
    #[arg(long, value_name = "FILE", env = "ATOLL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Whom to become when started as root: a name or UID [default: atoll, or 65530 where there is none]
    #[arg(long, value_name = "NAME", env = "ATOLL_USER")]
    pub(crate) user: Option<String>,
    /// Ask for no key. Only on a loopback address
    #[arg(long, env = "ATOLL_NO_AUTH")]
    pub(crate) no_auth: bool,
    /// A setting, such as admission.wait_seconds=5; may be repeated. What `atoll settings set` stored is
    /// stronger
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A program that can start this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    ClaudeDesktop,
    Cursor,
    Vscode,
}

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// Use the sandboxes of this server, and not some of one's own, which need root
    #[arg(long, value_name = "URL", env = "ATOLL_MCP_SERVER")]
    pub(crate) server: Option<String>,
    /// The key to ask that server with; the environment keeps it out of sight of other users
    #[arg(long, value_name = "KEY", env = "ATOLL_API_KEY", hide_env_values = true)]
    pub(crate) key: Option<atoll_cli::Secret>,
    /// The conversation whose sessions and exports are meant [default: remembered in
    /// ~/.local/state/atoll/mcp-thread.json]
    #[arg(long, value_name = "ID", env = "ATOLL_THREAD")]
    pub(crate) thread: Option<String>,
    /// Offer tools beyond the six: commands in the background, addresses of what listens inside. A server has a
    /// setting of its own for it
    #[arg(long)]
    pub(crate) extra_tools: bool,
    /// Where runs have a folder each, of their own and gone at their end [default: mcp below the usual data
    /// folder]
    #[arg(long, value_name = "DIR", env = "ATOLL_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// A configuration file in TOML, as of `atoll serve`
    #[arg(long, value_name = "FILE", env = "ATOLL_CONFIG")]
    config: Option<PathBuf>,
    /// A setting, such as admission.wait_seconds=5; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print what to put into a client's configuration, and do nothing else
    #[arg(long, value_name = "CLIENT", value_enum)]
    pub(crate) print_config: Option<McpClient>,
}

impl Mcp {
    /// The folder that has a data folder for each run.
    pub(crate) fn base(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| default_data_dir().join(crate::down::MCP))
    }

    /// The options that it shares with a server on a data folder.
    pub(crate) fn as_serve(&self, data_dir: PathBuf) -> Serve {
        Serve {
            data: Data { data_dir: Some(data_dir) },
            listen: None,
            config: self.config.clone(),
            user: std::env::var("ATOLL_USER").ok(),
            no_auth: false,
            set: self.set.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Every data folder on this machine that is yours; root ends those of all users
    #[arg(long)]
    pub(crate) all: bool,
    /// Delete the data folder too: records, keys, volumes. With --all every one
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Checks in the data folder that no row was changed, removed, moved or cut off the end. The server may
    /// run. Exits with 0 when all is well, with 1 when it is not, and with 2 when it cannot tell
    Verify(AuditVerify),
    #[command(flatten)]
    Remote(atoll_cli::Audit),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Makes a new admin key in the data folder of a server that does not run, for when the others are lost
    /// or revoked, and prints its secret. The audit trail tells of it
    Recover(Data),
    #[command(flatten)]
    Remote(atoll_cli::Keys),
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    #[command(flatten)]
    pub(crate) data: Data,
    /// A row and its code that were noted earlier, as an earlier run printed them: they must still be there
    #[arg(long, value_name = "SEQ:MAC")]
    pub(crate) expect: Option<String>,
    #[command(flatten)]
    pub(crate) ask: atoll_cli::AskAudit,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Copies all records from one database to another that is empty, while no server runs. The audit trail is
    /// verified before and after. What is copied stays where it was
    Copy(StoreCopy),
}

#[derive(Debug, Args)]
pub(crate) struct StoreCopy {
    #[command(flatten)]
    pub(crate) data: Data,
    /// sqlite, which is the data folder's own, or postgres://user@host:port/database
    #[arg(long, value_name = "DATABASE")]
    pub(crate) from: String,
    /// The same
    #[arg(long, value_name = "DATABASE")]
    pub(crate) to: String,
    /// A file with the password of --from; PGPASSWORD is another way
    #[arg(long, value_name = "FILE")]
    pub(crate) from_password_file: Option<PathBuf>,
    /// A file with the password of --to
    #[arg(long, value_name = "FILE")]
    pub(crate) to_password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// bash, zsh, fish, elvish or powershell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
