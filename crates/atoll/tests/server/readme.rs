//! Every line of the console sessions in README.md and docs/, typed into a real shell against a real server. Each
//! document has a test of its own, so that they run side by side.

use super::fixture::{KEY, Server};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The sessions of a document: for each, its commands with what the document says that they print.
pub(super) fn sessions(document: &str) -> Vec<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("```console session\n").skip(1).map(|b| b.split("```").next().unwrap());
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

/// The commands of a document that need no server: those of `atoll` in blocks whose output differs between machines.
pub(super) fn typed_commands(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ "));
    let typed = lines.map(|line| line.split("  #").next().unwrap().trim().to_owned());
    typed.filter(|line| line.starts_with("atoll ")).collect()
}

/// A session for one shell, in which each command's output goes to a file of its own.
pub(super) fn script(session: &[(String, String)]) -> String {
    let lines = session.iter().enumerate();
    let lines = lines.map(|(number, (command, _))| format!("exec > out{number}\n{command}\n"));
    format!("set -eu\n{}", lines.collect::<String>())
}

/// That each command printed what the document says, in the folder where the script was run.
pub(super) fn check(session: &[(String, String)], folder: &Path) {
    for (number, (command, expected)) in session.iter().enumerate() {
        let printed = fs::read_to_string(folder.join(format!("out{number}"))).unwrap();
        assert_eq!(printed, *expected, "{command}");
    }
}

/// Types the sessions of a document, one after the other, against one server.
fn type_sessions(document: &str) {
    let sessions = sessions(document);
    assert!(!sessions.is_empty(), "{document} has no session");
    let server = Server::start();
    let bin = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
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
        assert!(ran.status.success(), "{document}: {script}{}", String::from_utf8_lossy(&ran.stderr));
        check(&session, folder.path());
    }
}

/// A test for each document, and their list.
macro_rules! documents {
    ($($test:ident: $document:literal,)+) => {
        const DOCUMENTS: &[&str] = &[$($document),+];
        $(
            #[test]
            fn $test() {
                type_sessions($document);
            }
        )+
    };
}

documents! {
    every_line_of_the_readme_works: "README.md",
    every_line_about_audit_works: "docs/audit.md",
    every_line_about_cli_works: "docs/cli.md",
    every_line_about_configuration_works: "docs/configuration.md",
    every_line_about_egress_works: "docs/egress.md",
    every_line_about_exec_and_terminals_works: "docs/exec-and-terminals.md",
    every_line_about_export_works: "docs/export.md",
    every_line_about_files_works: "docs/files.md",
    every_line_about_http_api_works: "docs/http-api.md",
    every_line_about_image_templates_works: "docs/image-templates.md",
    every_line_about_images_works: "docs/images.md",
    every_line_about_kernels_works: "docs/kernels.md",
    every_line_about_snapshots_works: "docs/snapshots.md",
    every_line_about_lifecycle_and_quotas_works: "docs/lifecycle-and-quotas.md",
    every_line_about_mcp_works: "docs/mcp.md",
    every_line_about_previews_works: "docs/previews.md",
    every_line_about_security_works: "docs/security.md",
    every_line_about_skills_works: "docs/skills.md",
    every_line_about_volumes_works: "docs/volumes.md",
}

#[test]
fn no_document_with_a_session_is_left_out() {
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let document = format!("docs/{}", entry.unwrap().file_name().into_string().unwrap());
        let typed = DOCUMENTS.contains(&document.as_str()) || !document.ends_with(".md");
        assert!(typed || sessions(&document).is_empty(), "no test types {document}");
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
    assert!(code == Some(125) && said.contains("atoll resume"), "{said}");
    let (code, said) = atoll(&url, KEY, &["inspect", "nosuch"]);
    assert!(code == Some(1) && said.contains("nosuch"), "{said}");
    let (code, said) = atoll(&url, KEY, &["create", "--preset", "pyhton"]);
    assert!(code == Some(1) && said.contains("pyhton") && said.contains("github"), "{said}");
}
