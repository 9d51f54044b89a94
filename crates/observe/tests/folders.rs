//! What becomes of files when folders move, go and come.

use crate::fixture::{NOTHING, Sandbox};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;

#[test]
fn a_new_tree_is_complete() {
    let mut sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.at("a/b/c")).unwrap();
    sandbox.write("a/b/c/f", "1");
    sandbox.write("a/g", "12");
    assert_eq!(sandbox.changes(), ["+a/b/c/f 1", "+a/g 2"]);
    fs::remove_dir_all(sandbox.at("a")).unwrap();
    assert_eq!(sandbox.changes(), ["-a/b/c/f", "-a/g"]);
}

#[test]
fn files_move_with_their_folder() {
    let mut sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.at("a/b")).unwrap();
    sandbox.write("a/b/f", "1");
    sandbox.write("a/g", "12");
    sandbox.write("a/h", "123");
    sandbox.changes();
    fs::rename(sandbox.at("a"), sandbox.at("z")).unwrap();
    assert_eq!(sandbox.changes(), ["-a/b/f", "-a/g", "-a/h", "+z/b/f 1", "+z/g 2", "+z/h 3"]);
    // With changes before and after, in between and twice.
    sandbox.write("z/g", "changed");
    fs::remove_file(sandbox.at("z/h")).unwrap();
    fs::rename(sandbox.at("z"), sandbox.at("y")).unwrap();
    sandbox.write("y/new", "1");
    fs::rename(sandbox.at("y/b"), sandbox.at("b")).unwrap();
    fs::rename(sandbox.at("y"), sandbox.at("x")).unwrap();
    assert_eq!(sandbox.changes(), ["+b/f 1", "+x/g 7", "+x/new 1", "-z/b/f", "-z/g", "-z/h"]);
    fs::rename(sandbox.at("x"), sandbox.at("w")).unwrap();
    fs::remove_dir_all(sandbox.at("w")).unwrap();
    assert_eq!(sandbox.changes(), ["-x/g", "-x/new"]);
}

#[test]
fn away_and_back_is_nothing() {
    let mut sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.at("a/b")).unwrap();
    sandbox.write("a/b/f", "1");
    sandbox.changes();
    fs::rename(sandbox.at("a"), sandbox.at("z")).unwrap();
    fs::rename(sandbox.at("z"), sandbox.at("a")).unwrap();
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn folders_change_places() {
    let mut sandbox = Sandbox::new();
    for dir in ["a", "b"] {
        fs::create_dir(sandbox.at(dir)).unwrap();
        sandbox.write(&format!("{dir}/both"), dir);
    }
    sandbox.write("a/one", "x");
    sandbox.changes();
    renameat_with(CWD, sandbox.at("a"), CWD, sandbox.at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(sandbox.changes(), ["~a/both 1", "-a/one", "~b/both 1", "+b/one 1"]);
    // A build that replaces its output.
    fs::create_dir(sandbox.at("new")).unwrap();
    sandbox.write("new/both", "new");
    fs::rename(sandbox.at("a"), sandbox.at("old")).unwrap();
    fs::rename(sandbox.at("new"), sandbox.at("a")).unwrap();
    fs::remove_dir_all(sandbox.at("old")).unwrap();
    assert_eq!(sandbox.changes(), ["~a/both 3"]);
}

#[test]
fn a_folder_over_an_emptied_one() {
    let mut sandbox = Sandbox::new();
    for dir in ["a", "b"] {
        fs::create_dir(sandbox.at(dir)).unwrap();
        sandbox.write(&format!("{dir}/{dir}"), dir);
    }
    sandbox.changes();
    fs::remove_file(sandbox.at("b/b")).unwrap();
    fs::rename(sandbox.at("a"), sandbox.at("b")).unwrap();
    assert_eq!(sandbox.changes(), ["-a/a", "+b/a 1", "-b/b"]);
}

#[test]
fn out_of_the_folder_and_into_it() {
    let mut sandbox = Sandbox::new();
    fs::create_dir(sandbox.at("a")).unwrap();
    sandbox.write("a/f", "1");
    sandbox.changes();
    let home = sandbox.tree.join("home/a");
    fs::rename(sandbox.at("a"), &home).unwrap();
    assert_eq!(sandbox.changes(), ["-a/f"]);
    fs::rename(&home, sandbox.at("b")).unwrap();
    assert_eq!(sandbox.changes(), ["+b/f 1"]);
}

#[test]
fn a_file_becomes_a_folder_and_back() {
    let mut sandbox = Sandbox::new();
    sandbox.write("x", "1");
    sandbox.changes();
    fs::remove_file(sandbox.at("x")).unwrap();
    fs::create_dir(sandbox.at("x")).unwrap();
    sandbox.write("x/f", "1");
    assert_eq!(sandbox.changes(), ["-x", "+x/f 1"]);
    fs::remove_dir_all(sandbox.at("x")).unwrap();
    sandbox.write("x", "1");
    assert_eq!(sandbox.changes(), ["+x 1", "-x/f"]);
}
