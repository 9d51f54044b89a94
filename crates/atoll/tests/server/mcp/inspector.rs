//! Clients from npm: the MCP Inspector's command line, and the TypeScript SDK that others build on. `make inspector`
//! installs both beside the build.

use super::super::fixture::{KEY, Server};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn target() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap()
}

fn modules() -> PathBuf {
    let modules = target().join("mcp-inspector/node_modules");
    assert!(modules.exists(), "{}: `make inspector` installs it", modules.display());
    modules
}

fn node() -> Command {
    Command::new(target().join("mcp-conformance/node_modules/node/bin/node"))
}

/// What the Inspector prints, which is the result of one method.
fn inspect(server: &Server, arguments: &[&str]) -> Value {
    let program = modules().join("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let url = format!("http://{}/mcp", server.address);
    let home = tempfile::tempdir().unwrap();
    let ran = node()
        .arg(program)
        // It keeps files in its user's home.
        .env("HOME", home.path())
        .args(["--cli", &url, "--transport", "http", "--header"])
        .arg(format!("Authorization: Bearer {KEY}"))
        .args(["--header", "X-Thread-Id: inspected"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

#[test]
fn the_inspector_lists_and_calls_the_tools() {
    let server = Server::start();
    let listed = inspect(&server, &["--method", "tools/list"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 6, "{listed}");
    let call = |tool: &str, arguments: &[&str]| {
        let pairs = arguments.iter().flat_map(|pair| ["--tool-arg", pair]);
        let all: Vec<&str> =
            ["--method", "tools/call", "--tool-name", tool].into_iter().chain(pairs).collect();
        inspect(&server, &all)["structuredContent"].clone()
    };
    let made = call("create_session", &["language=python"]);
    let session = format!("session_id={}", made["session_id"].as_str().unwrap());
    let ran = call("execute_code", &[&session, "code=6*7", "timeout=20"]);
    assert_eq!(ran["result"]["text/plain"], "42", "{ran}");
    assert_eq!(call("stop_session", &[&session]), json!({ "success": true }));
}

#[test]
fn the_typescript_client_does_all_of_it() {
    let server = Server::start();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/mcp");
    let ran = node()
        .arg(folder.join("client.mjs"))
        .args([modules().to_str().unwrap(), &format!("http://{}/mcp", server.address), KEY])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.ends_with("all of it\n"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
