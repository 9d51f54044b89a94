//! What a hostile user inside a sandbox tries, through the whole of it: code in a real sandbox, started over
//! REST, with witnesses outside that must see nothing they should not. Each way of trying is also shown to
//! work where something lets it: a probe that could not succeed would prove nothing.

mod addresses;
mod ends;
mod floods;
mod machine;
mod names;
mod outside;
mod packets;
mod requests;

use super::world::World;
use crate::server::fixture::Server;
use outside::Outside;
use serde_json::{Value, json};
use std::process::Command;

const PROBES: &str = include_str!("probes.py");

/// A world beyond this machine, one on its loopback, and a server between them and its sandboxes.
struct Stage {
    server: Server,
    world: World,
    outside: Outside,
}

impl Stage {
    fn new() -> Self {
        let outside = Outside::new();
        let world = World::new();
        let server = Server::start_with(&world.arguments());
        Self { server, world, outside }
    }

    /// A sandbox with this policy, in which the probes lie.
    fn sandbox(&self, policy: &Value) -> String {
        sandbox(&self.server, policy)
    }

    /// Asks for hosts from inside, each in one way, and returns what came of it.
    fn ask(&self, sandbox: &str, asks: &[(&str, &str, u16)]) -> Vec<String> {
        ask(&self.server, sandbox, asks)
    }
}

fn sandbox(server: &Server, policy: &Value) -> String {
    let sandbox = server.create(&json!({ "egress": policy }).to_string());
    put(server, &sandbox, "probes.py", PROBES);
    sandbox
}

fn put(server: &Server, sandbox: &str, name: &str, text: &str) {
    let put = server.ask("PUT", &format!("{sandbox}/files/{name}"), text);
    assert_eq!(put.status, 204, "{put:?}");
}

fn ask(server: &Server, sandbox: &str, asks: &[(&str, &str, u16)]) -> Vec<String> {
    let said = run(server, sandbox, &["python3", "probes.py", &json!(asks).to_string()]);
    let answers: Vec<String> = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(answers.len(), asks.len());
    answers
}

/// Runs a program inside that must end well, and returns what it prints.
fn run(server: &Server, sandbox: &str, arguments: &[&str]) -> String {
    let body = json!({ "arguments": arguments, "timeout_seconds": 120 }).to_string();
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let ended = answer.json();
    assert_eq!(ended["exit_code"], 0, "{ended}");
    ended["stdout"].as_str().unwrap().trim_end().to_owned()
}

/// Runs a Python program inside.
fn python(server: &Server, sandbox: &str, program: &str) -> String {
    run(server, sandbox, &["python3", "-c", program])
}

/// Starts a Python program inside that goes on by itself.
fn background(server: &Server, sandbox: &str, program: &str) -> String {
    let body = json!({ "arguments": ["python3", "-c", program], "background": true }).to_string();
    let started = server.ask("POST", &format!("{sandbox}/exec"), &body);
    assert_eq!(started.status, 202, "{started:?}");
    format!("{sandbox}/execs/{}", started.json()["exec_id"].as_str().unwrap())
}

/// The same on this machine, without a sandbox.
fn bare(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new("/usr/bin/python3").args(["-c", program]).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

/// Policies of every mode. The listed host is public.
fn policies() -> [Value; 3] {
    [
        json!({ "mode": "none" }),
        json!({ "mode": "allowlist", "allow": ["public.test"] }),
        json!({ "mode": "full" }),
    ]
}
