//! The process that serves: an engine on the supervisor's folder, as an ordinary user, for one client on
//! stdin and stdout. It ends with its supervisor.

use crate::{
    cli,
    config::{Config, DatabaseConfig},
    serve,
};
use atoll_core::Caller;
use atoll_front_mcp::ServerContext;
use atoll_launch_proto::{Layout, Request};
use atoll_provider_native::{LauncherClient, NativeProvider};
use atoll_tool_sessions::{CancellationToken, ToolCaller};
use atoll_types::{Error, Result};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Signal, getppid, set_parent_process_death_signal},
};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The variables in which the supervisor passes its PID and the folder that it made.
pub(super) const SUPERVISOR: &str = "ATOLL_MCP_SUPERVISOR";
pub(super) const FOLDER: &str = "ATOLL_MCP_FOLDER";

/// What the supervisor passed.
pub(super) struct Part {
    supervisor: String,
    folder: PathBuf,
}

/// What the supervisor passed, where one started this process.
pub(super) fn part() -> Option<Part> {
    let (supervisor, folder) = (std::env::var(SUPERVISOR).ok()?, std::env::var_os(FOLDER)?);
    Some(Part { supervisor, folder: folder.into() })
}

/// Serves until the client disconnects or the supervisor ends.
pub(super) fn serve(options: &cli::Mcp, part: &Part) -> Result<u8> {
    let follow = set_parent_process_death_signal(Some(Signal::TERM));
    follow.map_err(|e| Error::internal(format!("the supervisor's end would not be noticed: {e}")))?;
    if getppid().map(|pid| pid.as_raw_nonzero().to_string()).as_deref() != Some(&part.supervisor) {
        return Err(Error::internal("the supervisor is gone"));
    }
    // As long as this lock is held, no other run sweeps the folder.
    let _alive = hold(&part.folder)?;
    let config = Config::load(&options.as_serve(part.folder.clone()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::internal(format!("cannot start: {e}")))?;
    let done = runtime.block_on(run(options, &config));
    // A thread may still be blocked reading stdin.
    runtime.shutdown_background();
    done.map(|()| 0)
}

fn hold(folder: &Path) -> Result<fs::File> {
    let fault = |e: std::io::Error| Error::internal(format!("the folder cannot be held: {e}"));
    let file = fs::File::open(folder.join(crate::own::LOCK)).map_err(fault)?;
    flock(&file, FlockOperation::NonBlockingLockShared).map_err(|e| fault(e.into()))?;
    Ok(file)
}

async fn run(options: &cli::Mcp, config: &Config) -> Result<()> {
    serve::log_to_stderr("warn,sqlx=error,rmcp=error");
    let told = serve::told_to_end()?;
    let end = CancellationToken::new();
    let ending = end.clone();
    tokio::spawn(async move {
        told.await;
        ending.cancel();
    });
    let provider = Arc::new(NativeProvider::new(serve::launcher(config, Vec::new()).await?.client));
    let ground = serve::engine::Ground::open(&config.data_dir, &DatabaseConfig::File).await?;
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut engine = ground.build(config, provider, nowhere).await?;
    fs::write(serve::pid_file(&config.data_dir), std::process::id().to_string())
        .map_err(|e| Error::internal(format!("the pid file cannot be written: {e}")))?;
    engine.run(config).await?;
    let face = ServerContext::new(engine.core.clone(), engine.sessions.clone(), config.mcp.clone());
    let thread = super::thread::remembered(options)?;
    let who = ToolCaller { caller: Caller::local().from("mcp", None), thread, address: None };
    let served = atoll_front_mcp::serve_stdio(face, who, end).await;
    engine.end().await;
    let _ = fs::remove_file(serve::pid_file(&config.data_dir));
    // The sandboxes belonged to this client. The supervisor purges them too, but it may have been killed.
    let purged = LauncherClient::new(&Layout::new(&config.data_dir)).ask(Request::Purge).await;
    if let Err(error) = purged {
        tracing::debug!(%error, "the launcher is gone already");
    }
    served
}
