//! Real tools, each with the variables of a sandbox and the presets of this machine, through the proxy:
//! with the preset an install works, without it the tool's own message names the host that was refused.
//! Packages come from the registries that this machine's tools are set to use; what has none here, from a
//! server of the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod links;
mod serve;
mod way;

use std::{fs, net::Ipv4Addr, path::Path, process::Command};
use way::{Way, is_here, text};

const REFUSING: &str = r#"{"mode":"allowlist","allow":["nothing.example"]}"#;

fn preset(name: &str) -> String {
    format!(r#"{{"mode":"allowlist","presets":["{name}"]}}"#)
}

/// Runs an install twice: without the preset it fails and names the host, with it it works. Neither goes
/// past the proxy.
fn with_and_without(name: &str, prepare: impl Fn(&Path), program: &str, arguments: &[&str], made: &str) {
    if !is_here(program) {
        return;
    }
    let refused = Way::new(REFUSING, None);
    prepare(refused.folder());
    let output = refused.run(program, arguments);
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(!refused.folder().join(made).exists());
    let denied = refused.end();
    let first = denied.iter().find_map(|d| d.strip_prefix("deny ")).unwrap();
    let host = first.rsplit_once(':').unwrap().0;
    assert!(said.contains(host), "{said} does not name {host}");
    assert!(!denied.iter().any(|d| d.starts_with("allow")), "{denied:?}");

    let allowed = Way::new(&preset(name), None);
    prepare(allowed.folder());
    let output = allowed.run(program, arguments);
    assert!(output.status.success(), "{}", text(&output));
    assert!(allowed.folder().join(made).exists());
    let decisions = allowed.end();
    assert!(decisions.contains(&format!("allow {first}")), "{decisions:?}");
    assert!(!decisions.iter().any(|d| d.starts_with("deny")), "{decisions:?}");
}

#[test]
fn pip_installs_with_the_preset_and_names_the_host_without() {
    let arguments = ["-m", "pip", "install", "--no-deps", "--target", "made", "six"];
    with_and_without("python", |_| {}, "python3", &arguments, "made/six.py");
}

#[test]
fn npm_installs_with_the_preset_and_names_the_host_without() {
    let arguments = ["install", "--no-audit", "--prefix", ".", "ms"];
    with_and_without("node", |_| {}, "npm", &arguments, "node_modules/ms/package.json");
}

#[test]
fn cargo_fetches_with_the_preset_and_names_the_host_without() {
    let project = |folder: &Path| {
        let manifest = "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n";
        fs::create_dir(folder.join("src")).unwrap();
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("src/lib.rs"), "").unwrap();
    };
    with_and_without("rust", project, "cargo", &["fetch"], ".cargo/registry/src");
}

/// A command of this machine, that must work.
fn here(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn git_clones_what_is_allowed_and_names_the_host_of_what_is_not() {
    let served = tempfile::tempdir().unwrap();
    here(served.path(), "git", &["init", "-q", "work"]);
    let work = served.path().join("work");
    fs::write(work.join("file"), "text").unwrap();
    here(&work, "git", &["add", "file"]);
    here(&work, "git", &["-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-qm", "one"]);
    here(served.path(), "git", &["clone", "-q", "--bare", "work", "made.git"]);
    here(&served.path().join("made.git"), "git", &["update-server-info"]);
    let port = serve::files(served.path(), Ipv4Addr::LOCALHOST).port();
    let policy = format!(r#"{{"mode":"allowlist","allow":["code.example:{port}","127.0.0.1:{port}"]}}"#);
    let way = Way::new(&policy, Some(serve::names(Ipv4Addr::LOCALHOST)));
    let output = way.run("git", &["clone", "-q", &format!("http://code.example:{port}/made.git"), "made"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(way.folder().join("made/file")).unwrap(), "text");
    for scheme in ["http", "https"] {
        let output = way.run("git", &["ls-remote", &format!("{scheme}://other.example/made.git")]);
        assert!(!output.status.success() && text(&output).contains("other.example"), "{}", text(&output));
    }
    let output = way.run("curl", &["-sS", &format!("http://other.example:{port}/")]);
    assert!(text(&output).contains("other.example"), "{}", text(&output));
    assert!(way.end().contains(&"deny other.example:443".to_owned()));
}

/// A repository for R with one package.
fn repository(folder: &Path) {
    let source = folder.join("tiny");
    fs::create_dir_all(source.join("R")).unwrap();
    let description = "Package: tiny\nVersion: 1.0\nTitle: Tiny\nDescription: Tiny.\nAuthor: T\nMaintainer: T <t@t.example>\nLicense: MIT\n";
    fs::write(source.join("DESCRIPTION"), description).unwrap();
    fs::write(source.join("NAMESPACE"), "export(tiny)\n").unwrap();
    fs::write(source.join("R/tiny.R"), "tiny <- function() 42\n").unwrap();
    let to = folder.join("src/contrib");
    fs::create_dir_all(&to).unwrap();
    here(&to, "R", &["CMD", "build", source.to_str().unwrap()]);
    here(&to, "Rscript", &["-e", "tools::write_PACKAGES('.', type = 'source')"]);
}

#[test]
fn r_installs_what_is_allowed_and_names_the_host_of_what_is_not() {
    if !is_here("Rscript") {
        return;
    }
    let served = tempfile::tempdir().unwrap();
    repository(served.path());
    let port = serve::files(served.path(), Ipv4Addr::LOCALHOST).port();
    let policy = format!(r#"{{"mode":"allowlist","allow":["cran.example:{port}","127.0.0.1:{port}"]}}"#);
    let way = Way::new(&policy, Some(serve::names(Ipv4Addr::LOCALHOST)));
    let install = |host: &str| {
        let code = format!(
            "dir.create('made', FALSE); install.packages('tiny', lib='made', repos='http://{host}:{port}')"
        );
        way.run("Rscript", &["-e", &code])
    };
    let output = install("other.example");
    assert!(text(&output).contains("other.example"), "{}", text(&output));
    assert!(!way.folder().join("made/tiny").exists());
    let output = install("cran.example");
    assert!(output.status.success(), "{}", text(&output));
    let output = way.run("Rscript", &["-e", "cat(tiny::tiny())", "--args"]);
    assert!(!output.status.success(), "it is in a library of its own");
    let output = way.run("Rscript", &["-e", "library(tiny, lib.loc='made'); cat(tiny())"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42", "{}", text(&output));
    assert!(way.end().contains(&format!("deny other.example:{port}")));
}
