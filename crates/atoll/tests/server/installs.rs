//! Installs inside a sandbox, with the tools of the host image and nothing set by hand: they work with the
//! preset, and without it the tool's own message names the host that was refused.

use super::fixture::Server;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::Command,
    thread,
};

const REFUSING: &str = r#"{"egress":{"mode":"allowlist","allow":["nothing.example"]}}"#;

/// A shell line for an install, one that proves it, and one that prints the host it needs.
struct Install {
    preset: &'static str,
    program: &'static str,
    line: &'static str,
    proof: &'static str,
    host: &'static str,
}

/// A program of this machine, without which a test would try nothing.
pub(super) fn must_be_there(program: &str) {
    assert!(
        Path::new(program).exists(),
        "there is no {program} on this machine; `make setup-tests` installs it"
    );
}

fn with_and_without(install: &Install) {
    let Install { preset, program, line, proof, host } = install;
    must_be_there(program);
    let server = Server::start();
    let refused = server.create(REFUSING);
    let host = server.says(&refused, host);
    assert!(host.contains('.'), "{host:?}");
    let failed = server.exec(&refused, &format!("{line} 2>&1"));
    assert_ne!(failed["exit_code"], 0, "{failed}");
    assert!(failed["stdout"].as_str().unwrap().contains(&host), "{host} is not in {failed}");

    let allowed = server.create(&format!(r#"{{"egress":{{"mode":"allowlist","presets":["{preset}"]}}}}"#));
    let made = server.exec(&allowed, &format!("{line} 2>&1"));
    assert_eq!(made["exit_code"], 0, "{made}");
    assert_eq!(server.says(&allowed, proof), "works");
}

#[test]
fn pip_installs_in_a_sandbox_with_the_preset_and_names_the_host_without() {
    with_and_without(&Install {
        preset: "python",
        program: "/usr/bin/pip3",
        // It says why only when it tries again.
        line: "python3 -m pip install --retries 1 --no-deps --target made six",
        proof: "PYTHONPATH=made python3 -c 'import six; print(\"works\")'",
        host: "python3 -c 'from pip._internal.models.index import PyPI; print(PyPI.netloc)'",
    });
}

#[test]
fn npm_installs_in_a_sandbox_with_the_preset_and_names_the_host_without() {
    with_and_without(&Install {
        preset: "node",
        program: "/usr/bin/npm",
        line: "npm install --no-audit --prefix made ms",
        proof: "cd made && node -e 'require(\"ms\"); console.log(\"works\")'",
        host: "npm config get registry | cut -d/ -f3",
    });
}

/// Serves the files of a folder on loopback, but not where the sandbox's own tools would look for
/// themselves. The threads end with the test's process.
fn serve(folder: &Path) -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = folder.to_owned();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let Some(request) = lines.next() else { continue };
            let _ = lines.find(String::is_empty);
            drop(lines);
            let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let (status, body) = fs::read(folder.join(path)).map_or((404, Vec::new()), |body| (200, body));
            let head =
                format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    port
}

/// A command of this machine, that must work.
fn here(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A folder that serves a package of R, `tiny`, and its port.
pub(super) fn served_package() -> (tempfile::TempDir, u16) {
    let served = tempfile::tempdir().unwrap();
    let source = served.path().join("tiny");
    let to = served.path().join("src/contrib");
    fs::create_dir_all(source.join("R")).unwrap();
    fs::create_dir_all(&to).unwrap();
    let description = "Package: tiny\nVersion: 1.0\nTitle: Tiny\nDescription: Tiny.\nAuthor: T\nMaintainer: T <t@t.example>\nLicense: MIT\n";
    fs::write(source.join("DESCRIPTION"), description).unwrap();
    fs::write(source.join("NAMESPACE"), "export(tiny)\n").unwrap();
    fs::write(source.join("R/tiny.R"), "tiny <- function() 'works'\n").unwrap();
    here(&to, "R", &["CMD", "build", source.to_str().unwrap()]);
    here(&to, "Rscript", &["-e", "tools::write_PACKAGES('.', type = 'source')"]);
    let port = serve(served.path());
    (served, port)
}

#[test]
fn r_installs_in_a_sandbox_what_is_allowed_and_names_the_host_of_what_is_not() {
    must_be_there("/usr/bin/Rscript");
    let (_served, port) = served_package();

    let server = Server::start();
    let line = |host: &str| {
        format!(
            "mkdir -p made && Rscript -e \"install.packages('tiny', lib='made', repos='http://{host}')\" 2>&1"
        )
    };
    let sandbox =
        server.create(&format!(r#"{{"egress":{{"mode":"allowlist","allow":["127.0.0.2:{port}"]}}}}"#));
    let refused = server.exec(&sandbox, &line("cran.example"));
    assert!(refused["stdout"].as_str().unwrap().contains("cran.example"), "{refused}");
    let made = server.exec(&sandbox, &line(&format!("127.0.0.2:{port}")));
    assert_eq!(made["exit_code"], 0, "{made}");
    let proof = "Rscript -e \"library(tiny, lib.loc='made'); cat(tiny())\"";
    assert_eq!(server.says(&sandbox, proof), "works", "{made}");
}
