//! The scanner gives the same answers where it must look itself.

use crate::fixture::{lines, scanned};
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
    let mut scanner = Scanner::new("workspace", 100);
    assert!(scanned(&mut scanner, tree.path()).truncated, "nothing is known yet");
    let mut changes = || {
        let taken = scanned(&mut scanner, tree.path());
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
fn a_tree_that_is_forgotten_is_not_known() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("workspace")).unwrap();
    let mut scanner = Scanner::new("workspace", 100);
    scanned(&mut scanner, tree.path());
    assert!(scanner.is_watched(tree.path()));
    fs::write(tree.path().join("workspace/f"), "x").unwrap();
    assert_eq!(lines(&scanned(&mut scanner, tree.path())), ["+f 1"]);
    scanner.begin(tree.path(), &[]).unwrap();
    scanner.forget(tree.path());
    assert!(scanner.is_idle() && !scanner.is_watched(tree.path()));
    assert!(scanned(&mut scanner, tree.path()).truncated);
}

#[test]
fn a_small_tree_is_answered_while_a_large_one_is_scanned() {
    let [large, small] = [2000, 3].map(|files| {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("workspace")).unwrap();
        (0..files).for_each(|n| fs::write(tree.path().join(format!("workspace/{n}")), "x").unwrap());
        tree
    });
    let mut scanner = Scanner::new("workspace", 100);
    [&large, &small].iter().for_each(|tree| scanner.begin(tree.path(), &[]).unwrap());
    let mut order = Vec::new();
    while !scanner.is_idle() {
        order.extend(scanner.advance(100).map(|(tree, _)| tree));
    }
    assert_eq!(order, [small.path(), large.path()]);
}

#[test]
fn an_answer_of_too_many_files_is_cut() {
    let tree = tempfile::tempdir().unwrap();
    let at = |n: usize| tree.path().join(format!("workspace/{n}"));
    fs::create_dir(tree.path().join("workspace")).unwrap();
    (0..50).for_each(|n| fs::write(at(n), "x").unwrap());
    let mut scanner = Scanner::new("workspace", 10);
    scanned(&mut scanner, tree.path());
    (0..50).for_each(|n| fs::remove_file(at(n)).unwrap());
    (50..60).for_each(|n| fs::write(at(n), "x").unwrap());
    let changes = scanned(&mut scanner, tree.path());
    assert!(changes.truncated && changes.entries.len() == 10, "{changes:?}");
    let changes = scanned(&mut scanner, tree.path());
    assert!(!changes.truncated && changes.entries.is_empty(), "{changes:?}");
}
