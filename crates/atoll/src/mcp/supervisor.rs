//! The process that a client starts. It makes a data folder that is nobody else's, sees that a launcher runs,
//! starts the one that serves, as an ordinary user, and waits for it. Whatever happens to that one, and
//! whatever this one is told, nothing is left at the end; what a killed one left is swept by the next.

use super::{inside, thread};
use crate::{cli, config::Config, down, serve};
use atoll_launch_proto::Layout;
use atoll_provider_native::{LaunchOptions, ensure_launcher};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// How long the one that serves may take to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the launcher may take by itself.
const TRIES: u32 = 150;
const PAUSE: Duration = Duration::from_millis(20);
/// Whoever holds it shared is alive.
pub(super) const LOCK: &str = "mcp.lock";

/// Keeps house for one that serves, until the client goes away.
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
        let ended = end(&own.folder).await;
        // What could not be ended stays where the next one finds it.
        if ended.is_ok() {
            remove(&own.folder);
        }
        ended.and(served)
    });
    runtime.shutdown_background();
    done
}

/// Ends the launcher, which mostly was told so by the one that serves and needs a moment.
async fn end(folder: &Path) -> Result<()> {
    let data = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let run = Layout::new(&data).run();
    for _ in 0..TRIES {
        if !run.exists() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    down::end(&data, true).await.map(drop)
}

/// A data folder of one run.
struct Own {
    folder: PathBuf,
    _alive: fs::File,
}

fn fault(path: &Path, e: &io::Error) -> Error {
    Error::new(ErrorCode::PermissionDenied, format!("{} cannot be made: {e}", path.display()))
}

/// Takes a folder's lock.
fn lock(folder: &Path, how: FlockOperation) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    flock(&file, how)?;
    Ok(file)
}

impl Own {
    fn make(base: &Path) -> Result<Self> {
        // An ordinary user must get through to what is its own.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(base).map_err(|e| fault(base, &e))?;
        // Nobody sweeps while a folder has no lock yet.
        let _turn = lock(base, FlockOperation::LockExclusive).map_err(|e| fault(base, &e))?;
        let name = atoll_tool_sessions::ThreadId::random().to_string();
        let folder = base.join(&name[..8]);
        fs::DirBuilder::new().mode(0o755).create(&folder).map_err(|e| fault(&folder, &e))?;
        let alive = lock(&folder, FlockOperation::NonBlockingLockShared).map_err(|e| fault(&folder, &e))?;
        Ok(Self { folder, _alive: alive })
    }
}

/// Removes a run's folder, of which nothing else is left.
fn remove(folder: &Path) {
    let _ = fs::remove_file(folder.join(LOCK));
    let _ = fs::remove_dir(folder);
}

/// Whether a folder is called what runs are called.
fn is_run(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit()) && path.is_dir()
}

/// Ends what others left that are no more.
async fn sweep(base: PathBuf) {
    for folder in left(&base) {
        if let Err(error) = down::end(&folder, true).await {
            eprintln!("atoll: what an earlier run left in {} stays: {}", folder.display(), error.message);
            continue;
        }
        remove(&folder);
    }
}

/// Folders of runs that nobody holds. Taken from here on: no other sweeps them too.
fn left(base: &Path) -> Vec<PathBuf> {
    let Ok(_turn) = lock(base, FlockOperation::LockExclusive) else { return Vec::new() };
    let folders = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = folders.filter(|path| is_run(path));
    runs.filter(|path| lock(path, FlockOperation::NonBlockingLockExclusive).is_ok()).collect()
}

/// Says what would help where there is no root.
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
    command.env(inside::FOLDER, &own.folder).env(inside::KEEPER, std::process::id().to_string());
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

/// Waits for it; when this is told to end, so is that.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_left() {
        let base = tempfile::tempdir().unwrap();
        let (alive, dead) = (Own::make(base.path()).unwrap(), Own::make(base.path()).unwrap());
        assert!(left(base.path()).is_empty());
        let folder = dead.folder.clone();
        drop(dead);
        fs::create_dir(base.path().join("no run of ours")).unwrap();
        assert_eq!(left(base.path()), std::slice::from_ref(&folder));
        fs::remove_file(folder.join(LOCK)).unwrap();
        assert_eq!(left(base.path()), std::slice::from_ref(&folder), "with or without its lock");
        remove(&folder);
        remove(&alive.folder);
        assert!(!folder.exists() && !alive.folder.exists());
    }
}
