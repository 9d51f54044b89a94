//! `atoll down`: ends the server and the sandboxes of one data folder, the default one where none is named, or
//! of every one with `--all`. With `--purge` it deletes those data folders too.

use crate::{cli, own, serve};
use atoll_launch_proto::{Layout, Request};
use atoll_provider_native::{LaunchOptions, LauncherClient, ensure_launcher};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    process::{Pid, Signal, kill_process, test_kill_process},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Below the default data folder: where each `atoll mcp` has a data folder of its own.
pub(crate) const MCP: &str = "mcp";

/// How long the server may take to end.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(20);

/// Ends the requested instances. One that cannot be ended does not stop the others' end.
pub(crate) async fn run(options: &cli::Down) -> Result<u8> {
    let data = options.data.dir();
    // A data folder that is gone may have left a launcher behind.
    let absolute = || std::path::absolute(&data).unwrap_or_else(|_| data.clone());
    let data = data.canonicalize().unwrap_or_else(|_| absolute());
    let running = running();
    let (mut folders, others): (Vec<_>, Vec<_>) =
        running.into_iter().partition(|found| options.all || is_run_of(&data, found));
    if !folders.contains(&data) && (!options.all || data.exists()) {
        folders.push(data.clone());
    }
    // A folder comes after those of runs below it, or it would not be empty.
    folders.sort();
    folders.reverse();
    let mut failed = 0;
    for data in &folders {
        match end(data, options.purge).await {
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
    let unnamed = options.data.named().is_none();
    for other in others.iter().filter(|other| unnamed && **other != data) {
        say!("{}: left as it is; --data-dir or --all would end it", other.display());
    }
    Ok(u8::from(failed > 0))
}

/// The data folders that have something running on this machine and that this user may end.
fn running() -> Vec<PathBuf> {
    let me = rustix::process::geteuid();
    let is_mine = |data: &Path| fs::metadata(data).is_ok_and(|found| found.uid() == me.as_raw());
    let all = Layout::all().into_iter().map(|layout| layout.data().to_owned());
    all.filter(|data| me.is_root() || is_mine(data)).collect()
}

/// Whether a folder is one that `atoll mcp` or `atoll run --mount` made for itself below a data folder.
fn is_run_of(data: &Path, folder: &Path) -> bool {
    folder.parent().is_some_and(|runs| [MCP, own::RUNS].iter().any(|name| runs == data.join(name)))
}

/// Ends everything that was started for a data folder; returns the result in words.
pub(crate) async fn end(data: &Path, with_data: bool) -> Result<&'static str> {
    if !data.exists() && !Layout::new(data).run().exists() {
        return Ok("nothing to end: there is no such folder");
    }
    // The launcher that ends what such a folder left makes the folder anew.
    let missing: Vec<&Path> = data.ancestors().skip(1).take_while(|above| !above.exists()).collect();
    end_server(data).await?;
    end_launcher(data, with_data).await?;
    if with_data {
        purge(data)?;
        for above in missing {
            let _ = fs::remove_dir(above);
        }
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

/// A folder that stays the same one whatever happens to its path: root deletes below folders of users, who could put
/// a link in the place of one of them.
struct HeldFolder(OwnedFd);

impl HeldFolder {
    /// Opens a folder whose path has no links.
    fn open(above: impl AsFd, path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat2(above, path.as_ref(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?))
    }

    /// The path of an entry of this very folder, for as long as it is held.
    fn entry(&self, name: impl AsRef<Path>) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }
}

fn purge(data: &Path) -> Result<()> {
    let folder = match HeldFolder::open(CWD, data) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => deleted(other)?,
    };
    // Only Atoll's own files: an operator may have chosen a data folder that holds others.
    remove(fs::remove_dir_all(folder.entry("server")))?;
    remove(fs::remove_file(folder.entry("launch.log")))?;
    for runs in [MCP, own::RUNS] {
        if let Ok(held) = HeldFolder::open(&folder.0, runs) {
            let _ = fs::remove_file(held.entry(own::LOCK));
        }
        let _ = fs::remove_dir(folder.entry(runs));
    }
    let (Some(above), Some(name)) = (data.parent(), data.file_name()) else { return Ok(()) };
    match fs::remove_dir(deleted(HeldFolder::open(CWD, above))?.entry(name)) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => remove(other),
    }
}

fn deleted<T>(result: io::Result<T>) -> Result<T> {
    let failed =
        |e| Error::new(ErrorCode::PermissionDenied, format!("the data folder cannot be deleted: {e}"));
    result.map_err(failed)
}

fn remove(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => deleted(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_data_folder_or_above_it_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let kept = top.join("other/data/server/kept");
        fs::create_dir_all(&kept).unwrap();
        std::os::unix::fs::symlink("other", top.join("home")).unwrap();
        std::os::unix::fs::symlink("other/data", top.join("data")).unwrap();
        for swapped in ["home/data", "data"] {
            assert!(purge(&top.join(swapped)).is_err(), "{swapped}");
            assert!(kept.exists(), "{swapped}");
        }
        std::os::unix::fs::symlink("/", top.join("other/data/mcp")).unwrap();
        purge(&top.join("other/data")).unwrap();
        assert!(!kept.exists() && top.join("other/data/mcp").is_symlink(), "what is not Atoll's stays");
    }
}
