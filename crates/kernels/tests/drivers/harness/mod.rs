//! A real Python interpreter with the driver in it, spoken to as the kernel manager does. Every wait has a bound, and
//! whatever was started is ended when the kernel is dropped.

#![allow(clippy::unwrap_used)]

use command_fds::{CommandFdExt, FdMapping};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::Timespec,
    io::Errno,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair,
    },
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, waitpid,
    },
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{IoSlice, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const BOOT: &str = include_str!("../../../drivers/python/boot.py");
const DRIVER: &str = concat!(
    include_str!("../../../drivers/python.py"),
    "\n#### world\n",
    include_str!("../../../drivers/python/world.py"),
    "\n#### cell\n",
    include_str!("../../../drivers/python/cell.py"),
    "\n#### errors\n",
    include_str!("../../../drivers/python/errors.py"),
    "\n#### show\n",
    include_str!("../../../drivers/python/show.py"),
    "\n#### ipython\n",
    include_str!("../../../drivers/python/ipython.py"),
    "\n#### copy\n",
    include_str!("../../../drivers/python/copy.py"),
);
const PATIENCE: Duration = Duration::from_secs(60);

/// Which interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// The machine's, with whatever packages it has.
    System,
    /// One with nothing but Python itself.
    Plain,
}

/// What came of a cell.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) done: Value,
    pub(crate) displays: Vec<Value>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Cell {
    /// The value's text; a cell that failed fails the test.
    pub(crate) fn text(&self) -> &str {
        assert!(self.done["error"].is_null(), "{self:?}");
        self.done["result"]["text/plain"].as_str().unwrap_or_default()
    }

    /// The error's type, message and traceback.
    pub(crate) fn error(&self) -> (&str, &str, &str) {
        let field = |name: &str| self.done["error"][name].as_str().unwrap_or_else(|| panic!("{self:?}"));
        (field("type"), field("message"), field("traceback"))
    }
}

/// The kernel manager's ends.
struct Ends {
    stdout: OwnedFd,
    stderr: OwnedFd,
    requests: File,
    events: OwnedFd,
    forks: OwnedFd,
}

/// The interpreter's ends: 1 to 5.
fn ends() -> (Ends, [OwnedFd; 5]) {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
    let ((stdout, one), (stderr, two), (three, requests), (events, four)) = (pipe(), pipe(), pipe(), pipe());
    let (forks, five) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let requests = File::from(requests);
    (Ends { stdout, stderr, requests, events, forks }, [one, two, three, four, five])
}

/// A live kernel.
pub(crate) struct Kernel {
    ends: Ends,
    line: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    displays: Vec<Value>,
    number: u64,
    processes: Vec<Pid>,
    pub(crate) ready: Value,
    pub(crate) pid: Pid,
    pub(crate) folder: PathBuf,
    _kept: Option<TempDir>,
}

fn python(flavour: Flavour, folder: &Path) -> PathBuf {
    let system = ["/usr/bin/python3", "/usr/local/bin/python3"];
    let system = system.iter().map(Path::new).find(|path| path.exists()).expect("python3 is needed");
    if flavour == Flavour::System {
        return system.to_owned();
    }
    let venv = folder.join("venv");
    let made = Command::new(system).args(["-m", "venv", "--without-pip"]).arg(&venv).status().unwrap();
    assert!(made.success());
    venv.join("bin/python3")
}

/// Whether the machine's Python has a module. Where it has not, the test says so and checks less.
pub(crate) fn has(module: &str) -> bool {
    let python = python(Flavour::System, Path::new("/"));
    let found = Command::new(python).arg("-c").arg(format!("import {module}")).stderr(Stdio::null()).status();
    let found = found.unwrap().success();
    if !found {
        // `make test` installs what it needs first; of plotly the system's Python has no package everywhere.
        let must = std::env::var_os("ATOLL_TEST_ALL").is_some() && module != "plotly";
        assert!(!must, "this machine's Python has no {module}");
        eprintln!("SKIPPED: this machine's Python has no {module}");
    }
    found
}

impl Kernel {
    /// Starts an interpreter in a folder of its own.
    pub(crate) fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, |_| ())
    }

    /// The same, with something in its folder beforehand.
    pub(crate) fn start_with(flavour: Flavour, prepare: impl FnOnce(&Path)) -> Self {
        // What a fork leaves comes to us, as it does to the kernel manager.
        set_child_subreaper(Some(getpid())).unwrap();
        let kept = TempDir::new().unwrap();
        let (work, home) = (kept.path().join("work"), kept.path().join("home"));
        std::fs::create_dir(&work).unwrap();
        std::fs::create_dir(&home).unwrap();
        prepare(&work);
        let (mut ends, theirs) = ends();
        let mappings =
            theirs.into_iter().zip(1..).map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
        let mut command = Command::new(python(flavour, kept.path()));
        command.args(["-c", BOOT]).current_dir(&work).stdin(Stdio::null()).env("HOME", &home);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        #[allow(clippy::zombie_processes, reason = "dropping the kernel waits for it, by its id")]
        let child = command.fd_mappings(mappings.collect()).unwrap().spawn().unwrap();
        // It goes here, and with it our copies of the interpreter's ends.
        drop(command);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        writeln!(ends.requests, "{}", DRIVER.len()).unwrap();
        ends.requests.write_all(DRIVER.as_bytes()).unwrap();
        let mut kernel = Self::over(ends, pid, work);
        kernel._kept = Some(kept);
        kernel
    }

    fn over(ends: Ends, pid: Pid, folder: PathBuf) -> Self {
        let mut kernel = Self {
            ends,
            line: Vec::new(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            displays: Vec::new(),
            number: 0,
            processes: vec![pid],
            ready: Value::Null,
            pid,
            folder,
            _kept: None,
        };
        kernel.ready = kernel.wait_for("ready");
        kernel.pid = process(&kernel.ready["pid"]);
        kernel.processes.push(kernel.pid);
        kernel
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &Value) {
        self.ends.requests.write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    /// Runs a cell.
    pub(crate) fn run(&mut self, code: &str) -> Cell {
        self.begin(code);
        self.finish()
    }

    /// Sends a cell and does not wait for it.
    pub(crate) fn begin(&mut self, code: &str) {
        self.number += 1;
        let number = self.number;
        self.send(&json!({"op": "execute", "id": number, "code": code}));
    }

    /// Waits for the cell's end.
    pub(crate) fn finish(&mut self) -> Cell {
        let mut done = self.wait_for("done");
        while done["id"].as_u64() < Some(self.number) {
            done = self.wait_for("done");
        }
        assert_eq!(done["id"], self.number);
        let text = |bytes: &mut Vec<u8>| String::from_utf8_lossy(&std::mem::take(bytes)).into_owned();
        Cell {
            done,
            displays: std::mem::take(&mut self.displays),
            stdout: text(&mut self.stdout),
            stderr: text(&mut self.stderr),
        }
    }

    /// Waits until a cell has printed something.
    pub(crate) fn wait_for_output(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&self.stdout).contains(text) {
            assert!(Instant::now() < end, "no {text:?} in {:?}", String::from_utf8_lossy(&self.stdout));
            self.read(Duration::from_millis(100));
        }
    }

    /// Waits for the next event that is no display.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.next_event() {
                assert_eq!(event["event"], kind, "{event}");
                // What was printed before is in the pipes already.
                while self.read(Duration::ZERO) {}
                return event;
            }
            let (out, err) = (String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr));
            assert!(Instant::now() < end, "no {kind}; stdout: {out}; stderr: {err}");
            self.read(Duration::from_millis(100));
        }
    }

    fn next_event(&mut self) -> Option<Value> {
        while let Some(at) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=at).collect();
            match serde_json::from_slice::<Value>(&line) {
                Ok(event) if event["event"] == "display" => self.displays.push(event),
                Ok(event) => return Some(event),
                Err(_) => {}
            }
        }
        None
    }

    /// Reads whatever there is; whether there was something.
    fn read(&mut self, longest: Duration) -> bool {
        let ends = [&self.ends.stdout, &self.ends.stderr, &self.ends.events];
        let mut polled = ends.map(|end| PollFd::new(end, PollFlags::IN));
        let longest = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        match poll(&mut polled, Some(&longest)) {
            Ok(0) | Err(Errno::INTR) => return false,
            other => other.unwrap(),
        };
        let ready = polled.map(|end| end.revents().contains(PollFlags::IN));
        let targets = [&mut self.stdout, &mut self.stderr, &mut self.line];
        let mut buffer = vec![0; 1 << 16];
        for ((end, target), ready) in ends.into_iter().zip(targets).zip(ready) {
            if ready {
                let count = rustix::io::read(end, &mut buffer).unwrap();
                target.extend_from_slice(&buffer[..count]);
            }
        }
        ready.contains(&true)
    }

    /// Interrupts, as the kernel manager does.
    pub(crate) fn interrupt(&self) {
        kill_process_group(self.pid, Signal::INT).unwrap();
    }

    /// Interrupts the running cell until it has ended, again and again as the kernel manager does.
    pub(crate) fn interrupt_and_finish(&mut self) -> Cell {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.line.contains(&b'\n') {
            self.interrupt();
            self.read(Duration::from_millis(500));
        }
        self.finish()
    }

    /// Makes a checkpoint: its process, and what was said of it.
    pub(crate) fn checkpoint(&mut self) -> (Pid, Value) {
        self.number += 1;
        let number = self.number;
        self.send(&json!({"op": "checkpoint", "id": number}));
        let made = self.wait_for("checkpoint");
        assert_eq!(made["id"], number);
        let pid = process(&made["pid"]);
        self.processes.push(pid);
        (pid, made)
    }

    /// Returns to a checkpoint: the process that waits from now on.
    pub(crate) fn roll_back(&mut self, checkpoint: Pid) -> Pid {
        kill_process_group(self.pid, Signal::KILL).unwrap();
        // Until it is gone, it could still take a request out of the pipe.
        waitpid(Some(self.pid), WaitOptions::empty()).unwrap();
        kill_process(checkpoint, Signal::USR1).unwrap();
        let restored = self.wait_for("restored");
        self.pid = process(&restored["pid"]);
        let waiting = process(&restored["checkpoint"]);
        self.processes.push(waiting);
        waiting
    }

    /// A kernel of its own from this one, or from one of its checkpoints.
    pub(crate) fn fork(&mut self, checkpoint: Option<Pid>) -> Self {
        let (ours, theirs) = ends();
        {
            let descriptors = theirs.each_ref().map(AsFd::as_fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
            let mut buffer = SendAncillaryBuffer::new(&mut space);
            assert!(buffer.push(SendAncillaryMessage::ScmRights(&descriptors)));
            sendmsg(&self.ends.forks, &[IoSlice::new(b"f")], &mut buffer, SendFlags::empty()).unwrap();
        }
        drop(theirs);
        let Some(checkpoint) = checkpoint else {
            self.number += 1;
            let number = self.number;
            self.send(&json!({"op": "fork", "id": number}));
            let forked = self.wait_for("forked");
            assert_eq!(forked["id"], number);
            let pid = process(&forked["pid"]);
            return Self::over(ours, pid, self.folder.clone());
        };
        kill_process(checkpoint, Signal::USR2).unwrap();
        let mut kernel = Self::over(ours, self.pid, self.folder.clone());
        kernel.processes = vec![kernel.pid];
        kernel
    }

    /// Closes the requests and waits for the interpreter's end: whether it ended by itself and well.
    pub(crate) fn end(mut self) -> bool {
        let (_, nowhere) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        self.ends.requests = File::from(nowhere);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.read(Duration::from_millis(20));
            if let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG).unwrap() {
                return status.exit_status() == Some(0);
            }
        }
        false
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // All of them are our children, so that none of these ids can be another's.
        for pid in &self.processes {
            if let Ok(None) = waitpid(Some(*pid), WaitOptions::NOHANG) {
                let _ = kill_process_group(*pid, Signal::KILL).or_else(|_| kill_process(*pid, Signal::KILL));
                let _ = waitpid(Some(*pid), WaitOptions::empty());
            }
        }
    }
}

fn process(pid: &Value) -> Pid {
    let raw = pid.as_i64().and_then(|raw| i32::try_from(raw).ok());
    raw.and_then(Pid::from_raw).unwrap_or_else(|| panic!("no process: {pid}"))
}
