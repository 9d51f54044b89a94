//! Raw MCP over stdin and stdout of `atoll mcp`. Whatever it prints to stdout must be a message. At its end
//! nothing of it may be left.

use super::{Wire, initialize};
use crate::engine::fixture::{left_at_last, leftovers_of};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio as Pipe},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program that a client started.
pub(super) struct Stdio {
    pub(super) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next: u64,
    notes: Vec<Value>,
}

/// Where programs of one test have their folders.
pub(super) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("atoll-test-").tempdir().unwrap() }
    }

    pub(super) fn base(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The folders of runs that are there.
    pub(super) fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.base()).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command
            .arg("mcp")
            .args(arguments)
            // Where the command line asks; nobody is there, and it must not matter here.
            .env("ATOLL_URL", "http://127.0.0.1:1")
            .env_remove("ATOLL_MCP_SERVER")
            .env_remove("ATOLL_API_KEY")
            .env("ATOLL_DATA_DIR", self.base())
            .env("XDG_STATE_HOME", self.state())
            .env("ATOLL_SETTINGS_WARM_POOL_ENABLED", "false")
            .env("ATOLL_EGRESS_ASK_INDEXES", "false");
        command
    }

    pub(super) fn start(&self, arguments: &[&str]) -> Stdio {
        Stdio::start(self.command(arguments))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = left_at_last(|| self.runs());
        let more: Vec<String> = left.iter().flat_map(|run| leftovers_of(run)).collect();
        for run in &left {
            let _ = Command::new(env!("CARGO_BIN_EXE_atoll"))
                .args(["down", "--purge", "--data-dir"])
                .arg(run)
                .output();
        }
        if !thread::panicking() {
            assert!(left.is_empty(), "left behind: {left:?} {more:#?}");
        }
    }
}

impl Stdio {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Pipe::piped()).stdout(Pipe::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "no message": line }));
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut stdio = Self { child, stdin, lines, next: 0, notes: Vec::new() };
        let begun = stdio.ask("initialize", initialize());
        assert_eq!(begun["result"]["serverInfo"]["name"], "atoll", "{begun}");
        stdio.tell("notifications/initialized", json!({}));
        stdio
    }

    pub(super) fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .and_then(|()| stdin.flush())
            .unwrap();
    }

    pub(super) fn tell(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request and waits for nothing.
    pub(super) fn start_request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write(&message.to_string());
        self.next
    }

    /// What came before the last answer and no request waited for.
    pub(super) fn notes_before(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.notes)
    }

    /// The next message, whatever it is; none at the end.
    pub(super) fn next(&mut self) -> Option<Value> {
        let message = self.lines.recv_timeout(PATIENCE).ok()?;
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        Some(message)
    }

    /// Closes its input and waits for its end.
    pub(super) fn close(&mut self) -> Option<i32> {
        self.stdin = None;
        self.child.wait().unwrap().code()
    }

    /// Its process, and the one that serves.
    pub(super) fn processes(&self) -> (u32, Option<u32>) {
        let keeper = self.child.id();
        let children =
            fs::read_to_string(Path::new("/proc").join(format!("{keeper}/task/{keeper}/children")));
        (keeper, children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok()))
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.stdin = None;
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if began.elapsed() > Duration::from_secs(30) {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Wire for Stdio {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params);
        loop {
            let message = self.next().expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.notes.push(message);
        }
    }

    fn notes(&mut self) -> Vec<Value> {
        while let Ok(message) = self.lines.recv_timeout(Duration::from_millis(200)) {
            self.notes.push(message);
        }
        std::mem::take(&mut self.notes)
    }
}
