//! The process above the launcher. The monitor detaches from the process that started it, starts the launcher,
//! starts it again when it dies, and takes over the containers of a dead launcher so that their ends are still
//! reaped.

use crate::{
    context::{Folders, make_folder, make_folders},
    options::Options,
    reap, server, sys,
};
use atoll_launch_proto::Layout;
use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process, set_child_subreaper, setsid},
};
use std::{
    fs, io,
    io::{Read, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        net::UnixStream,
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// How long to wait for another launcher that is just ending.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts monitor and launcher in the background and returns when they are ready, or why they are not.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    sys::close_inherited();
    // PID 1's descriptors go to these numbers; holding them open keeps other descriptors from getting them.
    let _reserved: Vec<fs::File> = (0..5).map(|_| fs::File::open("/dev/null")).collect::<Result<_, _>>()?;
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("must be started as root"));
    }
    let mut options = options.clone();
    fs::DirBuilder::new().recursive(true).mode(0o755).create(&options.data_dir)?;
    options.data_dir = fs::canonicalize(&options.data_dir)?;
    let folders = Folders { layout: Layout::new(&options.data_dir) };
    make_folder(Layout::machine(), 0o755)?;
    let Some(lock) = take_lock(&folders)? else {
        println!("running");
        return Ok(());
    };
    make_folders(&folders.layout)?;
    let (ready_r, ready_w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork()? {
        sys::Fork::Child => {
            drop(ready_r);
            sys::exit_now(monitor(&options, &folders, lock, ready_w));
        }
        sys::Fork::Parent(_) => {
            drop((lock, ready_w));
            let mut said = String::new();
            fs::File::from(ready_r).read_to_string(&mut said)?;
            match said.strip_prefix("ready") {
                Some(_) => {
                    println!("ready");
                    Ok(())
                }
                None if said.is_empty() => {
                    Err(io::Error::other("the launcher ended without a message; see launch.log"))
                }
                None => Err(io::Error::other(said)),
            }
        }
    }
}

/// Makes this process the instance's only launcher; none when another launcher answers.
fn take_lock(folders: &Folders) -> io::Result<Option<fs::File>> {
    let began = Instant::now();
    loop {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(folders.lock())?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // A launcher that just ended may have removed the lock file.
            let same = fs::metadata(folders.lock())
                .is_ok_and(|m| file.metadata().is_ok_and(|f| (f.ino(), f.dev()) == (m.ino(), m.dev())));
            if same {
                return Ok(Some(file));
            }
            continue;
        }
        if UnixStream::connect(folders.layout.socket()).is_ok() {
            return Ok(None);
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("another launcher holds this data folder and does not answer"));
        }
        sleep(Duration::from_millis(10));
    }
}

fn leave_the_caller(options: &Options) -> io::Result<()> {
    setsid()?;
    std::env::set_current_dir("/")?;
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(options.data_dir.join("launch.log"))?;
    if log.metadata()?.len() > (1 << 20) {
        log.set_len(0)?;
    }
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}

fn monitor(options: &Options, folders: &Folders, lock: fs::File, ready: OwnedFd) -> i32 {
    let mut ready = Some(fs::File::from(ready));
    if let Err(error) = leave_the_caller(options) {
        let _ = ready.take().map(|mut r| write!(r, "cannot go to the background: {error}"));
        return 1;
    }
    let Ok(signals) = sys::signal_fd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP]) else {
        return 1;
    };
    let mut pause = Duration::from_millis(50);
    loop {
        let first = ready.take();
        let began = Instant::now();
        let launcher = match sys::fork() {
            Ok(sys::Fork::Child) => {
                drop(signals);
                sys::unblock_signals();
                sys::exit_now(server::run(options, lock, first));
            }
            Ok(sys::Fork::Parent(pid)) => pid,
            Err(_) => return 1,
        };
        drop(first);
        match watch(folders, launcher, &signals) {
            Some(code) => return code,
            None if began.elapsed() > Duration::from_secs(10) => pause = Duration::from_millis(50),
            None => pause = (pause * 2).min(Duration::from_secs(5)),
        }
        tracing::error!("the launcher died; starting it again");
        sleep(pause);
    }
}

/// Waits for the launcher's end. None: the launcher died and must be started again.
fn watch(folders: &Folders, launcher: i32, signals: &OwnedFd) -> Option<i32> {
    loop {
        let mut fds = [rustix::event::PollFd::new(signals, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, None);
        while let Some(signal) = sys::next_signal(signals) {
            if signal != libc::SIGCHLD
                && let Some(pid) = Pid::from_raw(launcher)
            {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        while let Ok(Some(ended)) = sys::reap_one(-1, false) {
            if ended.pid != launcher {
                reap::note(folders, &ended);
                continue;
            }
            match ended.exit_status {
                Some(code) if code != server::FAULT => return Some(code),
                _ => return None,
            }
        }
    }
}
