//! Every line of the README's sessions, typed into a real shell against a real server.

use super::fixture::{KEY, Server};
use std::{fs, path::Path, process::Command};

/// The sessions: for each, its commands with what the README says that they print.
pub(super) fn sessions() -> Vec<Vec<(String, String)>> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let blocks = readme.split("```console session\n").skip(1).map(|b| b.split("```").next().unwrap());
    let read = |block: &str| {
        let mut lines: Vec<(String, String)> = Vec::new();
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => lines.push((command.to_owned(), String::new())),
                None => lines.last_mut().unwrap().1.push_str(&format!("{line}\n")),
            }
        }
        lines
    };
    blocks.map(read).collect()
}

/// A session for one shell, in which each command's output goes to a file of its own.
pub(super) fn script(session: &[(String, String)]) -> String {
    let lines = session.iter().enumerate();
    let lines = lines.map(|(number, (command, _))| format!("exec > out{number}\n{command}\n"));
    format!("set -eu\n{}", lines.collect::<String>())
}

/// That each command printed what the README says, in the folder where the script was run.
pub(super) fn check(session: &[(String, String)], folder: &Path) {
    for (number, (command, expected)) in session.iter().enumerate() {
        let printed = fs::read_to_string(folder.join(format!("out{number}"))).unwrap();
        assert_eq!(printed, *expected, "{command}");
    }
}

#[test]
fn every_line_does_what_the_readme_says() {
    let server = Server::start();
    let bin = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    let sessions = sessions();
    assert_eq!(sessions.len(), 8);
    for session in sessions {
        let folder = tempfile::tempdir().unwrap();
        let script = script(&session);
        let ran = Command::new("bash")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("ATOLL_URL", format!("http://{}", server.address))
            .env("ATOLL_API_KEY", KEY)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        check(&session, folder.path());
    }
}

#[test]
fn errors_on_the_command_line_say_what_to_do() {
    let server = Server::start();
    let atoll = |url: &str, key: &str, arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", url)
            .env("ATOLL_API_KEY", key)
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let url = format!("http://{}", server.address);
    let (code, said) = atoll("http://127.0.0.1:1", KEY, &["ls"]);
    assert!(code == Some(125) && said.contains("atoll serve"), "{said}");
    let (code, said) = atoll(&url, "wrong", &["ls"]);
    assert!(code == Some(1) && said.contains("ATOLL_API_KEY"), "{said}");
    let path = server.create(r#"{"session_key":"mine"}"#);
    server.ask("POST", &format!("{path}/stop"), "");
    let (code, said) = atoll(&url, KEY, &["exec", "mine", "--", "true"]);
    assert!(code == Some(1) && said.contains("atoll resume"), "{said}");
    let (code, said) = atoll(&url, KEY, &["inspect", "nosuch"]);
    assert!(code == Some(1) && said.contains("nosuch"), "{said}");
    let (code, said) = atoll(&url, KEY, &["create", "--preset", "pyhton"]);
    assert!(code == Some(1) && said.contains("pyhton") && said.contains("github"), "{said}");
}
