//! The commands of `atoll` that call a server. All of them use the REST client; nothing here knows the core,
//! a store or a provider. Text of a server or a sandbox is escaped before it is shown, except a command's own
//! output and a file's own bytes.

mod args;
mod audit;
mod chat;
mod copy;
mod copy_end;
mod copy_folder;
mod create;
mod editor;
mod egress;
mod events;
mod exec;
mod failure;
mod forward;
mod history;
mod images;
mod input;
mod kernels;
mod keys;
mod life;
mod list;
mod logs;
mod mcp;
mod pairs;
mod pool;
mod previews;
mod print;
mod processes;
mod progress;
mod resolve;
mod resources;
mod search;
mod server;
mod settings;
mod shell;
pub mod size;
mod skills;
mod snapshots;
mod state;
mod stats;
mod table;
mod terminal;
mod transfer;
mod update;
mod view;
mod volumes;
mod watch;
mod when;

pub use args::{Keys, Remote};
pub use audit::{
    args::{Ask as AskAudit, Audit},
    run as run_audit, verify as verify_audit,
};
use failure::Failure;
pub use images::pull_with_environment;
pub use keys::run as run_keys;
pub use mcp::bridge as bridge_mcp;
pub use server::Secret;
pub use state::state_dir;

/// What `exec` and `shell` end with where Atoll failed, and not the command.
const FAULT: u8 = 125;

/// Carries out a command and returns the exit code: 0, 1 when the server refuses, 2 for an invalid command
/// line, 125 when no server answers; for `exec` and `shell` the command's own, or 125 for every failure of
/// Atoll. Errors are already printed.
pub async fn run(command: Remote) -> u8 {
    let json = command.json();
    let passes_code = matches!(command, Remote::Exec(_) | Remote::Shell(_));
    match dispatch(command).await {
        Ok(code) => code,
        Err(failure) => match failure.report(json) {
            1.. if passes_code => FAULT,
            code => code,
        },
    }
}

async fn dispatch(command: Remote) -> Result<u8, Failure> {
    match command {
        Remote::Create(options) => create::run(*options).await,
        Remote::Ls(options) => list::run(options).await,
        Remote::Inspect(options) => view::run(options).await,
        Remote::Exec(options) => exec::run(options).await,
        Remote::Shell(options) => shell::run(options).await,
        Remote::RunCode(options) => kernels::run_code(options).await,
        Remote::Repl(options) => kernels::repl(options).await,
        Remote::Chat(options) => chat::run(options).await,
        Remote::Kernels(options) => kernels::list(options).await,
        Remote::Kernel(options) => kernels::control(options).await,
        Remote::Logs(options) => logs::run(options).await,
        Remote::Ps(options) => processes::list(options).await,
        Remote::Stats(options) => stats::run(options).await,
        Remote::Kill(options) => processes::kill(options).await,
        Remote::Cp(options) => copy::run(options).await,
        Remote::Find(options) => search::find(options).await,
        Remote::Grep(options) => search::grep(options).await,
        Remote::Watch(options) => watch::run(options).await,
        Remote::History(options) => history::run(options).await,
        Remote::Export(options) => transfer::export(options).await,
        Remote::Import(options) => transfer::import(options).await,
        Remote::Update(options) => update::run(options).await,
        Remote::Stop(options) => life::run(options, life::LifecycleVerb::Stop).await,
        Remote::Pause(options) => life::run(options, life::LifecycleVerb::Pause).await,
        Remote::Resume(options) => life::run(options, life::LifecycleVerb::Resume).await,
        Remote::Rm(options) => life::run(options, life::LifecycleVerb::Remove).await,
        Remote::Snapshot(options) => snapshots::run(options).await,
        Remote::Fork(options) => snapshots::fork(options).await,
        Remote::Preview(options) => previews::run(options).await,
        Remote::PortForward(options) => forward::run(options).await,
        Remote::Skill(options) => skills::run(options.command).await,
        Remote::Image(options) => images::run(options.command).await,
        Remote::Volume(options) => volumes::run(options.command).await,
        Remote::Events(options) => events::run(options).await,
        Remote::Egress(options) => egress::run(options.command).await,
        Remote::Settings(options) => settings::run(options.command).await,
        Remote::Pool(options) => pool::run(options.command).await,
    }
}
