//! Archives in both directions: what is packed comes out the same, and what is hostile stays inside.
#![allow(clippy::unwrap_used)]

use atoll_guest_tools::{
    Unpacked,
    archive::{Links, pack, unpack},
};
use atoll_types::Error;
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
};
use tar::{EntryType, Header};

/// Everything below a folder: kind, mode, time, and bytes or target.
fn all(top: &Path) -> BTreeMap<Vec<u8>, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let body = if about.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, (about.mode(), about.mtime(), body));
        }
    }
    found
}

fn packed(folder: &Path, prefix: &str) -> Vec<u8> {
    let mut archive = Vec::new();
    pack(File::open(folder).unwrap().into(), prefix.as_bytes(), &mut archive).unwrap();
    archive
}

fn unpacked(folder: &Path, archive: &[u8], links: Links) -> Result<(Unpacked, Vec<String>), Error> {
    let (mut done, mut left_out) = (Unpacked::default(), Vec::new());
    let folder = File::open(folder).unwrap().into();
    unpack(&folder, false, archive, links, &mut done, &mut left_out).map(|()| (done, left_out))
}

#[test]
fn a_folder_comes_out_as_it_went_in() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| from.path().join(name);
    let long = format!("{}/{}", "d".repeat(200), "é".repeat(100));
    fs::create_dir_all(at(&long)).unwrap();
    fs::create_dir_all(at("empty/ in/side")).unwrap();
    fs::write(at(&long).join("file"), "deep").unwrap();
    fs::write(at("new\nline \t\"quoted\" 🏝"), vec![7; 100_000]).unwrap();
    fs::write(from.path().join(OsStr::from_bytes(b"\xff\xfe")), "no text").unwrap();
    fs::write(at("nothing"), "").unwrap();
    fs::set_permissions(at("nothing"), fs::Permissions::from_mode(0o600)).unwrap();
    File::open(at("nothing")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    symlink("/absolute/nowhere", at("absolute")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink(format!("../{}", "t".repeat(300)), at("empty/long")).unwrap();
    fs::write(at("empty/ in/x"), "x").unwrap();
    fs::set_permissions(at("empty/ in"), fs::Permissions::from_mode(0o555)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let archive = packed(from.path(), "");
    let (done, _) = unpacked(to.path(), &archive, Links::Any).unwrap();
    fs::remove_file(at("fifo")).unwrap();
    assert_eq!(all(from.path()), all(to.path()));
    assert_eq!(done.files as usize, all(to.path()).len());
    // Over what is there it gives the same, but for the times of folders that were there.
    unpacked(to.path(), &archive, Links::Any).unwrap();
    let but_times =
        |top| all(top).into_iter().map(|(n, (mode, _, body))| (n, mode, body)).collect::<Vec<_>>();
    assert_eq!(but_times(from.path()), but_times(to.path()));
}

#[test]
fn one_file_and_a_prefix() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("f"), "x").unwrap();
    unpacked(to.path(), &packed(&from.path().join("f"), "other"), Links::Inside).unwrap();
    unpacked(to.path(), &packed(from.path(), "a/b"), Links::Inside).unwrap();
    let names: Vec<_> = all(to.path()).into_keys().map(|n| String::from_utf8(n).unwrap()).collect();
    assert_eq!(names, ["a", "a/b", "a/b/f", "other"]);
}

#[test]
fn a_file_that_changes_its_size_leaves_the_archive_whole() {
    /// Changes a file when its header comes by.
    struct Meddler<'a>(Vec<u8>, &'a Path, usize);
    impl std::io::Write for Meddler<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.starts_with(b"f\0") {
                File::options().write(true).open(self.1)?.set_len(self.2 as u64)?;
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for size in [10, 5_000_000] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = from.path().join("f");
        fs::write(&file, vec![b'x'; 200_000]).unwrap();
        fs::write(from.path().join("g"), "after").unwrap();
        let mut archive = Meddler(Vec::new(), &file, size);
        pack(File::open(from.path()).unwrap().into(), b"", &mut archive).unwrap();
        unpacked(to.path(), &archive.0, Links::Any).unwrap();
        assert_eq!(fs::read(to.path().join("f")).unwrap().len(), 200_000);
        assert_eq!(fs::read(to.path().join("g")).unwrap(), b"after");
    }
}

/// One entry, written without any of the checks that a library would make.
fn entry(kind: EntryType, name: &str, target: &str, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o6755);
    header.set_mtime(1000);
    header.set_size(body.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;

#[test]
fn every_hostile_entry_is_refused_and_nothing_is_outside() {
    let long = entry(EntryType::GNULongName, "x", "", b"../../escape\0");
    let pax = entry(EntryType::XHeader, "x", "", b"21 path=../../escape\n");
    let vast = {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("absolute", vec![entry(FILE, "/tmp/escape", "", b"x")]),
        ("up", vec![entry(FILE, "../escape", "", b"x")]),
        ("up in the middle", vec![entry(FILE, "a/../../escape", "", b"x")]),
        ("up by a long name", vec![long, entry(FILE, "f", "", b"x")]),
        ("up by an extension", vec![pax, entry(FILE, "f", "", b"x")]),
        ("a name without end", vec![vast]),
        ("through a link", vec![entry(LINK, "l", "..", b""), entry(FILE, "l/escape", "", b"x")]),
        (
            "a folder through a link",
            vec![entry(LINK, "l", "..", b""), entry(EntryType::Directory, "l/escape/", "", b"")],
        ),
        ("a link as a folder", vec![entry(LINK, "l", "..", b""), entry(EntryType::Directory, "l/", "", b"")]),
        ("a hard link to outside", vec![entry(EntryType::Link, "h", "../secret", b"")]),
        ("an absolute hard link", vec![entry(EntryType::Link, "h", "/etc/passwd", b"")]),
        (
            "a hard link to a link",
            vec![entry(LINK, "l", "../secret", b""), entry(EntryType::Link, "h", "l", b"")],
        ),
        (
            "a hard link through a link",
            vec![entry(LINK, "l", "..", b""), entry(EntryType::Link, "h", "l/secret", b"")],
        ),
        ("a device", vec![entry(EntryType::Char, "d", "", b"")]),
        ("a block device", vec![entry(EntryType::Block, "d", "", b"")]),
        ("a fifo", vec![entry(EntryType::Fifo, "d", "", b"")]),
        ("a sparse file", vec![entry(EntryType::GNUSparse, "d", "", b"")]),
        ("a kind of its own", vec![entry(EntryType::new(b'Z'), "d", "", b"")]),
        ("the folder as a file", vec![entry(FILE, ".", "", b"x")]),
        (
            "a file over a folder",
            vec![entry(EntryType::Directory, "d/", "", b""), entry(FILE, "d", "", b"x")],
        ),
        ("no archive", vec![vec![b'x'; 2048]]),
    ];
    for (case, entries) in cases {
        for links in [Links::Any, Links::Inside] {
            let around = tempfile::tempdir().unwrap();
            let folder = around.path().join("in");
            fs::create_dir(&folder).unwrap();
            fs::write(around.path().join("secret"), "secret").unwrap();
            let result = unpacked(&folder, &archive(&entries), links);
            // Where links that leave are not made, what goes through them is an ordinary folder.
            let harmless = links == Links::Inside && result.as_ref().is_ok_and(|(_, left)| !left.is_empty());
            assert!(result.is_err() || harmless, "{case}: {result:?}");
            let names: Vec<_> =
                fs::read_dir(around.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names.len(), 2, "{case}: {names:?}");
            assert_eq!(fs::read(around.path().join("secret")).unwrap(), b"secret", "{case}");
            assert_eq!(fs::metadata(around.path().join("secret")).unwrap().nlink(), 1, "{case}");
            assert!(!all(&folder).keys().any(|n| n.starts_with(b".atoll")), "{case}");
        }
    }
    assert!(!Path::new("/tmp/escape").exists());
}

#[test]
fn modes_lose_what_gives_power_and_times_stay() {
    let to = tempfile::tempdir().unwrap();
    let entries = [
        entry(EntryType::Directory, "d/", "", b""),
        entry(FILE, "d/f", "", b"x"),
        entry(EntryType::Link, "d/h", "d/f", b""),
    ];
    unpacked(to.path(), &archive(&entries), Links::Inside).unwrap();
    for name in ["d", "d/f", "d/h"] {
        let about = fs::metadata(to.path().join(name)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.mtime()), (0o755, 1000), "{name}");
    }
    assert_eq!(fs::metadata(to.path().join("d/f")).unwrap().nlink(), 2);
}

#[test]
fn only_a_new_folder_gets_its_own_mode() {
    for (new, mode) in [(true, 0o711), (false, 0o755)] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::set_permissions(from.path(), fs::Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(to.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = File::open(to.path()).unwrap().into();
        let (mut done, archive) = (Unpacked::default(), packed(from.path(), ""));
        unpack(&folder, new, archive.as_slice(), Links::Any, &mut done, &mut Vec::new()).unwrap();
        assert_eq!(fs::metadata(to.path()).unwrap().mode() & 0o777, mode);
    }
}

#[test]
fn what_was_there_is_replaced_and_never_written_through() {
    let around = tempfile::tempdir().unwrap();
    let to = around.path().join("in");
    fs::create_dir(&to).unwrap();
    fs::write(around.path().join("victim"), "mine").unwrap();
    symlink("../victim", to.join("f")).unwrap();
    unpacked(&to, &archive(&[entry(FILE, "f", "", b"new")]), Links::Any).unwrap();
    assert_eq!(fs::read(around.path().join("victim")).unwrap(), b"mine");
    assert!(to.join("f").symlink_metadata().unwrap().is_file());
}

#[test]
fn links_that_leave_are_left_out_where_asked() {
    let to = tempfile::tempdir().unwrap();
    let entries = [
        entry(LINK, "a/good", "../b", b""),
        entry(LINK, "bad", "/etc/passwd", b""),
        entry(LINK, "worse", "../x", b""),
        entry(LINK, "a/sly", "good/../..", b""),
    ];
    let (done, left_out) = unpacked(to.path(), &archive(&entries), Links::Inside).unwrap();
    assert_eq!(left_out, ["bad -> /etc/passwd", "worse -> ../x", "a/sly -> good/../.."]);
    assert_eq!(done.files, 1);
    assert_eq!(all(to.path()).len(), 2);
}

#[test]
fn an_archive_that_breaks_off_leaves_no_half_file() {
    let whole = archive(&[entry(FILE, "a", "", &[1; 1000]), entry(FILE, "b", "", &[2; 5000])]);
    for length in (0..whole.len() - 1024).step_by(100) {
        let to = tempfile::tempdir().unwrap();
        let error = unpacked(to.path(), &whole[..length], Links::Any).unwrap_err();
        assert!(error.message.contains("broke off"), "{length}: {error}");
        for (name, (_, _, body)) in all(to.path()) {
            assert_eq!(body.len(), if name == b"a" { 1000 } else { 5000 }, "{length}");
        }
    }
}

fn any_entry() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![Just("a"), Just("b"), Just("l"), Just(".."), Just("."), Just(""), Just("secret")];
    let path = prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    let kind = prop::sample::select(vec![
        b'0', b'0', b'1', b'2', b'2', b'5', b'5', b'3', b'6', b'L', b'K', b'x', b'g', b'S',
    ]);
    (kind, path.clone(), path, prop::collection::vec(any::<u8>(), 0..700), any::<bool>()).prop_map(
        |(kind, name, target, body, climbs)| {
            let body = match kind {
                b'L' | b'K' if climbs => format!("../{target}").into_bytes(),
                b'0' | b'L' | b'K' | b'x' | b'g' | b'S' => body,
                _ => Vec::new(),
            };
            entry(EntryType::new(kind), &name, &target, &body)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_archive_writes_outside(
        entries in prop::collection::vec(any_entry(), 0..12),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        inside_only in any::<bool>(),
    ) {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("x/in");
        fs::create_dir_all(&folder).unwrap();
        for name in ["secret", "x/secret"] {
            fs::write(around.path().join(name), "secret").unwrap();
        }
        let mut bytes = archive(&entries);
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let links = if inside_only { Links::Inside } else { Links::Any };
        let _ = unpacked(&folder, &bytes, links);
        let outside: Vec<_> = all(around.path()).into_iter().filter(|(n, _)| !n.starts_with(b"x/in/")).collect();
        prop_assert_eq!(outside.len(), 4);
        for name in ["secret", "x/secret"] {
            let about = fs::metadata(around.path().join(name)).unwrap();
            prop_assert_eq!((about.nlink(), about.len()), (1, 6));
        }
        for (name, (mode, ..)) in all(&folder) {
            prop_assert!(!name.windows(6).any(|w| w == b".atoll"));
            prop_assert_eq!(mode & 0o7000, 0);
            let path = folder.join(OsStr::from_bytes(&name));
            if inside_only && mode & 0o170_000 == 0o120_000 && let Ok(real) = fs::canonicalize(&path) {
                prop_assert!(real.starts_with(fs::canonicalize(&folder).unwrap()), "{:?}", path);
            }
        }
    }

    #[test]
    fn whatever_is_packed_comes_out(
        files in prop::collection::btree_map("[a-c é\n]{1,3}(/[a-c\"]{1,3}){0,3}", prop::collection::vec(any::<u8>(), 0..2000), 0..8),
    ) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, body) in files {
            let path = from.path().join(name);
            if fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = fs::write(path, body);
            }
        }
        unpacked(to.path(), &packed(from.path(), ""), Links::Inside).unwrap();
        prop_assert_eq!(all(from.path()), all(to.path()));
    }
}
