//! The same from the command line.

use super::{KEY, Server};
use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn atoll(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(arguments)
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What it prints, which must be a success.
fn says(server: &Server, arguments: &[&str], input: &str) -> String {
    let ran = atoll(server, arguments, input);
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn code_runs_and_its_pictures_become_files() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap();
    assert_eq!(says(&server, &["run-code", id, "x = 41; print('out')"], ""), "out\n");
    assert_eq!(says(&server, &["run-code", id, "-"], "x + 1"), "42\n");
    assert_eq!(says(&server, &["run-code", id, "-l", "bash", "echo $((1+1))"], ""), "2\n");
    let failed = atoll(&server, &["run-code", id, "1/0"], "");
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("ZeroDivisionError"), "{failed:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("code.py");
    std::fs::write(&file, "from PIL import Image\ndisplay(Image.new('RGB', (3, 2)))").unwrap();
    let to = folder.path().join("shown");
    let (file, to) = (file.to_str().unwrap(), to.to_str().unwrap());
    let named = says(&server, &["run-code", id, "-f", file], "");
    assert!(named.starts_with("[image/png, "), "{named}");
    says(&server, &["run-code", id, "-f", file, "--display-dir", to], "");
    assert!(std::fs::read(format!("{to}/display-1.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_session_of_lines_keeps_its_variables() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap();
    let typed = "x = 20\ndef twice(n):\n    return n * 2\n\ntwice(x) + 2\n1/0\nx\n";
    let said = says(&server, &["repl", id], typed);
    assert_eq!(said, "42\n20\n");
    assert_eq!(says(&server, &["repl", id], "x"), "20\n", "the kernel stays");
    let looped = "for i in 1 2; do\necho $i\ndone\n";
    assert_eq!(says(&server, &["repl", id, "--language", "bash"], looped), "1\n2\n");
    assert_eq!(says(&server, &["repl", id, "--language", "node"], "1 +\n41\n`a\n`.length\n"), "42\n2\n");
    assert_eq!(says(&server, &["repl", id, "--language", "r"], "1 +\n41\nnchar('a\n')\n"), "[1] 42\n[1] 2\n");
}

#[test]
fn kernels_are_listed_and_steered() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap();
    let kernel = says(&server, &["kernel", "start", id], "");
    let (kernel, short) = (kernel.trim(), &kernel[..8]);
    let listed = says(&server, &["kernels", id], "");
    assert!(listed.contains(short) && listed.contains("Python 3"), "{listed}");
    says(&server, &["run-code", id, "-k", short, "x = 1"], "");
    says(&server, &["kernel", "checkpoint", id, short, "--name", "one"], "");
    says(&server, &["run-code", id, "-k", short, "x = 2"], "");
    let fork = says(&server, &["kernel", "fork", id, short, "--checkpoint", "one"], "");
    assert_eq!(says(&server, &["run-code", id, "-k", fork.trim(), "x"], ""), "1\n");
    says(&server, &["kernel", "rollback", id, short, "one"], "");
    assert_eq!(says(&server, &["run-code", id, "-k", kernel, "x"], ""), "1\n");
    says(&server, &["kernel", "interrupt", id, short], "");
    says(&server, &["kernel", "restart", id, short], "");
    assert_eq!(atoll(&server, &["run-code", id, "-k", short, "x"], "").status.code(), Some(1));
    says(&server, &["kernel", "rm", id, short], "");
    let gone = atoll(&server, &["run-code", id, "-k", short, "x"], "");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("atoll kernels"), "{gone:?}");
}
