//! `atoll down`: ends every server and sandbox on this machine, or those of one data folder, and with
//! `--purge` their data folders too.

use crate::{cli, own, serve};
use atoll_launch_proto::{Layout, Request};
use atoll_provider_native::{LaunchOptions, LauncherClient, ensure_launcher};
use atoll_types::{Error, ErrorCode, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the server may take to end.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(20);

/// Ends the requested instances. One that cannot be ended does not stop the others' end.
pub(crate) async fn run(options: &cli::Down) -> Result<u8> {
    let folders = match &options.data_dir {
        Some(named) => vec![named.clone()],
        None => started_here(),
    };
    let mut failed = 0;
    for folder in &folders {
        // A data folder that is gone may have left a launcher behind.
        let data = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        match end(&data, options.purge).await {
            Ok(said) => say!("{}: {said}", data.display()),
            Err(error) => {
                eprintln!("atoll: {}: {}", data.display(), error.message);
                failed += 1;
            }
        }
    }
    if folders.is_empty() {
        say!("nothing to end: Atoll has started nothing on this machine");
    }
    Ok(u8::from(failed > 0))
}

/// The data folders of everything that runs, and the default one, which may belong to a stopped server.
fn started_here() -> Vec<PathBuf> {
    let running = Layout::all().into_iter().map(|layout| layout.data().to_owned());
    let usual = cli::default_data_dir();
    let usual = usual.canonicalize().ok();
    let mut folders: Vec<PathBuf> = running.chain(usual).collect();
    folders.sort();
    folders.dedup();
    folders
}

/// Ends everything that was started for a data folder; returns the result in words.
pub(crate) async fn end(data: &Path, with_data: bool) -> Result<&'static str> {
    if !data.exists() && !Layout::new(data).run().exists() {
        return Ok("nothing to end: there is no such folder");
    }
    end_server(data).await?;
    end_launcher(data, with_data).await?;
    if with_data {
        purge(data)?;
        return Ok("down, and nothing is left");
    }
    Ok("down; volumes and records are kept")
}

/// Whether a process is an `atoll serve` or `atoll mcp` and not another program that reused its PID.
fn is_server(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    arguments.first().is_some_and(|a| a.ends_with(b"atoll"))
        && [&b"serve"[..], b"mcp"].iter().any(|kind| arguments.contains(kind))
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
async fn end_launcher(data: &Path, with_data: bool) -> Result<()> {
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
    LauncherClient::new(&layout).ask(if with_data { Request::Purge } else { Request::Shutdown }).await?;
    for _ in 0..TRIES {
        if !layout.run().exists() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::new(ErrorCode::Timeout, "the launcher does not end; see launch.log in the data folder"))
}

fn purge(data: &Path) -> Result<()> {
    // Only Atoll's own files: an operator may have chosen a data folder that holds others.
    remove(fs::remove_dir_all(data.join("server")))?;
    remove(fs::remove_file(data.join("launch.log")))?;
    ["mcp", own::RUNS].iter().for_each(|runs| own::remove(&data.join(runs)));
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
