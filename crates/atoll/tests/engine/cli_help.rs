//! What the program says of itself, as golden files: a change shows in review.

use std::process::Command;

fn help(arguments: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll")).args(arguments).env_clear().output().unwrap();
    assert!(ran.status.success());
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_help_is_as_it_was() {
    insta::assert_snapshot!("help", help(&["--help"]));
    insta::assert_snapshot!("help_run", help(&["run", "--help"]));
    for command in ["ls", "show", "output", "summary", "verify", "export", "cleanup"] {
        insta::assert_snapshot!(format!("help_audit_{command}"), help(&["audit", command, "--help"]));
    }
    for command in ["show", "set", "log", "presets"] {
        insta::assert_snapshot!(format!("help_egress_{command}"), help(&["egress", command, "--help"]));
    }
    for command in ["create", "ls", "label", "rollback", "diff", "rm"] {
        insta::assert_snapshot!(format!("help_snapshot_{command}"), help(&["snapshot", command, "--help"]));
    }
    for command in [
        "doctor",
        "serve",
        "mcp",
        "down",
        "audit",
        "create",
        "ls",
        "exec",
        "run-code",
        "repl",
        "kernels",
        "kernel",
        "logs",
        "ps",
        "stats",
        "kill",
        "shell",
        "cp",
        "find",
        "grep",
        "watch",
        "skill",
        "snapshot",
        "fork",
        "preview",
        "port-forward",
        "events",
        "egress",
        "keys",
        "settings",
        "pool",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), help(&[command, "--help"]));
    }
}
