//! A real interpreter with a driver in it, on real pipes, as the kernel manager holds it: cells go in, events and
//! output come out. Every wait has a bound; nothing here asserts on time. The interpreter's whole process
//! group is gone when this is dropped.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used)]

use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::fstat;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, PipeReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest that anything here waits for.
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! driver {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/", $name))
    };
}

/// What is started, and with which driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Node,
    R,
    Bash,
}

impl Kind {
    fn command(self) -> Command {
        let (program, options, start): (_, &[&str], _) = match self {
            Self::Node => (
                "node",
                &["--expose-internals", "--no-force-async-hooks-checks", "-e"],
                driver!("start-node.js"),
            ),
            Self::R => (
                "R",
                &["--no-echo", "--no-save", "--no-restore", "--no-init-file", "-e"],
                driver!("start-r.R"),
            ),
            Self::Bash => ("bash", &["-c"], driver!("start-bash.sh")),
        };
        let mut command = Command::new(program);
        command.args(options).arg(start.trim_end());
        command
    }

    fn driver(self) -> &'static str {
        match self {
            Self::Node => driver!("node.js"),
            Self::R => driver!("r.R"),
            Self::Bash => driver!("bash.sh"),
        }
    }
}

/// What came of one cell.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Its displays, in order.
    pub(crate) displays: Vec<Value>,
    /// The last event.
    pub(crate) done: Value,
}

impl Cell {
    /// Its value as text; empty where there was none.
    pub(crate) fn text(&self) -> &str {
        self.done["result"]["text/plain"].as_str().unwrap_or_default()
    }

    /// The type of its error; empty where there was none.
    pub(crate) fn error(&self) -> &str {
        self.done["error"]["type"].as_str().unwrap_or_default()
    }

    /// Its error's message.
    pub(crate) fn message(&self) -> &str {
        self.done["error"]["message"].as_str().unwrap_or_default()
    }

    /// Its error's traceback.
    pub(crate) fn traceback(&self) -> &str {
        self.done["error"]["traceback"].as_str().unwrap_or_default()
    }
}

/// What was printed so far to one descriptor.
#[derive(Default)]
struct Printed {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
}

impl Printed {
    fn read(from: PipeReader) -> Arc<Self> {
        let printed = Arc::new(Self::default());
        let into = printed.clone();
        let mut from = from;
        thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                into.bytes.lock().unwrap().extend_from_slice(&buffer[..count]);
                into.more.notify_all();
            }
        });
        printed
    }

    /// Waits until something is in there, takes all up to its end, and gives what was before it.
    fn until(&self, wanted: &str) -> String {
        let find = |bytes: &Vec<u8>| bytes.windows(wanted.len()).position(|part| part == wanted.as_bytes());
        let bytes = self.bytes.lock().unwrap();
        let (mut bytes, late) =
            self.more.wait_timeout_while(bytes, PATIENCE, |bytes| find(bytes).is_none()).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!late.timed_out(), "{wanted:?} was never printed, but {text:?}");
        let at = find(&bytes).unwrap();
        let before = String::from_utf8_lossy(&bytes[..at]).into_owned();
        bytes.drain(..at + wanted.len());
        before
    }
}

/// A running interpreter.
pub(crate) struct Interpreter {
    kind: Kind,
    child: Child,
    requests: Option<std::io::PipeWriter>,
    events: Receiver<Value>,
    stdout: Arc<Printed>,
    stderr: Arc<Printed>,
    cells: u64,
    /// Its folder, and its home.
    pub(crate) folder: tempfile::TempDir,
    /// What it said of itself.
    pub(crate) name: String,
    /// The pipes of the protocol, as `/proc` names them.
    pub(crate) protocol: [String; 2],
}

impl Interpreter {
    /// Starts one and waits until it is ready.
    pub(crate) fn start(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (stdout, out) = std::io::pipe().unwrap();
        let (stderr, err) = std::io::pipe().unwrap();
        let (takes, mut requests) = std::io::pipe().unwrap();
        let (events, gives) = std::io::pipe().unwrap();
        let name = |fd: &dyn AsFd| format!("pipe:[{}]", fstat(fd.as_fd()).unwrap().st_ino);
        let protocol = [name(&takes), name(&gives)];
        let mut command = kind.command();
        command.stdin(Stdio::null()).stdout(out).stderr(err).current_dir(folder.path());
        command.env("HOME", folder.path()).env("TMPDIR", folder.path()).env("LC_ALL", "C.UTF-8");
        let places = [(OwnedFd::from(takes), 3), (OwnedFd::from(gives), 4)];
        let places = places.into_iter().map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
        command.fd_mappings(places.collect()).unwrap().process_group(0);
        let child = command.spawn().expect("the interpreter is installed");
        drop(command);
        write!(requests, "{}\n{}", kind.driver().len(), kind.driver()).unwrap();
        let (send, receive) = channel();
        thread::spawn(move || {
            for line in BufReader::new(events).lines().map_while(Result::ok).filter(|line| !line.is_empty()) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line:.200}"));
                if send.send(event).is_err() {
                    return;
                }
            }
        });
        let mut this = Self {
            kind,
            child,
            requests: Some(requests),
            events: receive,
            stdout: Printed::read(stdout),
            stderr: Printed::read(stderr),
            cells: 0,
            folder,
            name: String::new(),
            protocol,
        };
        let ready = this.event();
        assert_eq!(ready["event"], "ready");
        this.name = ready["interpreter"].as_str().unwrap().to_owned();
        this
    }

    fn event(&self) -> Value {
        let late = || {
            panic!("no event came; stderr: {:?}", String::from_utf8_lossy(&self.stderr.bytes.lock().unwrap()))
        };
        self.events.recv_timeout(PATIENCE).unwrap_or_else(|_| late())
    }

    /// Writes a request as it is.
    pub(crate) fn request(&mut self, bytes: &[u8]) {
        self.requests.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Asks for a cell.
    pub(crate) fn begin(&mut self, code: &str) {
        self.cells += 1;
        let id = self.cells;
        let line = match self.kind {
            Kind::Node => format!("{}\n", serde_json::json!({"op": "execute", "id": id, "code": code})),
            Kind::R | Kind::Bash => format!("execute {id} {}\n{code}", code.len()),
        };
        self.request(line.as_bytes());
    }

    /// Waits for the end of a cell.
    pub(crate) fn end(&mut self) -> Cell {
        let mut displays = Vec::new();
        loop {
            let event = self.event();
            match event["event"].as_str() {
                Some("display") => displays.push(event),
                Some("done") => {
                    assert_eq!(event["id"], self.cells);
                    return Cell { displays, done: event };
                }
                _ => panic!("an event that nobody asked for: {event}"),
            }
        }
    }

    /// Runs a cell.
    pub(crate) fn cell(&mut self, code: &str) -> Cell {
        self.begin(code);
        self.end()
    }

    /// Runs a cell that must end well, and gives its value as text.
    pub(crate) fn value(&mut self, code: &str) -> String {
        let cell = self.cell(code);
        assert_eq!(cell.done["error"], Value::Null, "{code}: {}", cell.done);
        cell.text().to_owned()
    }

    /// Runs a cell that prints `running`, interrupts it then, and again until it is over.
    pub(crate) fn interrupted(&mut self, code: &str) -> Cell {
        self.begin(code);
        self.stdout("running\n");
        let begun = Instant::now();
        loop {
            self.interrupt();
            match self.events.recv_timeout(Duration::from_millis(500)) {
                Ok(done) => return Cell { displays: Vec::new(), done },
                Err(_) => assert!(begun.elapsed() < PATIENCE, "{code} is not interrupted"),
            }
        }
    }

    /// SIGINT to the process group.
    pub(crate) fn interrupt(&self) {
        kill_process_group(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits until stdout had this since the last time, and gives what came before it.
    pub(crate) fn stdout(&self, wanted: &str) -> String {
        self.stdout.until(wanted)
    }

    /// The same of stderr.
    pub(crate) fn stderr(&self, wanted: &str) -> String {
        self.stderr.until(wanted)
    }

    /// Waits for the interpreter's end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the interpreter does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Fails if a child of the interpreter has a pipe of the protocol, by what `ls -l` of its descriptors says.
    pub(crate) fn assert_apart(&self, descriptors: &str) {
        assert!(descriptors.contains("/dev/null"), "{descriptors}");
        for pipe in &self.protocol {
            assert!(!descriptors.contains(pipe), "{pipe} is among {descriptors}");
        }
    }

    /// No more requests.
    pub(crate) fn close(&mut self) {
        self.requests = None;
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.child.wait().ok();
    }
}

/// Width and height of the picture that a display names, which decodes to its end.
pub(crate) fn picture(display: &Value) -> (u32, u32) {
    assert_eq!(display["type"], "image/png");
    let path = Path::new(display["file"].as_str().unwrap());
    let mut reader =
        png::Decoder::new(BufReader::new(std::fs::File::open(path).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    assert!(pixels.iter().any(|byte| *byte != pixels[0]), "the picture is of one colour");
    (reader.info().width, reader.info().height)
}

/// The text of a display, wherever it is.
pub(crate) fn text(display: &Value) -> String {
    match display["file"].as_str() {
        Some(file) => std::fs::read_to_string(file).unwrap(),
        None => display["data"].as_str().unwrap().to_owned(),
    }
}
