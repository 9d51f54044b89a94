//! A server of its own for one test, on a data folder of its own. At its end everything is ended by
//! `atoll down --purge`, and what is left then fails the test.

use super::{
    described::expect_described,
    http::{self, Answer},
};
use crate::engine::fixture::{data_folder, left_at_last, leftovers_of};
use atoll_launch_proto::Layout;
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// The first key of every test's server.
pub(crate) const KEY: &str = "bootstrap-key-of-a-test";

/// Any free port.
const ANYWHERE: &str = "127.0.0.1:0";

/// A port that no other test takes while this one's server is down: the kernel gives none of these to connections or to
/// listeners that leave the choice to it, and each process begins at another.
pub(crate) fn own_port() -> String {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let mut all = (0..20_000).map(|_| {
        let number = std::process::id() * 8 + TAKEN.fetch_add(1, Ordering::Relaxed);
        format!("127.0.0.1:{}", 10_000 + number % 20_000)
    });
    all.find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) child: Child,
    folder: Option<tempfile::TempDir>,
    arguments: Vec<String>,
    /// On top of the usual variables.
    variables: Vec<(String, String)>,
    level: &'static str,
    log: Log,
}

/// What servers of one data folder have logged.
type Log = Arc<Mutex<String>>;

fn spawn(
    data: &Path,
    listen: &str,
    arguments: &[String],
    variables: &[(String, String)],
    level: &str,
    log: &Log,
) -> (Child, SocketAddr) {
    // The default port is there once; tests of gRPC name one of their own.
    let off = variables.iter().all(|(name, _)| name != "GRPC_PORT").then_some(("ATOLL_GRPC_LISTEN", ""));
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--listen", listen, "--data-dir"])
        .arg(data)
        .args(arguments)
        .env("ATOLL_BOOTSTRAP_KEY", KEY)
        // Tests of the pool switch it on by a flag, which is stronger.
        .env("ATOLL_SETTINGS_WARM_POOL_ENABLED", "false")
        // A test asks nobody out there; what its tools install, they fetch themselves.
        .env("ATOLL_EGRESS_ASK_INDEXES", "false")
        .env("ATOLL_LOG", level)
        .envs(off)
        .envs(variables.iter().cloned())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Read from the start: a server that logs much before it says its address would wait for a reader.
    let stderr = child.stderr.take().unwrap();
    let shared = Arc::clone(log);
    let reader = thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| {
            eprintln!("server: {line}");
            shared.lock().unwrap().push_str(&(line + "\n"));
        });
    });
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let address = first.split("http://").nth(1).and_then(|t| t.split([' ', '\n']).next()?.parse().ok());
    let Some(address) = address else {
        reader.join().unwrap();
        panic!("the server did not start: {first}{}", log.lock().unwrap());
    };
    thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(drop));
    (child, address)
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_logging("warn", arguments)
    }

    /// One that logs from this level on.
    pub(crate) fn start_logging(level: &'static str, arguments: &[&str]) -> Self {
        Self::start_in(level, arguments, &[])
    }

    /// One with variables of its own.
    pub(crate) fn start_in(level: &'static str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_at(&std::env::temp_dir(), level, arguments, variables)
    }

    /// One whose data folder is below this one.
    pub(crate) fn start_below(parent: &Path, arguments: &[&str]) -> Self {
        Self::start_at(parent, "warn", arguments, &[])
    }

    /// One whose volumes are plain folders: a driver that has something already is kept.
    pub(crate) fn start_on_folders(arguments: &[&str]) -> Self {
        Self::start_on_folders_below(&std::env::temp_dir(), arguments)
    }

    /// The same below this folder.
    pub(crate) fn start_on_folders_below(parent: &Path, arguments: &[&str]) -> Self {
        let folder = data_folder(parent);
        fs::create_dir_all(folder.path().join("storage/dir/volumes/none")).unwrap();
        Self::start_on(folder, "warn", arguments, &[])
    }

    fn start_at(parent: &Path, level: &'static str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = data_folder(parent);
        Self::start_on(folder, level, arguments, variables)
    }

    fn start_on(
        folder: tempfile::TempDir,
        level: &'static str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let log = Log::default();
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(text).collect();
        let (child, address) = spawn(folder.path(), &own_port(), &arguments, &variables, level, &log);
        Self { address, child, folder: Some(folder), arguments, variables, level, log }
    }

    /// What it has logged so far.
    pub(crate) fn logged(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn data(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// Ends the server as violently as possible.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Gives it other variables from its next start on.
    pub(crate) fn set_variables(&mut self, variables: &[(&str, &str)]) {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.variables = variables.iter().map(text).collect();
    }

    /// Starts it again on the same data.
    pub(crate) fn restart(&mut self) {
        self.spawn_at(ANYWHERE);
    }

    /// The same where clients look for it.
    pub(crate) fn restart_at(&mut self, address: SocketAddr) {
        self.spawn_at(&address.to_string());
    }

    fn spawn_at(&mut self, listen: &str) {
        (self.child, self.address) =
            spawn(self.data(), listen, &self.arguments, &self.variables, self.level, &self.log);
    }

    /// A request with a key of one's own, whose answer has a status that the description has for it.
    pub(crate) fn ask_as(&self, key: &str, method: &str, path: &str, body: &str) -> Answer {
        let authorization = format!("Bearer {key}");
        let headers = [("Authorization", authorization.as_str())];
        let answer = http::request(self.address, method, path, &headers, body.as_bytes()).unwrap();
        expect_described(method, path, answer.status);
        answer
    }

    /// A request with the first key.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_as(KEY, method, path, body)
    }

    /// Creates a sandbox and returns its path.
    pub(crate) fn create(&self, body: &str) -> String {
        let made = self.ask("POST", "/api/v1/sandboxes", body);
        assert!(matches!(made.status, 200 | 201), "{made:?}");
        format!("/api/v1/sandboxes/{}", made.json()["id"].as_str().unwrap())
    }

    /// Runs a shell line and returns the whole answer, which must be a success of the API.
    pub(crate) fn exec(&self, sandbox: &str, line: &str) -> serde_json::Value {
        let body = serde_json::json!({ "command": line, "timeout_seconds": 60 }).to_string();
        let answer = self.ask("POST", &format!("{sandbox}/exec"), &body);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// The machine's process id of a sandbox's PID 1.
    pub(crate) fn pid_1(&self, sandbox: &str) -> String {
        let container = self.ask("GET", sandbox, "").json()["container_id"].as_str().unwrap().to_owned();
        let layout = Layout::new(&self.data().canonicalize().unwrap());
        let record = fs::read(layout.run().join("c").join(container).join("record.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&record).unwrap()["pid"].to_string()
    }

    /// What a shell line prints.
    pub(crate) fn says(&self, sandbox: &str, line: &str) -> String {
        self.exec(sandbox, line)["stdout"].as_str().unwrap().trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data().to_path_buf();
        let down = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["down", "--purge", "--data-dir"])
            .arg(&data)
            .output();
        let down = down.unwrap();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let left = left_at_last(|| leftovers_of(&data));
        let said =
            format!("{}{}", String::from_utf8_lossy(&down.stdout), String::from_utf8_lossy(&down.stderr));
        if thread::panicking() {
            eprintln!("down: {said}; left: {left:#?}");
            return;
        }
        assert!(!data.exists(), "purge left the data folder: {said}");
        std::mem::forget(self.folder.take());
        assert!(down.status.success() && left.is_empty(), "down: {said}; left behind: {left:#?}");
    }
}
