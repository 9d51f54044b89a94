//! The command line.

mod folders;

use crate::{
    chat::args::Chat,
    egress::args::{Egress, Lists},
    forward::{self, Mapping},
    images::ImageOptions,
    kernels::args::{KernelOptions, Kernels, Repl, RunCodeOptions},
    list::{Sort, Status},
    pairs::{self, Pair},
    pool,
    resources::Resources,
    server::Server,
    settings, size,
    skills::SkillOptions,
    snapshots::args::{Fork, SnapshotOptions},
    update::Update,
    volumes::{self, VolumeOptions},
};
use clap::{Args, Subcommand};
pub(crate) use folders::{Cp, Export, Find, Grep, History, Import, Watch};
use std::{net::IpAddr, time::Duration};

/// A command for a server.
#[derive(Debug, Subcommand)]
pub enum Remote {
    /// Creates a sandbox and prints its id
    Create(Box<Create>),
    /// Lists sandboxes
    Ls(Ls),
    /// Shows all about a sandbox
    Inspect(Inspect),
    /// Runs a command in a sandbox; its exit code becomes this one's
    Exec(Exec),
    /// Opens a terminal in a sandbox, or attaches to one that is there
    Shell(Shell),
    /// Runs code in a live interpreter of a sandbox, which keeps its variables
    RunCode(RunCodeOptions),
    /// Types code into a live interpreter of a sandbox
    Repl(Repl),
    /// Talks with the agent, a model that works in its own sandboxes
    Chat(Chat),
    /// Lists the live interpreters of a sandbox
    Kernels(Kernels),
    /// Starts, interrupts, restarts, remembers, copies or ends a live interpreter
    Kernel(KernelOptions),
    /// Shows what a command printed
    Logs(Logs),
    /// Lists the commands that a sandbox runs or remembers
    Ps(Ps),
    /// Shows what sandboxes use, again and again on a terminal
    Stats(Stats),
    /// Ends a command and everything that it started, or sends it a signal
    Kill(Kill),
    /// Copies a file or a folder into a sandbox or out of it
    Cp(Cp),
    /// Finds files and folders in a sandbox
    Find(Find),
    /// Finds lines in a sandbox's files
    Grep(Grep),
    /// Follows what happens to a sandbox's files
    Watch(Watch),
    /// Shows which commands, cells and requests changed a file, the latest first
    History(History),
    /// Writes a sandbox, its record and its files, into one archive
    Export(Export),
    /// Makes a sandbox from an archive and prints its id
    Import(Import),
    /// Changes a sandbox: its volumes, its automatic snapshots, its idle timeout
    Update(Update),
    /// Stops sandboxes; their files stay
    Stop(Several),
    /// Pauses sandboxes with all that runs in them; the next request that needs one resumes it
    Pause(Several),
    /// Lets paused sandboxes go on, and starts stopped ones again
    Resume(Several),
    /// Removes sandboxes and their files
    Rm(Several),
    /// Keeps a sandbox's files as they are, lists, compares and returns to what was kept
    Snapshot(SnapshotOptions),
    /// Makes a sandbox of another one, or of a snapshot, and prints its id
    Fork(Fork),
    /// Prints an address at which a browser sees what a sandbox's port serves
    Preview(Preview),
    /// Connects ports of this machine with ports of a sandbox, until it is interrupted
    PortForward(PortForward),
    /// Uploads, lists, installs and deletes skills: packages of instructions and files for agents
    Skill(SkillOptions),
    /// Pulls, imports, lists, approves and removes images, which sandboxes are made of
    Image(ImageOptions),
    /// Makes, lists, resizes and deletes volumes, which outlive sandboxes
    Volume(VolumeOptions),
    /// Shows what happened to sandboxes, and with -f what happens
    Events(Events),
    /// Shows and changes what sandboxes may reach, and lists what they asked for
    Egress(Egress),
    /// Shows and changes the server's settings; for admins
    Settings(settings::Settings),
    /// Shows and changes what is kept ready; for admins
    Pool(pool::PoolOptions),
}

impl Remote {
    /// Whether programs read the output.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Create(create) => create.server.json,
            Self::Ls(Ls { server, .. })
            | Self::Inspect(Inspect { server, .. })
            | Self::Exec(Exec { server, .. })
            | Self::Shell(Shell { server, .. })
            | Self::RunCode(RunCodeOptions { server, .. })
            | Self::Repl(Repl { server, .. })
            | Self::Chat(Chat { server, .. })
            | Self::Kernels(Kernels { server, .. })
            | Self::Logs(Logs { server, .. })
            | Self::Ps(Ps { server, .. })
            | Self::Stats(Stats { server, .. })
            | Self::Kill(Kill { server, .. })
            | Self::Cp(Cp { server, .. })
            | Self::Find(Find { server, .. })
            | Self::Grep(Grep { server, .. })
            | Self::Watch(Watch { server, .. })
            | Self::History(History { server, .. })
            | Self::Export(Export { server, .. })
            | Self::Import(Import { server, .. })
            | Self::Stop(Several { server, .. })
            | Self::Pause(Several { server, .. })
            | Self::Resume(Several { server, .. })
            | Self::Rm(Several { server, .. })
            | Self::Fork(Fork { server, .. })
            | Self::Update(Update { server, .. })
            | Self::Preview(Preview { server, .. })
            | Self::PortForward(PortForward { server, .. })
            | Self::Events(Events { server, .. }) => server.json,
            Self::Kernel(kernel) => kernel.json(),
            Self::Snapshot(snapshot) => snapshot.json(),
            Self::Skill(skill) => skill.json(),
            Self::Image(image) => image.json(),
            Self::Volume(volume) => volume.json(),
            Self::Egress(egress) => egress.command.json(),
            Self::Settings(settings) => settings.json(),
            Self::Pool(pool) => pool.json(),
        }
    }
}

/// `create`.
#[derive(Debug, Args)]
pub struct Create {
    /// An image, or an alias of one; one of a registry is pulled first where the server's settings say so
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Who its commands run as and what may be written: default, tools, root or build
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// How many processes and threads it may have
    #[arg(long, value_name = "COUNT")]
    pub(crate) processes: Option<u32>,
    /// An environment variable: NAME=VALUE, or NAME to pass yours on
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = pairs::environment)]
    pub(crate) env: Vec<Pair>,
    /// A label: NAME=VALUE
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pairs::label)]
    pub(crate) label: Vec<Pair>,
    /// A package to install: LANGUAGE:NAME, or with a version LANGUAGE:NAME==VERSION
    #[arg(short, long, value_name = "PACKAGE", value_parser = pairs::package)]
    pub(crate) dependency: Vec<pairs::Package>,
    /// Before what the server keeps its files by itself: each command, or each piece of code in an interpreter
    #[arg(long, value_name = "WHEN", value_parser = ["off", "before_exec", "before_run"])]
    pub(crate) auto_snapshot: Option<String>,
    /// A volume of yours to attach, read-only with :ro
    #[arg(long, value_name = "NAME:PATH[:ro]", value_parser = volumes::attached)]
    pub(crate) volume: Vec<atoll_client::AttachedVolume>,
    /// Attach this tenant's storage at /mnt/user-data; it is made if there is none
    #[arg(long, value_name = "ID")]
    pub(crate) tenant: Option<String>,
    /// A path inside that commands may only read
    #[arg(long, value_name = "PATH")]
    pub(crate) read_only: Vec<String>,
    /// A path inside that commands may write, also below one that is read-only
    #[arg(long, value_name = "PATH")]
    pub(crate) read_write: Vec<String>,
    /// A path inside that cannot be reached
    #[arg(long, value_name = "PATH")]
    pub(crate) blocked: Vec<String>,
    /// A name of your own: asking again with it gives the same sandbox
    #[arg(long, value_name = "KEY")]
    pub(crate) session_key: Option<String>,
    /// Let it reach what your key's tier allows
    #[arg(long)]
    pub(crate) network: bool,
    /// What it may reach at all [default: allowlist where something is listed]
    #[arg(long, value_parser = ["none", "allowlist", "full"])]
    pub(crate) egress_mode: Option<String>,
    #[command(flatten)]
    pub(crate) egress: Lists,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `ls`.
#[derive(Debug, Args)]
pub struct Ls {
    /// Only with this status; may be given several times or separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<Status>,
    /// Only with this text in the id, image, session key, owner's name or a label
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// Only of this image
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Only with this label: NAME=VALUE; all that are given must match
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pairs::label)]
    pub(crate) label: Vec<Pair>,
    /// By created, activity, status, image or execs; with :asc or :desc for the order
    #[arg(long, value_name = "FIELD[:ORDER]")]
    pub(crate) sort: Option<Sort>,
    /// All pages, not the first alone
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `exec`.
#[derive(Debug, Args)]
#[command(
    override_usage = "atoll exec [OPTIONS] <ID> [--] <COMMAND>...\n       atoll exec [OPTIONS] <ID> --shell <LINE>"
)]
pub struct Exec {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// End the command after this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    pub(crate) timeout: Option<Duration>,
    /// An environment variable: NAME=VALUE, or NAME to pass yours on
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = pairs::environment)]
    pub(crate) env: Vec<Pair>,
    /// Where to run, absolute or relative to /workspace
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Who runs it inside: a name, UID or UID:GID
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Pass standard input on, also where it is a terminal. A pipe or a file is passed on anyway, except with
    /// --json or --detach
    #[arg(short, long, alias = "stdin")]
    pub(crate) interactive: bool,
    /// Run the command at a terminal, as `atoll shell` does
    #[arg(short, long, conflicts_with_all = ["timeout", "stream", "detach"])]
    pub(crate) tty: bool,
    /// With --json: print an event for each piece of output while the command runs, and not one result after it
    #[arg(long, conflicts_with = "detach")]
    pub(crate) stream: bool,
    /// Do not wait for the command, and print its id
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// A line for the shell, instead of a command
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    pub(crate) shell: Option<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    // Last, because its heading holds for what follows.
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `shell`.
#[derive(Debug, Args)]
#[command(after_help = "ctrl-p ctrl-q detaches: the terminal lives on, and --attach leads back to it.")]
pub struct Shell {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A line for the shell, instead of the login shell itself
    #[arg(long, value_name = "LINE")]
    pub(crate) command: Option<String>,
    /// The terminal to attach to, instead of opening one: its id, or the start of it
    #[arg(long, value_name = "EXEC", conflicts_with_all = ["command", "cwd", "user"])]
    pub(crate) attach: Option<String>,
    /// Where to start, absolute or relative to /workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Who runs it inside: a name, UID or UID:GID
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// What `exec -t` sets for its command.
    #[arg(skip)]
    pub(crate) env: Vec<Pair>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a command, or the start of one
    #[arg(value_name = "EXEC")]
    pub(crate) exec: String,
    /// Wait for more until the command ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin at this byte, counted over both outputs
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub(crate) from: u64,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `ps`.
#[derive(Debug, Args)]
pub struct Ps {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Ids, starts of them, or session keys [default: all that run]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Print once, on a terminal too
    #[arg(long)]
    pub(crate) no_stream: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `kill`.
#[derive(Debug, Args)]
pub struct Kill {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a command, or the start of one
    #[arg(value_name = "EXEC")]
    pub(crate) exec: String,
    /// Only send this signal, such as TERM or 15, to the command's own processes
    #[arg(short, long, value_name = "SIGNAL")]
    pub(crate) signal: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on with what happens from now on, or after --after
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Of this sandbox: an id, also of one that was removed, the start of one, or a session key
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// Of this owner: a name or an id
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Of this kind, such as dead; may be repeated
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Those after the one with this number; 0 is from the oldest that is kept
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `stop`, `pause`, `resume` and `rm`.
#[derive(Debug, Args)]
pub struct Several {
    /// Ids, starts of them, or session keys
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `preview`.
#[derive(Debug, Args)]
pub struct Preview {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The port inside
    #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(required_unless_present_any = ["list", "revoke"], conflicts_with_all = ["list", "revoke"])]
    pub(crate) port: Option<u16>,
    /// For how long the address is worth anything, such as 30m; at most 168h [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    pub(crate) ttl: Option<Duration>,
    /// Lists the addresses of the sandbox that are worth something, by their ids
    #[arg(long, conflicts_with = "ttl")]
    pub(crate) list: bool,
    /// Makes the address with this id, or the start of it, worthless at once
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["ttl", "list"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `port-forward`.
#[derive(Debug, Args)]
pub struct PortForward {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The port inside, and the port here if it is another; 0 for any
    #[arg(required = true, value_name = "[LOCAL:]REMOTE", value_parser = forward::mapping)]
    pub(crate) mappings: Vec<Mapping>,
    /// Where to listen on this machine
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) address: IpAddr,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `keys` asks a server for.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Makes a key and prints its secret, which is never shown again
    Create(KeysCreate),
    /// Lists keys, without their secrets
    Ls(KeysLs),
    /// Makes a key worthless
    Revoke(KeysRevoke),
}

impl Keys {
    /// Whether programs read the output.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Create(KeysCreate { server, .. })
            | Self::Ls(KeysLs { server })
            | Self::Revoke(KeysRevoke { server, .. }) => server.json,
        }
    }
}

/// `keys create`.
#[derive(Debug, Args)]
pub struct KeysCreate {
    /// What to call it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Whose it is, if not yours; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// What it may do
    #[arg(long, value_parser = ["admin", "user", "read_only"])]
    pub(crate) scope: Option<String>,
    /// The ceiling of its limits
    #[arg(long, value_name = "NAME")]
    pub(crate) tier: Option<String>,
    /// For how long it is worth anything, such as 24h
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    pub(crate) expires_in: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `keys ls`.
#[derive(Debug, Args)]
pub struct KeysLs {
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `keys revoke`.
#[derive(Debug, Args)]
pub struct KeysRevoke {
    /// An id, the start of one, a name, or the characters that `keys ls` shows
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser, error::ErrorKind};

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Remote,
    }

    fn parse(line: &str) -> Result<Remote, ErrorKind> {
        let words = std::iter::once("atoll").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|e| e.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_is_arguments_or_a_line() {
        let Ok(Remote::Exec(exec)) = parse("exec abcd -e A=1 -w sub -u root --timeout 2m -- ls -l --json")
        else {
            panic!("refused");
        };
        assert_eq!(exec.command, ["ls", "-l", "--json"]);
        assert_eq!((exec.id.as_str(), exec.server.json, exec.shell), ("abcd", false, None));
        assert_eq!(exec.env, [Pair { name: "A".into(), value: "1".into() }]);
        assert!(matches!(parse("exec abcd --shell ls --json"), Ok(Remote::Exec(e)) if e.server.json));
        assert_eq!(parse("exec abcd").unwrap_err(), ErrorKind::MissingRequiredArgument);
        assert_eq!(parse("exec abcd --shell ls -- ls").unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn mistakes_are_found_before_anything_is_sent() {
        for line in [
            "create --memory lots",
            "create --label x",
            "ls --status asleep",
            "ls --sort colour",
            "ls --sort created:up",
            "ls --label a=b,c",
        ] {
            let kind = parse(line).unwrap_err();
            assert!(matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue), "{line}: {kind:?}");
        }
        assert_eq!(parse("exec abcd --stream -d -- ls").unwrap_err(), ErrorKind::ArgumentConflict);
        for line in ["logs a", "ps", "kill a", "rm", "cp a", "inspect"] {
            assert_eq!(parse(line).unwrap_err(), ErrorKind::MissingRequiredArgument, "{line}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let command = parse("ls --api-key atoll_secret").unwrap();
        assert!(!format!("{command:?}").contains("atoll_secret"));
    }
}
