//! The process that a client starts. It makes a data folder of its own, starts a launcher, starts the process
//! that serves as an ordinary user, and waits for it. Whether that process crashes or this one gets a signal,
//! it removes everything at the end; the next run sweeps what a killed supervisor left.

use super::{inside, thread};
use crate::{
    cli,
    config::Config,
    own::{Own, sweep},
    serve,
};
use atoll_launch_proto::Layout;
use atoll_provider_native::{LaunchOptions, ensure_launcher};
use atoll_types::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::{path::Path, time::Duration};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// How long the serving process may take to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long to wait for the launcher's end.
const TRIES: u32 = 150;
const PAUSE: Duration = Duration::from_millis(20);

/// Supervises the serving process, until the client disconnects.
pub(super) fn keep(options: &cli::Mcp) -> Result<u8> {
    let config = Config::load(&options.as_serve(options.base()))?;
    let thread = thread::remembered(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Error::internal(format!("cannot start: {e}")))?;
    let done = runtime.block_on(async {
        let base = options.base();
        let own = Own::make(&base)?;
        let sweeping = tokio::spawn(sweep(base));
        let served = serve_in(&own, options, &config, thread.as_str()).await;
        let _ = sweeping.await;
        wait_for_launcher(&own.folder).await;
        let ended = own.end().await;
        ended.and(served)
    });
    runtime.shutdown_background();
    done
}

/// Waits for the end of the launcher, which the serving process usually requested and which takes a moment.
async fn wait_for_launcher(folder: &Path) {
    let run = Layout::new(&folder.canonicalize().unwrap_or_else(|_| folder.to_owned())).run();
    for _ in 0..TRIES {
        if !run.exists() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Adds the remedy where there is no root.
fn without_root(error: Error) -> Error {
    let message = format!(
        "{}\natoll mcp starts sandboxes of its own and needs root for it, as `sudo -n` gives it; or name a server with --server URL",
        error.message
    );
    Error { message, ..error }
}

async fn serve_in(own: &Own, options: &cli::Mcp, config: &Config, thread: &str) -> Result<u8> {
    let end = serve::told_to_end()?;
    let root = rustix::process::geteuid().is_root();
    let identity = if root { Some(serve::identity::find(config.user.as_deref())?) } else { None };
    let launch = LaunchOptions {
        data_dir: own.folder.clone(),
        client_uids: identity.iter().map(|identity| identity.uid).collect(),
        ephemeral: false,
        extra: Vec::new(),
    };
    let started = ensure_launcher(&launch).await;
    started.map_err(|error| if root { error } else { without_root(error) })?;
    let program =
        std::env::current_exe().map_err(|e| Error::internal(format!("where is this program? {e}")))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env("ATOLL_THREAD", thread);
    command.env(inside::FOLDER, &own.folder).env(inside::SUPERVISOR, std::process::id().to_string());
    command.kill_on_drop(true);
    if options.extra_tools {
        command.env("ATOLL_MCP_EXTRA_TOOLS", "true");
    }
    if let Some(identity) = identity {
        serve::identity::prepare(&serve::folder(&own.folder), &identity)?;
        command.envs(serve::egress::find().map(|found| (serve::egress::FOUND, found)));
        command.uid(identity.uid).gid(identity.gid);
    }
    let child =
        command.spawn().map_err(|e| Error::internal(format!("cannot start the part that serves: {e}")))?;
    wait(child, end).await
}

/// Waits for the child; a signal to end this process ends the child too.
async fn wait(mut child: Child, end: impl Future<Output = ()>) -> Result<u8> {
    let status = tokio::select! {
        status = child.wait() => status,
        () = end => {
            let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::TERM);
            }
            match timeout(PATIENCE, child.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            }
        }
    };
    let status = status.map_err(|e| Error::internal(format!("the part that serves is lost: {e}")))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::FAULT))
}
