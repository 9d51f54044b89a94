//! `atoll down`: ends the server and every sandbox of a data folder, and with `--purge` the folder too.

use crate::{cli, serve};
use atoll_launch_proto::{Layout, Request};
use atoll_provider_native::{LaunchOptions, LauncherClient, ensure_launcher};
use atoll_types::{Error, ErrorCode, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{fs, io, path::Path, time::Duration};

/// How long the server may take to end.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(20);

/// Ends everything that was started for a data folder.
pub(crate) async fn run(options: &cli::Down) -> Result<u8> {
    let data = options.data.dir();
    let Ok(data) = data.canonicalize() else {
        println!("nothing to end: {} does not exist", data.display());
        return Ok(0);
    };
    end_server(&data).await?;
    end_launcher(&data).await?;
    if options.purge {
        purge(&data)?;
    }
    println!(
        "down{}",
        if options.purge { ", and nothing is left" } else { "; volumes and records are kept" }
    );
    Ok(0)
}

/// Whether a process is an `atoll serve` and not somebody who got its number.
fn is_server(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    arguments.first().is_some_and(|a| a.ends_with(b"atoll")) && arguments.contains(&&b"serve"[..])
}

async fn end_server(data: &Path) -> Result<()> {
    let file = serve::pid_file(data);
    let number = fs::read_to_string(&file).ok().and_then(|t| t.trim().parse::<i32>().ok());
    let Some(pid) = number.filter(|n| is_server(*n)).and_then(Pid::from_raw) else {
        let _ = fs::remove_file(file);
        return Ok(());
    };
    kill_process(pid, Signal::TERM).map_err(|e| {
        Error::new(
            ErrorCode::PermissionDenied,
            format!("the server (process {}) cannot be ended: {e}", pid.as_raw_nonzero()),
        )
    })?;
    for _ in 0..TRIES {
        if test_kill_process(pid).is_err() || !is_server(pid.as_raw_nonzero().get()) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::new(ErrorCode::Timeout, "the server does not end; kill it and try again"))
}

/// Starts the launcher where none runs: only it can free what a dead one left.
async fn end_launcher(data: &Path) -> Result<()> {
    let layout = Layout::new(data);
    if !layout.run().exists() && !data.join("storage").exists() {
        return Ok(());
    }
    let options = LaunchOptions {
        data_dir: data.into(),
        client_uids: Vec::new(),
        ephemeral: false,
        extra: vec!["--permit-missing".into(), "memory,pids,cpu,cpuset".into()],
    };
    ensure_launcher(&options).await?;
    LauncherClient::new(&layout).ask(Request::Shutdown).await?;
    for _ in 0..TRIES {
        if !layout.run().exists() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::new(ErrorCode::Timeout, "the launcher does not end; see launch.log in the data folder"))
}

fn purge(data: &Path) -> Result<()> {
    // Only what is ours: a data folder that somebody chose badly may hold other things.
    for name in ["server", "storage"] {
        remove(fs::remove_dir_all(data.join(name)))?;
    }
    remove(fs::remove_file(data.join("launch.log")))?;
    match fs::remove_dir(data) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => remove(other),
    }
}

fn remove(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::new(ErrorCode::PermissionDenied, format!("the data folder cannot be deleted: {e}")))
        }
        _ => Ok(()),
    }
}
