//! The checks that Inspect (inspect-ai) has for sandbox environments, through the adapter that ships as an example.

use super::fixture::{KEY, Server};
use std::{path::Path, process::Command};

#[test]
fn the_checks_of_inspect_ai_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/python-inspect/bin/python");
    assert!(python.exists(), "`make python` installs inspect-ai");
    let server = Server::start();
    let ran = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "."])
        .current_dir(root.join("examples/inspect_ai"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let last = said.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("44 passed in "), "{said}");
}
