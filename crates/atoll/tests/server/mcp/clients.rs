//! Clients that we did not write: `mcp` from PyPI, in both versions that are in use, as their users have them.
//! `make python` installs each into a folder beside the build.

use super::{
    super::fixture::{KEY, Server},
    stdio::Place,
};
use crate::engine::fixture::eventually;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

/// A program with one of the clients.
fn client(version: u32, script: &str) -> Command {
    let target = Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap();
    let python = target.join(format!("python-mcp{version}/bin/python"));
    assert!(python.exists(), "{}: `make python` installs it", python.display());
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/mcp").join(script));
    command
}

fn does_all_of_it(command: &mut Command) {
    let ran = command.output().unwrap();
    let (said, complaints) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.ends_with("all of it\n"), "{said}{complaints}");
    is_clean(&complaints);
}

/// That the bridge that a client started complains of nothing. The SDK itself may print a traceback when an event comes
/// while it closes.
fn is_clean(complaints: &str) {
    for word in ["atoll:", "panicked"] {
        assert!(!complaints.contains(word), "{complaints}");
    }
}

/// Variables that `atoll mcp` goes by.
fn placed(command: &mut Command, place: &Place) {
    let own = place.command(&[]);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

#[test]
fn version_1_over_stdio() {
    let place = Place::new();
    let mut command = client(1, "client_1.py");
    placed(&mut command, &place);
    does_all_of_it(command.args([env!("CARGO_BIN_EXE_atoll"), "mcp"]));
}

/// Does all of it, and in the middle the server is killed and started again.
fn outlives_the_server(server: &mut Server, command: &mut Command) {
    outlives(server, command, Server::kill);
}

/// The same, however the server ends.
fn outlives(server: &mut Server, command: &mut Command, end: impl Fn(&mut Server)) {
    let pipes = command.env("RESTART", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    if line == "restart\n" {
        let address = server.address;
        end(server);
        server.restart_at(address);
        stdin.write_all(b"\n").unwrap();
        line.clear();
        stdout.read_line(&mut line).unwrap();
    }
    let ran = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && line == "all of it\n", "{line}{complaints}");
    is_clean(&complaints);
}

#[test]
fn version_1_over_http() {
    let mut server = Server::start();
    let url = format!("http://{}/mcp", server.address);
    outlives_the_server(&mut server, client(1, "client_1.py").args([&url, KEY]));
}

/// Asks the server to end, which it does although a client is connected.
fn terminate(server: &mut Server) {
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    eventually("the end of the server", || server.child.try_wait().unwrap().is_some());
    let ended = server.child.wait().unwrap();
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_server_ends_when_it_is_told_to_and_its_clients_go_on_with_the_next() {
    let mut server = Server::start();
    let url = format!("http://{}/mcp", server.address);
    for mode in ["legacy", "auto"] {
        outlives(&mut server, client(2, "client_2.py").args([mode, &url, KEY]), terminate);
    }
}

/// A client of version 1 that starts a bridge.
fn client_1_behind_a_bridge(server: &Server, place: &Place) -> Command {
    let mut command = client(1, "client_1.py");
    placed(&mut command, place);
    let url = format!("http://{}", server.address);
    command.args([env!("CARGO_BIN_EXE_atoll"), "mcp", "--server", &url, "--key", KEY]);
    command
}

#[test]
fn version_1_over_a_bridge() {
    let (server, place) = (Server::start(), Place::new());
    does_all_of_it(&mut client_1_behind_a_bridge(&server, &place));
}

#[test]
fn version_1_over_a_bridge_outlives_the_server() {
    let (mut server, place) = (Server::start(), Place::new());
    let mut command = client_1_behind_a_bridge(&server, &place);
    outlives_the_server(&mut server, &mut command);
}

#[test]
fn version_2_over_stdio() {
    for mode in ["legacy", "auto"] {
        let place = Place::new();
        let mut command = client(2, "client_2.py");
        placed(&mut command, &place);
        does_all_of_it(command.args([mode, env!("CARGO_BIN_EXE_atoll"), "mcp"]));
    }
}

#[test]
fn version_2_over_http() {
    let mut server = Server::start();
    let url = format!("http://{}/mcp", server.address);
    for mode in ["legacy", "auto"] {
        outlives_the_server(&mut server, client(2, "client_2.py").args([mode, &url, KEY]));
    }
}

#[test]
fn version_2_takes_the_picture_of_a_long_call_as_one_event() {
    let server = Server::start();
    let url = format!("http://{}/mcp", server.address);
    does_all_of_it(client(2, "client_2.py").args(["auto", &url, KEY]).env("LONG", "1"));
}

#[test]
fn version_2_over_a_bridge() {
    let mut server = Server::start();
    let url = format!("http://{}", server.address);
    for mode in ["legacy", "auto"] {
        let place = Place::new();
        let mut command = client(2, "client_2.py");
        placed(&mut command, &place);
        command.args([mode, env!("CARGO_BIN_EXE_atoll"), "mcp", "--server", &url, "--key", KEY]);
        outlives_the_server(&mut server, &mut command);
    }
}
