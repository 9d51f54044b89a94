//! The control plane without root: the real server, in this process and on a loopback address, above the provider for
//! tests. Everything is real but the container; what containers are the point of is in `engine` and `server`. This is
//! a module of the program, because it assembles what the program does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod compat;
#[path = "../server/described.rs"]
mod described;
mod execs;
mod files;
mod grpc;
#[path = "../server/http.rs"]
#[allow(dead_code, reason = "the tests of `server` use more of it")]
mod http;
mod keys;
mod langgraph;
mod life;
mod limits;
mod lossless;
mod mcp;
mod providers;
mod restarts;
mod silent;
mod states;
mod told;

use crate::{cli, config::Config, serve::Bound};
use atoll_core::Core;
use atoll_provider::Provider;
use atoll_provider_process::ProcessProvider;
use atoll_tool_sessions::CancellationToken;
use clap::Parser;
use described::expect_described;
use http::Answer;
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinHandle};

/// The first key of every test's server.
const KEY: &str = "bootstrap-key-of-a-test";
const AUTH: (&str, &str) = ("Authorization", "Bearer bootstrap-key-of-a-test");
const ROOT: &str = "/api/v1/sandboxes";
const SETTINGS: &str = "/api/v1/settings/sandbox";

/// No pool, which this provider could not fill, and no requests to package indexes.
const CONFIG: &str = "[settings]\nwarm_pool_enabled = false\n[egress]\nask_indexes = false\n[grpc]\nlisten = \"127.0.0.1:0\"\n";

/// A server of its own for one test, with a data folder and a provider that outlive it.
struct Server {
    address: SocketAddr,
    grpc: SocketAddr,
    /// The second address of the LangGraph API, where the test asked for one.
    langgraph: Option<SocketAddr>,
    life: Option<Life>,
    config: Config,
    provider: Arc<ProcessProvider>,
    _folder: tempfile::TempDir,
}

/// One run of the server. Its runtime is its own, so that no task of it outlives it.
struct Life {
    runtime: Runtime,
    core: Core,
    end: CancellationToken,
    served: JoinHandle<()>,
}

fn config(folder: &std::path::Path, more: &str, arguments: &[&str]) -> Config {
    let file = folder.join("config.toml");
    fs::write(&file, format!("{CONFIG}{more}")).unwrap();
    let (file, data) = (file.to_str().unwrap(), folder.join("data"));
    let usual = ["atoll", "serve", "--listen", "127.0.0.1:0", "--config", file, "--data-dir"];
    let all = usual.into_iter().chain([data.to_str().unwrap()]).chain(arguments.iter().copied());
    match cli::Cli::parse_from(all).command {
        cli::Command::Serve(options) => Config::load(&options).unwrap(),
        _ => unreachable!(),
    }
}

/// Where a server listens: its own address, gRPC's, and the LangGraph API's second.
type Addresses = (SocketAddr, SocketAddr, Option<SocketAddr>);

fn run(config: &Config, provider: Arc<dyn Provider>) -> (Addresses, Life) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(crate::serve::STACK)
        .enable_all()
        .build()
        .unwrap();
    let bound = runtime.block_on(async {
        let bound = Bound::open(config, provider).await.unwrap();
        bound.engine.core.keys.create_first(Some(KEY.to_owned())).await.unwrap();
        bound
    });
    let address = (bound.address, bound.grpc_address.unwrap(), bound.langgraph_address);
    let core = bound.engine.core.clone();
    let (end, config) = (CancellationToken::new(), config.clone());
    let told = end.clone().cancelled_owned();
    let served = runtime.spawn(async move { bound.run(&config, told).await.unwrap() });
    (address, Life { runtime, core, end, served })
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Self {
        Self::start_configured("", arguments)
    }

    /// With more in its configuration.
    fn start_configured(more: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), more, arguments);
        let provider = Arc::new(ProcessProvider::new().unwrap());
        let ((address, grpc, langgraph), life) = run(&config, Arc::clone(&provider) as _);
        Self { address, grpc, langgraph, life: Some(life), config, provider, _folder: folder }
    }

    /// Ends the server as `atoll down` does.
    fn end(&mut self) {
        if let Some(Life { runtime, core, end, served }) = self.life.take() {
            drop(core);
            end.cancel();
            let _ = runtime.block_on(served);
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }

    /// Ends the server wherever its tasks are.
    fn kill(&mut self) {
        if let Some(Life { runtime, core, .. }) = self.life.take() {
            drop(core);
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }

    /// Starts another on the same data and the same containers.
    fn restart(&mut self) {
        self.restart_with(Arc::clone(&self.provider) as _);
    }

    /// The same behind another provider, which has those containers.
    fn restart_with(&mut self, provider: Arc<dyn Provider>) {
        let ((address, grpc, langgraph), life) = run(&self.config, provider);
        (self.address, self.grpc, self.langgraph, self.life) = (address, grpc, langgraph, Some(life));
    }

    /// Kills the PID 1 of a sandbox.
    fn kill_inside(&self, path: &str) {
        let container = self.get(path)["container_id"].as_str().unwrap().parse().unwrap();
        self.provider.kill(container).unwrap();
        eventually("its death", || self.get(path)["status"] == "dead");
    }

    /// Asks the server's core itself.
    fn core<T>(&self, ask: impl AsyncFnOnce(&Core) -> T) -> T {
        let life = self.life.as_ref().unwrap();
        life.runtime.block_on(ask(&life.core))
    }

    /// A request with a key of one's own, whose answer has a status that the description has for it.
    fn ask_as(&self, key: &str, method: &str, path: &str, body: &str) -> Answer {
        let authorization = format!("Bearer {key}");
        let headers = [("Authorization", authorization.as_str())];
        let answer = http::request(self.address, method, path, &headers, body.as_bytes()).unwrap();
        expect_described(method, path, answer.status);
        answer
    }

    /// A request with the first key.
    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_as(KEY, method, path, body)
    }

    /// What is at a path.
    fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// The path of a new sandbox.
    fn create(&self, body: &str) -> String {
        self.create_as(KEY, body)
    }

    fn create_as(&self, key: &str, body: &str) -> String {
        let made = self.ask_as(key, "POST", ROOT, body);
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        format!("{ROOT}/{}", made.json()["id"].as_str().unwrap())
    }

    /// Runs a command, which must be a success of the API.
    fn exec(&self, sandbox: &str, body: &Value) -> Value {
        let answer = self.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// What a shell line prints.
    fn says(&self, sandbox: &str, line: &str) -> String {
        self.exec(sandbox, &json!({ "command": line }))["stdout"].as_str().unwrap().trim_end().to_owned()
    }

    /// Starts a command in the background and returns its path.
    fn background(&self, sandbox: &str, line: &str) -> String {
        let body = json!({ "command": line, "background": true, "stdin_open": true }).to_string();
        let answer = self.ask("POST", &format!("{sandbox}/exec"), &body);
        assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
        format!("{sandbox}/execs/{}", answer.json()["exec_id"].as_str().unwrap())
    }

    /// Waits for a command's end and returns how it went.
    fn ended(&self, exec: &str) -> Value {
        eventually("its end", || self.get(exec)["status"] == "ended");
        self.get(exec)
    }

    /// A key that the first one makes.
    fn key(&self, body: &str) -> String {
        let made = self.ask("POST", "/api/v1/keys", body);
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json()["key"].as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        let held = Arc::strong_count(&self.provider);
        assert!(thread::panicking() || held == 1, "a task of the server outlived it");
    }
}

/// The code and the details of a refusal, which must have this status.
fn refused(answer: &Answer, status: u16) -> (String, Value) {
    assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
    let error = answer.json()["error"].clone();
    (error["code"].as_str().unwrap().to_owned(), error["details"].clone())
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come about");
        thread::sleep(Duration::from_millis(5));
    }
}
