//! `atoll doctor`.

use super::fixture::assert_nothing_left;
use std::process::Command;

#[test]
fn it_says_what_this_machine_can_do() {
    let data = tempfile::tempdir().unwrap();
    let doctor = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.arg("doctor").arg("--data-dir").arg(data.path()).args(arguments).output().unwrap()
    };
    let plain = doctor(&[]);
    let said = String::from_utf8(plain.stdout).unwrap();
    for word in ["kernel", "namespaces", "cgroups", "seccomp", "storage", "runtimes", "disk limits", "trial"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(plain.status.code(), Some(0), "{said}");
    let json = doctor(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["can_run"], true);
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|f| f["verdict"] == "good" || f["fix"].is_string()), "{report:#}");
    assert_nothing_left(data.path());
}

#[test]
fn it_fails_when_nothing_can_run() {
    // A data folder that cannot be made.
    let file = tempfile::NamedTempFile::new().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["doctor", "--json", "--data-dir"])
        .arg(file.path().join("below/a/file"))
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (ran.status.code(), &report["can_run"]),
        (Some(1), &serde_json::Value::Bool(false)),
        "{report:#}"
    );
}
