//! The scanner gives the same answers where it must look itself.

use crate::fixture::lines;
use atoll_observe::Scanner;
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn scans_are_compared() {
    let tree = tempfile::tempdir().unwrap();
    let at = |path: &str| tree.path().join("workspace").join(path);
    fs::create_dir_all(at("d")).unwrap();
    for name in ["same", "mode", "gone", "text", "d/moved"] {
        fs::write(at(name), "x").unwrap();
    }
    let mut scanner = Scanner::new();
    assert!(scanner.take(tree.path(), "workspace", &[]).unwrap().truncated, "nothing is known yet");
    let mut changes = || {
        let taken = scanner.take(tree.path(), "workspace", &[]).unwrap();
        assert!(!taken.truncated);
        lines(&taken)
    };
    assert!(changes().is_empty());
    fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(at("gone")).unwrap();
    let old = fs::metadata(at("text")).unwrap().modified().unwrap();
    fs::write(at("text"), "y").unwrap();
    fs::File::options().write(true).open(at("text")).unwrap().set_modified(old).unwrap();
    fs::rename(at("d"), at("e")).unwrap();
    std::os::unix::fs::symlink("/etc", at("link")).unwrap();
    fs::write(at("short-lived"), "x").unwrap();
    fs::remove_file(at("short-lived")).unwrap();
    let want = ["-d/moved", "+e/moved 1", "-gone", "+link 4", "~mode 1", "~text 1"];
    assert_eq!(changes(), want);
    assert!(changes().is_empty());
}

#[test]
fn folders_are_watched_from_when_it_is_asked() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("workspace")).unwrap();
    let mut scanner = Scanner::new();
    scanner.watch(tree.path(), "workspace").unwrap();
    fs::write(tree.path().join("workspace/f"), "x").unwrap();
    scanner.watch(tree.path(), "workspace").unwrap();
    assert_eq!(lines(&scanner.take(tree.path(), "workspace", &[]).unwrap()), ["+f 1"]);
    scanner.forget(tree.path());
    assert!(scanner.take(tree.path(), "workspace", &[]).unwrap().truncated);
}
