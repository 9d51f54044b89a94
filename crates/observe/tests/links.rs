//! Files with several names, without any, and with another than they were opened by.

use crate::fixture::{NOTHING, Sandbox};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::fd::AsRawFd,
    path::Path,
};

#[test]
fn a_write_by_one_name_is_seen_at_all() {
    let mut sandbox = Sandbox::new();
    sandbox.write("a", "1");
    fs::create_dir(sandbox.at("sub")).unwrap();
    sandbox.changes();
    fs::hard_link(sandbox.at("a"), sandbox.at("sub/b")).unwrap();
    assert_eq!(sandbox.changes(), ["+sub/b 1"], "a link does not change the file");
    sandbox.write("sub/b", "12");
    assert_eq!(sandbox.changes(), ["~a 2", "~sub/b 2"]);
    fs::remove_file(sandbox.at("a")).unwrap();
    assert_eq!(sandbox.changes(), ["-a"]);
}

#[test]
fn a_descriptor_outlives_its_name() {
    let mut sandbox = Sandbox::new();
    sandbox.write("a", "1");
    fs::hard_link(sandbox.at("a"), sandbox.at("b")).unwrap();
    sandbox.changes();
    let mut file = OpenOptions::new().append(true).open(sandbox.at("a")).unwrap();
    fs::rename(sandbox.at("a"), sandbox.at("c")).unwrap();
    assert_eq!(sandbox.changes(), ["-a", "+c 1"]);
    file.write_all(b"2").unwrap();
    assert_eq!(sandbox.changes(), ["~b 2", "~c 2"]);
    fs::remove_file(sandbox.at("c")).unwrap();
    sandbox.write("c", "another");
    assert_eq!(sandbox.changes(), ["~c 7"]);
    file.write_all(b"3").unwrap();
    assert_eq!(sandbox.changes(), ["~b 3"], "not the other file of that name");
    fs::remove_file(sandbox.at("b")).unwrap();
    file.write_all(b"4").unwrap();
    assert_eq!(sandbox.changes(), ["-b"]);
    file.write_all(b"5").unwrap();
    drop(file);
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn a_file_without_a_name_gets_one() {
    let mut sandbox = Sandbox::new();
    let fd = open(sandbox.at(""), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)).unwrap();
    let mut file = File::from(fd);
    file.write_all(b"1").unwrap();
    assert_eq!(sandbox.changes(), NOTHING);
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, Path::new(&link), CWD, sandbox.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(sandbox.changes(), ["+named 1"]);
    file.write_all(b"2").unwrap();
    assert_eq!(sandbox.changes(), ["~named 2"], "the event has the name it never had");
    drop(file);
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn a_symbolic_link_is_not_followed() {
    let mut sandbox = Sandbox::new();
    std::os::unix::fs::symlink("/etc", sandbox.at("link")).unwrap();
    assert_eq!(sandbox.changes(), ["+link 4"]);
    // A folder that becomes a link after something happened in it.
    fs::create_dir(sandbox.at("d")).unwrap();
    sandbox.write("d/passwd", "x");
    fs::rename(sandbox.at("d"), sandbox.at("e")).unwrap();
    fs::rename(sandbox.at("link"), sandbox.at("d")).unwrap();
    assert_eq!(sandbox.changes(), ["+d 4", "+e/passwd 1", "-link"]);
}

#[test]
fn a_backup_by_linking() {
    let mut sandbox = Sandbox::new();
    sandbox.write("f", "1");
    sandbox.changes();
    fs::hard_link(sandbox.at("f"), sandbox.at("f.bak")).unwrap();
    sandbox.write("tmp", "12");
    fs::rename(sandbox.at("tmp"), sandbox.at("f")).unwrap();
    assert_eq!(sandbox.changes(), ["~f 2", "+f.bak 1"]);
    // The same calls with nothing to replace.
    fs::hard_link(sandbox.at("f"), sandbox.at("g")).unwrap();
    sandbox.write("tmp", "123");
    fs::rename(sandbox.at("tmp"), sandbox.at("h")).unwrap();
    assert_eq!(sandbox.changes(), ["+g 2", "+h 3"]);
}
