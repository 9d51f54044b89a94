//! The folders of a sandbox in one archive: with a digest for every file, and nothing that is not theirs.
#![allow(clippy::unwrap_used)]

use atoll_guest_tools::{
    Unpacked,
    archive::{END_MARK, pack_folders, small_file, small_file_length, unpack_folders},
};
use atoll_types::Error;
use std::{
    fs::{self, File},
    io::Write,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::Path,
    process::{Command, Stdio},
};
use tar::{EntryType, Header};
use tempfile::TempDir;

const NAMES: [&str; 2] = ["workspace", "home"];

fn folders(top: &Path) -> Vec<(String, OwnedFd)> {
    let open = |name: &str| (name.to_owned(), File::open(top.join(name)).unwrap().into());
    NAMES.into_iter().map(open).collect()
}

/// A sandbox's two folders.
fn made() -> TempDir {
    let top = tempfile::tempdir().unwrap();
    NAMES.iter().for_each(|name| fs::create_dir(top.path().join(name)).unwrap());
    top
}

fn packed(top: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    pack_folders(folders(top), &mut archive).unwrap();
    archive
}

fn unpacked(archive: &[u8]) -> (TempDir, Result<Unpacked, Error>) {
    let (top, mut done) = (made(), Unpacked::default());
    let result = unpack_folders(&folders(top.path()), archive, &mut done);
    (top, result.map(|()| done))
}

fn refused(archive: &[u8]) -> String {
    let (_, result) = unpacked(archive);
    result.unwrap_err().message
}

/// An archive of one entry, and the digest of no bytes for it where it is a file.
fn one(kind: EntryType, name: &str, target: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    [header.as_bytes().as_slice(), &END_MARK].concat()
}

#[test]
fn folders_come_out_as_they_went_in_and_sha256sum_agrees() {
    let from = made();
    let at = |name: &str| from.path().join(name);
    fs::create_dir_all(at("workspace/deep/empty")).unwrap();
    // More than one batch of digests, and names that must be escaped.
    for n in 0..1500 {
        fs::write(at(&format!("workspace/deep/file-{n}")), format!("{n}\n")).unwrap();
    }
    fs::write(at("workspace/a \\ b\nc"), "odd").unwrap();
    fs::write(at("home/.profile"), vec![7; 200_000]).unwrap();
    symlink("/etc/passwd", at("home/link")).unwrap();
    let archive = packed(from.path());
    let (to, done) = unpacked(&archive);
    assert_eq!(
        done.unwrap(),
        Unpacked {
            files: 1505,
            bytes: 200_003 + (0..1500).map(|n: u32| n.to_string().len() as u64 + 1).sum::<u64>()
        }
    );
    let same = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([from.path(), to.path()])
        .output()
        .unwrap();
    assert!(same.status.success(), "{same:?}");
    // With the tools that every machine has.
    let plain = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar")
        .args(["-xf", "-"])
        .current_dir(plain.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(tar.wait().unwrap().success());
    let batches = fs::read_dir(plain.path().join("digests")).unwrap().count();
    assert!(batches > 1, "{batches}");
    let checked = Command::new("sh")
        .args(["-c", "cat digests/* | sha256sum -c --quiet --strict"])
        .current_dir(plain.path())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_byte_that_changed_is_named_by_its_file() {
    let from = made();
    fs::write(from.path().join("workspace/a"), "first").unwrap();
    fs::write(from.path().join("workspace/b"), "second").unwrap();
    let archive = packed(from.path());
    let at = archive.windows(6).position(|bytes| bytes == b"second").unwrap();
    let mut changed = archive.clone();
    changed[at] = b'S';
    assert!(refused(&changed).contains("the digest of workspace/b"), "{}", refused(&changed));
    // A file whose digest is missing, and a digest whose file is.
    let digests = archive.windows(8).position(|bytes| bytes == b"digests/").unwrap();
    let without = [&archive[..digests], &END_MARK].concat();
    assert!(refused(&without).contains("workspace/b has no digest"), "{}", refused(&without));
    let alone = [&archive[digests..digests + 1024], &END_MARK].concat();
    assert!(refused(&alone).contains("digest"), "{}", refused(&alone));
    assert!(refused(&archive[..digests]).contains("broke off"));
}

#[test]
fn what_is_not_a_sandboxs_is_refused_by_name() {
    for (kind, name, target, said) in [
        (EntryType::Regular, "etc/passwd", "", "etc/passwd is in no folder"),
        (EntryType::Regular, "/workspace/a", "", "/workspace/a is absolute"),
        (EntryType::Regular, "workspace/../../etc/cron.d/x", "", "leads out"),
        (EntryType::Regular, "workspace", "", "workspace is the folder itself"),
        (EntryType::Char, "workspace/null", "", "null is a device"),
        (EntryType::Block, "home/sda", "", "sda is a device"),
        (EntryType::Fifo, "home/fifo", "", "fifo is a device or FIFO"),
        (EntryType::GNUSparse, "home/sparse", "", "sparse"),
        (EntryType::Link, "workspace/l", "/etc/shadow", "/etc/shadow is absolute"),
        (EntryType::Link, "workspace/l", "../../etc/shadow", "leads out"),
        (EntryType::Link, "workspace/l", "home/.ssh/id", "is absolute"),
        (EntryType::Link, "workspace/l", "workspace/none", "l is a hard link to no file"),
        (EntryType::Directory, "digests/000001", "", "digests/000001 is no list"),
        (EntryType::Regular, "workspace/a", "", "workspace/a has no digest"),
    ] {
        let message = refused(&one(kind, name, target));
        assert!(message.contains(said), "{name}: {message}");
    }
}

#[test]
fn the_file_in_front_is_read_within_its_bounds() {
    let entry = small_file("atoll.json", b"{}");
    assert_eq!(entry.len(), 1024);
    let block = |bytes: &[u8]| *bytes.first_chunk().unwrap();
    assert_eq!(small_file_length(&block(&entry), "atoll.json", 9), Ok((512, 2)));
    assert!(small_file_length(&block(&entry), "atoll.json", 1).unwrap_err().message.contains("larger"));
    assert!(
        small_file_length(&block(&entry), "other", 9).unwrap_err().message.contains("begins with atoll.json")
    );
    assert!(small_file_length(&[0; 512], "atoll.json", 9).is_err());
    assert!(small_file_length(&[b'x'; 512], "atoll.json", 9).is_err());
}
