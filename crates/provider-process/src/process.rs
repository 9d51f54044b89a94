//! The process of a container: started by `unshare`, waited for by a thread of its own, ended by closing its pipe.

use crate::{READY, Start};
use atoll_guest_proto::{GuestConfig, Listen};
use atoll_launch_proto::{output_bytes, spool_bytes};
use atoll_provider::{ContainerSpec, State};
use atoll_types::{ContainerId, Death, Error, ErrorCode, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
};
use tokio::sync::watch;

const PROGRAM: &str = "atoll-process-guest";
/// As many ended commands as the launcher has PID 1 keep.
const ENDED_EXECS: usize = 512;

/// PID 1 of a container, with all that it has.
pub(crate) struct Process {
    pub(crate) id: ContainerId,
    pub(crate) socket: PathBuf,
    pub(crate) death: watch::Receiver<Option<Death>>,
    folder: PathBuf,
    pid: Pid,
    /// Taken by the first to end it.
    running: Mutex<Option<Running>>,
}

struct Running {
    /// Its end is PID 1's.
    life: ChildStdin,
    waiter: JoinHandle<()>,
}

fn cannot(why: impl std::fmt::Display) -> Error {
    let hint = "tests without root need user namespaces that ordinary users may make, and util-linux 2.36";
    Error::new(ErrorCode::Unavailable, format!("a process cannot be started: {why} ({hint})"))
}

impl Process {
    /// Starts PID 1 and returns when it listens. On failure nothing of it is left.
    pub(crate) fn start(spec: ContainerSpec, folder: PathBuf, volume: PathBuf) -> Result<Self> {
        let id = spec.id;
        let start = prepare(spec, folder, volume).map_err(cannot)?;
        let started = spawn(&start);
        if started.is_err() {
            let _ = fs::remove_dir_all(&start.folder);
        }
        let (child, life) = started?;
        let pid = Pid::from_child(&child);
        let (sender, death) = watch::channel(None);
        let waiter = std::thread::spawn(move || wait(child, &sender));
        let (socket, running) = (start.socket(), Mutex::new(Some(Running { life, waiter })));
        Ok(Self { id, socket, death, folder: start.folder, pid, running })
    }

    pub(crate) fn state(&self) -> State {
        self.death.borrow().clone().map_or(State::Running, State::Dead)
    }

    /// Ends it and removes its folder; returns when no process of it is left.
    pub(crate) fn end(&self) {
        // The lock is held until the end, so that whichever call is second returns after it as well.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Running { life, waiter }) = running.take() {
            drop(life);
            let _ = waiter.join();
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// Kills it. `unshare` has PID 1 killed with it.
    pub(crate) fn kill(&self) {
        // A process that was waited for has no number any more.
        if self.death.borrow().is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

fn wait(mut child: Child, death: &watch::Sender<Option<Death>>) {
    let status = child.wait().ok();
    let (code, signal) = (status.and_then(|s| s.code()), status.and_then(|s| s.signal()));
    death.send_replace(Some(Death::from_wait(code, signal, false)));
}

/// Makes the folders of a container, and of its volume where that is new.
fn prepare(spec: ContainerSpec, folder: PathBuf, volume: PathBuf) -> std::io::Result<Start> {
    let ContainerSpec { id: _, profile, limits, volume: _, environment } = spec;
    let config = GuestConfig {
        listen: Listen::Inherited(0),
        spool_fd: None,
        oom_fd: None,
        clock_fd: None,
        uid: profile.uid,
        gid: profile.gid,
        home: profile.home().into(),
        environment,
        capabilities: profile.capabilities.clone(),
        seccomp: profile.seccomp,
        open_files: limits.open_files,
        processes: limits.processes,
        output_limit: output_bytes(&limits),
        max_ended_execs: ENDED_EXECS,
        spool_bytes: spool_bytes(&limits),
        guard_proc: false,
        areas_fd: None,
        areas: Vec::new(),
    };
    let start = Start { config, folder, volume, root_mode: profile.root };
    let folders = [start.root(), start.spool(), start.volume.join("workspace"), start.volume.join("home")];
    folders.iter().try_for_each(fs::create_dir_all)?;
    Ok(start)
}

/// The program is beside the tests', or one folder above.
fn program() -> Result<PathBuf> {
    let me = std::env::current_exe().map_err(cannot)?;
    let folders = [me.parent(), me.parent().and_then(Path::parent)];
    let found = folders.iter().flatten().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    found
        .ok_or_else(|| cannot(format!("{PROGRAM} is not built; run `cargo build -p atoll-provider-process`")))
}

fn spawn(start: &Start) -> Result<(Child, ChildStdin)> {
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--fork",
            "--kill-child",
            "--keep-caps",
        ])
        .arg(format!("--map-user={}", start.config.uid))
        .arg(format!("--map-group={}", start.config.gid))
        .arg(program()?)
        .arg(serde_json::to_string(start).map_err(cannot)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let (Some(life), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(cannot("it has no pipes"));
    };
    let mut said = String::new();
    let read = BufReader::new(stdout).read_line(&mut said);
    if read.is_ok() && said.trim_end() == READY {
        return Ok((child, life));
    }
    drop(life);
    let status = child.wait().map_err(cannot)?;
    Err(cannot(if said.is_empty() { status.to_string() } else { said.trim_end().to_owned() }))
}
