//! The official conformance suite from npm. What cannot apply to a product is listed in `conformance.yml` with the
//! reasons; all else must pass. `make conformance-mcp` runs it alone, and installs it.

use super::super::fixture::Server;
use std::{path::Path, process::Command};

#[test]
fn the_official_suite_is_content() {
    let target = Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap();
    let modules = target.join("mcp-conformance/node_modules");
    let (node, suite) =
        (modules.join("node/bin/node"), modules.join("@modelcontextprotocol/conformance/dist/index.js"));
    assert!(node.exists() && suite.exists(), "{}: `make conformance-suite` installs it", modules.display());
    // It can send no key.
    let server = Server::start_with(&["--no-auth"]);
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(node)
        .arg(suite)
        .args([
            "server",
            "--suite",
            "all",
            "--url",
            &format!("http://{}/mcp", server.address),
            "--expected-failures",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/mcp/conformance.yml"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    for scenario in [
        "server-initialize",
        "logging-set-level",
        "ping",
        "completion-complete",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    ] {
        assert!(said.contains(&format!("✓ {scenario}: ")), "{scenario} passes: {said}");
    }
}
