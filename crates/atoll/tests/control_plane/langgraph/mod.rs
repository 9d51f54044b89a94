//! The LangGraph Platform API through clients that others wrote, above a model provider that others wrote, and beside
//! LangChain's own server. The tools really run: the model makes a session and runs a command in it.

mod approvals;
mod audited;
mod chat;
mod faults;
mod hostile;
mod owners;
mod pages;
mod providers;
mod real_model;
mod reference;
mod restarts;
mod runs;
mod streams;

use super::{KEY, ROOT, Server, eventually};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn script(name: &str) -> PathBuf {
    root().join("crates/atoll/tests/control_plane/langgraph").join(name)
}

/// Node, and packages of `make langgraph-tools`.
fn node(folder: &str, name: &str) -> Command {
    let (node, modules) = (
        root().join("target/mcp-conformance/node_modules/node/bin/node"),
        root().join("target").join(folder),
    );
    assert!(node.exists() && modules.exists(), "`make langgraph-tools` installs Node and the packages");
    let mut command = Command::new(node);
    command.arg(script(name)).arg(modules);
    command
}

/// A program that serves until the test ends.
struct Served {
    child: Child,
    url: String,
    /// A key that the server's configuration names.
    key: tempfile::NamedTempFile,
}

impl Served {
    /// Starts it; the first line that has a URL in it says where it serves.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut urls = lines.map_while(Result::ok).filter_map(|line| {
            let at = line.find("http://127.0.0.1:").filter(|_| !line.contains('\u{1b}'))?;
            Some(line[at..].trim().to_owned())
        });
        let url = urls.next().expect("it says where it serves");
        // What it prints later must not block it.
        std::thread::spawn(move || urls.count());
        Self::of(child, url)
    }

    /// One that is known to serve there, or will.
    fn of(child: Child, url: String) -> Self {
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), "sk-of-a-test-0123456789").unwrap();
        Self { child, url, key }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A model provider with the script of `model.mjs`. It is strict: it refuses what no fixture is for.
fn model() -> Served {
    Served::start(&mut node("langgraph-node", "model.mjs"))
}

/// One that lets every model think, also those that cannot.
fn lenient_model() -> Served {
    Served::start(node("langgraph-node", "model.mjs").arg("lenient"))
}

/// One that wants the model's thoughts back unchanged, as Anthropic does.
fn thinking_model() -> Served {
    Served::start(node("langgraph-node", "model.mjs").arg("thinking"))
}

/// One that looks for a picture in what it is sent.
fn seeing_model() -> Served {
    Served::start(node("langgraph-node", "model.mjs").arg("seeing"))
}

/// A server whose agent asks that provider. Sessions have no network, because this provider of containers has none.
fn server(model: &Served) -> Server {
    server_with(model, "")
}

fn server_with(model: &Served, more: &str) -> Server {
    let agent = format!(
        "[agent]\nmodel = \"gpt-4o\"\nprovider = \"openai\"\nbase_url = \"{}/v1\"\napi_key_file = {:?}\n{more}\n",
        model.url,
        model.key.path()
    );
    Server::start_configured(&agent, &["--set", "tool_sessions.network_enabled=false"])
}

/// A server whose agent asks that provider by another of its protocols.
fn server_of(model: &Served, provider: &str, name: &str, below: &str) -> Server {
    let agent = format!(
        "[agent]\nmodel = {name:?}\nprovider = {provider:?}\nbase_url = \"{}{below}\"\napi_key_file = {:?}\n\
         context_tokens = 32768\n",
        model.url,
        model.key.path()
    );
    Server::start_configured(&agent, &["--set", "tool_sessions.network_enabled=false"])
}

/// What a command of the scripts that waits has written in a sandbox.
fn written(server: &Server, sandbox: &str) -> String {
    let file = server.ask("GET", &format!("{sandbox}/files/n"), "");
    if file.status == 200 { String::from_utf8(file.body).unwrap() } else { String::new() }
}

/// The path of the sandbox in which a command waits, when it does.
fn waiting_sandbox(server: &Server) -> String {
    let mut found = None;
    eventually("the command that waits", || {
        let all = server.get(ROOT)["items"].as_array().unwrap().clone();
        let mut paths = all.iter().map(|one| format!("{ROOT}/{}", one["id"].as_str().unwrap()));
        found = paths.find(|path| !written(server, path).is_empty());
        found.is_some()
    });
    found.unwrap()
}

/// Lets the command go on.
fn end_wait(server: &Server, sandbox: &str) {
    assert_eq!(server.ask("PUT", &format!("{sandbox}/files/go"), "").status, 204);
}

fn ran(command: &mut Command) {
    let ran = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {out}{err}");
}

/// langgraph-sdk for Python.
fn python(server: &Server, what: &str) {
    let python = root().join("target/python-langgraph/bin/python");
    assert!(python.exists(), "`make python` installs langgraph-sdk");
    let url = format!("http://{}", server.address);
    ran(Command::new(python)
        .arg(script("client.py"))
        .args([&url, KEY, what])
        .env("PYTHONDONTWRITEBYTECODE", "1"));
}

fn by_python(what: &str) {
    let model = model();
    python(&server(&model), what);
}

#[test]
fn the_python_client_has_a_conversation() {
    by_python("basics");
}

#[test]
fn the_asynchronous_python_client_has_several_conversations() {
    by_python("asynchronous");
}

#[test]
fn a_stream_that_is_resumed_has_the_same_events() {
    by_python("resume");
}

#[test]
fn runs_without_a_thread_leave_none() {
    by_python("stateless");
}

#[test]
fn a_run_that_fails_says_what_to_do() {
    by_python("failures");
}

#[test]
fn a_cancelled_run_ends_its_tool_and_the_next_one_runs() {
    by_python("cancel");
}

#[test]
fn tools_wait_for_approval() {
    by_python("approval");
}

#[test]
fn a_conversation_goes_on_from_an_earlier_checkpoint() {
    by_python("fork");
}

#[test]
fn items_are_stored_beside_conversations() {
    by_python("items");
}

#[test]
fn the_python_client_streams_a_thread() {
    by_python("protocol");
}

#[test]
fn an_interrupt_is_answered_by_protocol_v2() {
    by_python("respond");
}

#[test]
fn assistants_are_changed_and_have_versions() {
    by_python("assistants");
}

#[test]
fn runs_are_asked_with_what_the_client_can_say() {
    by_python("parameters");
}

#[test]
fn commands_of_protocol_v2_look_and_fork() {
    by_python("commands");
}

#[test]
fn nul_bytes_and_unknown_fields_are_fine() {
    by_python("nul");
}

/// A client for JavaScript, from a folder of packages.
fn by_node(folder: &str, name: &str) {
    let model = model();
    let server = server(&model);
    let url = format!("http://{}", server.address);
    ran(node(folder, name).args([&url, KEY]));
}

#[test]
fn the_javascript_client_has_a_conversation() {
    by_node("langgraph-node", "client.mjs");
}

#[test]
fn the_newer_javascript_client_has_a_conversation() {
    by_node("langgraph-server", "client.mjs");
}

#[test]
fn a_react_application_streams_a_conversation_and_asks_a_person() {
    by_node("langgraph-react", "react.mjs");
}

#[test]
fn copilotkits_runtime_has_the_agent_as_its_own() {
    by_node("langgraph-copilot", "copilot.mjs");
}
