//! The folders of a sandbox in one archive: with a digest for every file, and nothing that is not theirs.
#![allow(clippy::unwrap_used)]

use atoll_guest_tools::{
    Unpacked,
    archive::{END_MARK, Splitter, pack_folders, part_folder, small_file, small_file_length, unpack_folders},
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
    pack_folders(&folders(top), &[], |_| Ok(Vec::new()), &mut archive).unwrap();
    archive
}

fn unpacked(archive: &[u8]) -> (TempDir, Result<Unpacked, Error>) {
    let (top, mut done) = (made(), Unpacked::default());
    let result = unpack_folders(&folders(top.path()), None, archive, &mut done);
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

/// Everything in the two folders, with modes, times and contents.
fn listing(top: &Path) -> String {
    let script = "find workspace home -mindepth 1 -printf '%p %y %m %Ts %s %l\\n' | sed '/ d /s/ [0-9]* $//' | sort; \
                  find workspace home -type f -print0 | sort -z | xargs -0r sha256sum";
    let ran = Command::new("sh").args(["-c", script]).current_dir(top).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Runs a script in a copy of the folders.
fn changed(top: &Path, script: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let script = format!("cp -a '{}'/. . && {script}", top.display());
    let ran = Command::new("sh").args(["-ec", &script]).current_dir(copy.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    copy
}

/// The parts of an archive, each as an archive of its own.
fn parts(archive: &[u8], count: u32) -> Vec<Vec<u8>> {
    let (mut splitter, mut rest, mut parts) = (Splitter::default(), archive, Vec::new());
    for number in 1..=count {
        let (before, found) = splitter.take(&mut rest, Some(&part_folder(number)));
        assert!(found, "part {number}");
        parts.push([before, END_MARK.to_vec()].concat());
    }
    let (before, _) = splitter.take(&mut rest, None);
    parts.push(before);
    parts
}

#[test]
fn earlier_states_are_differences_that_make_the_folders_what_they_were() {
    let oldest = made();
    let fill = "cd workspace; mkdir -p deep/er gone ro; echo one > a; echo same > deep/er/same; head -c 300000 /dev/zero > big; \
                echo x > gone/x; ln -s a link; echo r > ro/r; echo f > was-file; mkdir was-folder; echo i > was-folder/i; \
                echo t > 'new\nline'; chmod 555 ro; echo h > ../home/.h; touch -d @1000000000 a deep ../home/.h";
    let oldest = changed(oldest.path(), fill);
    let middle = changed(
        oldest.path(),
        "cd workspace; echo two > a; rm -r gone; ln -sfn b link; chmod 700 ro; rm ro/r; chmod 555 ro; rm was-file; \
         mkdir -p was-file/in; rm -r was-folder; echo now > was-folder; mkfifo pipe; chmod 600 big; rm ../home/.h",
    );
    let now = changed(
        middle.path(),
        "cd workspace; echo three > a; touch -r ../home a; rm pipe; echo file > pipe; mkdir -p much/more; \
         for n in 1 2 3; do echo $n > much/more/$n; done; rm link",
    );
    let states = [middle.path(), oldest.path()];
    let mut archive = Vec::new();
    let state = |number: u32| Ok(folders(states[number as usize - 1]));
    pack_folders(&folders(now.path()), &[i64::MAX, i64::MAX], state, &mut archive).unwrap();
    let has = |text: &str| archive.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(!has("snapshots/000002/workspace/deep/er/same") && has("snapshots/000001/workspace/a"));
    assert!(!has("snapshots/000001/workspace/big") && has("snapshots/000002/workspace/big"));
    let parts = parts(&archive, 2);
    let (top, result) = unpacked(&parts[0]);
    result.unwrap();
    assert_eq!(listing(top.path()), listing(now.path()));
    for (number, state) in (1..).zip(states) {
        let mut done = Unpacked::default();
        unpack_folders(&folders(top.path()), Some(number), parts[number as usize].as_slice(), &mut done)
            .unwrap();
        let was = listing(state);
        let was: Vec<&str> = was.lines().filter(|line| !line.starts_with("workspace/pipe p")).collect();
        assert_eq!(listing(top.path()).lines().collect::<Vec<_>>(), was, "{number}");
    }
}

#[test]
fn the_list_of_what_is_to_go_stays_in_the_folders() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "").unwrap();
    let top = made();
    symlink(outside.path(), top.path().join("workspace/link")).unwrap();
    let remove = |list: &str| {
        let entry = small_file("snapshots/000001/removed/000001", list.as_bytes());
        let archive = [entry, END_MARK.to_vec()].concat();
        unpack_folders(&folders(top.path()), Some(1), archive.as_slice(), &mut Unpacked::default())
    };
    for list in [
        "../outside\0",
        "workspace\0",
        "/etc\0",
        "workspace/../../x\0",
        "etc/passwd\0",
        "workspace/link/kept\0",
    ] {
        assert!(remove(list).is_err(), "{list}");
    }
    assert!(outside.path().join("kept").exists());
    remove("workspace/link\0home/nothing\0home/no/thing\0").unwrap();
    assert!(fs::symlink_metadata(top.path().join("workspace/link")).is_err());
    // A part of another number, and a list where none belongs.
    let entry = [small_file("snapshots/000002/removed/000001", b"home/x\0"), END_MARK.to_vec()].concat();
    for part in [None, Some(1)] {
        assert!(
            unpack_folders(&folders(top.path()), part, entry.as_slice(), &mut Unpacked::default()).is_err()
        );
    }
}
