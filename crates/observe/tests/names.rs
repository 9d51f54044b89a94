//! What becomes of single names.

use crate::fixture::{NOTHING, Sandbox};
use rustix::fs::{CWD, RenameFlags, Timespec, Timestamps, renameat_with, utimensat};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, net::UnixListener},
};

#[test]
fn created_modified_deleted() {
    let mut sandbox = Sandbox::new();
    sandbox.write("a", "one");
    sandbox.write("b", "two");
    assert_eq!(sandbox.changes(), ["+a 3", "+b 3"]);
    sandbox.write("a", "longer");
    fs::remove_file(sandbox.at("b")).unwrap();
    assert_eq!(sandbox.changes(), ["~a 6", "-b"]);
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn a_window_is_netted() {
    let mut sandbox = Sandbox::new();
    sandbox.write("was", "1");
    assert_eq!(sandbox.changes(), ["+was 1"]);
    sandbox.write("short-lived", "1");
    fs::remove_file(sandbox.at("short-lived")).unwrap();
    sandbox.write("new", "1");
    sandbox.write("new", "12");
    fs::remove_file(sandbox.at("was")).unwrap();
    sandbox.write("was", "123");
    assert_eq!(sandbox.changes(), ["+new 2", "~was 3"]);
}

#[test]
fn renames() {
    let mut sandbox = Sandbox::new();
    for name in ["a", "b", "c", "d", "e"] {
        sandbox.write(name, name);
    }
    fs::create_dir(sandbox.at("sub")).unwrap();
    sandbox.changes();
    fs::rename(sandbox.at("a"), sandbox.at("sub/a")).unwrap();
    assert_eq!(sandbox.changes(), ["-a", "+sub/a 1"]);
    // Over another: as editors save.
    sandbox.write("tmp", "saved");
    fs::rename(sandbox.at("tmp"), sandbox.at("b")).unwrap();
    assert_eq!(sandbox.changes(), ["~b 5"]);
    fs::rename(sandbox.at("sub/a"), sandbox.at("c")).unwrap();
    assert_eq!(sandbox.changes(), ["~c 1", "-sub/a"]);
    renameat_with(CWD, sandbox.at("d"), CWD, sandbox.at("e"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(sandbox.changes(), ["~d 1", "~e 1"]);
    fs::rename(sandbox.at("d"), sandbox.at("x")).unwrap();
    fs::rename(sandbox.at("x"), sandbox.at("y")).unwrap();
    assert_eq!(sandbox.changes(), ["-d", "+y 1"]);
    // Away and back, in either order of the merged events.
    fs::rename(sandbox.at("y"), sandbox.at("z")).unwrap();
    fs::rename(sandbox.at("z"), sandbox.at("y")).unwrap();
    assert_eq!(sandbox.changes(), ["~y 1"]);
}

#[test]
fn a_rename_is_not_taken_for_one_over_another() {
    let mut sandbox = Sandbox::new();
    ["a", "gone", "linked"].iter().for_each(|name| sandbox.write(name, "x"));
    sandbox.changes();
    sandbox.write("tmp", "x");
    fs::rename(sandbox.at("a"), sandbox.at("b")).unwrap();
    fs::remove_file(sandbox.at("tmp")).unwrap();
    assert_eq!(sandbox.changes(), ["-a", "+b 1"]);
    fs::rename(sandbox.at("b"), sandbox.at("c")).unwrap();
    fs::remove_file(sandbox.at("gone")).unwrap();
    assert_eq!(sandbox.changes(), ["-b", "+c 1", "-gone"]);
    fs::rename(sandbox.at("c"), sandbox.at("d")).unwrap();
    fs::hard_link(sandbox.at("linked"), sandbox.at("link")).unwrap();
    assert_eq!(sandbox.changes(), ["-c", "+d 1", "+link 1"]);
}

#[test]
fn every_way_to_change_a_file() {
    let mut sandbox = Sandbox::new();
    sandbox.write("f", "12345");
    sandbox.write("source", "source");
    sandbox.changes();
    let path = sandbox.at("f");
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();

    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(sandbox.changes(), ["~f 5"], "chmod");
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    assert_eq!(sandbox.changes(), ["~f 5"], "chown");
    open().set_len(3).unwrap();
    assert_eq!(sandbox.changes(), ["~f 3"], "truncate");
    rustix::fs::fallocate(open(), rustix::fs::FallocateFlags::empty(), 0, 100).unwrap();
    assert_eq!(sandbox.changes(), ["~f 100"], "fallocate");
    let source = File::open(sandbox.at("source")).unwrap();
    rustix::fs::copy_file_range(&source, None, open(), None, 3).unwrap();
    assert_eq!(sandbox.changes(), ["~f 100"], "copy_file_range");
    open().set_len(0).unwrap();
    assert_eq!(sandbox.changes(), ["~f 0"], "truncate to nothing");
    rustix::fs::ioctl_ficlone(open(), &source).unwrap();
    assert_eq!(sandbox.changes(), ["~f 6"], "reflink");
    rustix::fs::sendfile(open(), &source, Some(&mut 0), 3).unwrap();
    assert_eq!(sandbox.changes(), ["~f 6"], "sendfile");
    rustix::fs::setxattr(&path, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(sandbox.changes(), ["~f 6"], "setxattr");
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn what_changes_nothing() {
    let mut sandbox = Sandbox::new();
    sandbox.write("f", "12345");
    sandbox.changes();
    fs::read(sandbox.at("f")).unwrap();
    drop(OpenOptions::new().write(true).open(sandbox.at("f")).unwrap());
    let keep = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: Timespec { tv_sec: 1, tv_nsec: 0 }, last_modification: keep };
    utimensat(CWD, sandbox.at("f"), &times, rustix::fs::AtFlags::empty()).unwrap();
    fs::create_dir_all(sandbox.at("only/folders")).unwrap();
    fs::write(sandbox.tree.join("home/elsewhere"), "x").unwrap();
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn times_that_are_set_back_hide_nothing() {
    let mut sandbox = Sandbox::new();
    sandbox.write("f", "12345");
    sandbox.changes();
    let meta = fs::metadata(sandbox.at("f")).unwrap();
    sandbox.write("f", "54321");
    let times = fs::FileTimes::new().set_modified(meta.modified().unwrap());
    let file = OpenOptions::new().write(true).open(sandbox.at("f")).unwrap();
    file.set_times(times).unwrap();
    assert_eq!(sandbox.changes(), ["~f 5"]);
    file.set_times(times).unwrap();
    assert_eq!(sandbox.changes(), ["~f 5"], "setting the times is a change itself");
}

#[test]
fn a_writer_in_the_background_is_told_once_a_write() {
    let mut sandbox = Sandbox::new();
    let mut log = File::create(sandbox.at("log")).unwrap();
    assert_eq!(sandbox.changes(), ["+log 0"]);
    log.write_all(b"1").unwrap();
    assert_eq!(sandbox.changes(), ["~log 1"]);
    log.write_all(b"2").unwrap();
    assert_eq!(sandbox.changes(), ["~log 2"]);
    drop(log);
    assert_eq!(sandbox.changes(), NOTHING, "closing is no change");
}

#[test]
fn any_name_will_do() {
    let mut sandbox = Sandbox::new();
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe", b" (deleted)", b"#1", &[b'x'; 255]];
    let folder = sandbox.at("").join(OsStr::from_bytes(b"dir\n\xff (deleted)"));
    fs::create_dir(&folder).unwrap();
    for name in names {
        fs::write(folder.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let taken = sandbox.take();
    assert!(!taken.truncated);
    let mut want: Vec<_> = names.iter().map(|name| folder.join(OsStr::from_bytes(name))).collect();
    want.sort();
    let got: Vec<_> = taken.entries.iter().map(|change| sandbox.at("").join(&change.path)).collect();
    assert_eq!(got, want);
}

#[test]
fn only_files_are_reported() {
    let mut sandbox = Sandbox::new();
    let listener = UnixListener::bind(sandbox.at("socket")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", sandbox.at("link")).unwrap();
    rustix::fs::mknodat(CWD, sandbox.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let taken = sandbox.take();
    assert_eq!(crate::fixture::lines(&taken), ["+link 11"]);
    assert_eq!(taken.entries[0].kind, Some(atoll_observe::Kind::Symlink));
    drop(listener);
    ["socket", "pipe", "link"].iter().for_each(|name| fs::remove_file(sandbox.at(name)).unwrap());
    assert_eq!(sandbox.changes(), ["-link"]);
}
