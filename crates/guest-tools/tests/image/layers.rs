//! Layers onto each other, and a folder as a layer.

use crate::support::*;
use atoll_guest_tools::{
    Compression, LeftOut,
    image::{LayerOptions, apply_layer, pack_image, pack_layer},
};
use atoll_oci::Digest;
use std::{fs, os::unix::fs::MetadataExt};
use tar::EntryType;

#[test]
fn whiteouts_remove_what_is_below_and_nothing_of_their_own_layer() {
    let top = tempfile::tempdir().unwrap();
    let first = [
        folder("a/"),
        file("a/gone", "x"),
        file("a/stays", "x"),
        folder("b/"),
        file("b/old", "x"),
        folder("b/deep/"),
        file("b/deep/old", "x"),
        folder("c/"),
        file("c/old", "x"),
        file("d", "x"),
    ];
    applied(top.path(), layer(&first).as_slice()).unwrap();
    // The order within a layer does not matter: new entries come before and after the whiteouts.
    let second = [
        file("a/.wh.gone", ""),
        file("a/.wh.never", ""),
        file("b/new", "y"),
        file("b/.wh..wh..opq", ""),
        folder("b/deep/"),
        file("b/deep/new", "y"),
        folder("c/"),
        file("c/new", "y"),
        file(".wh.c", ""),
        file("d", "y"),
        file(".wh.d", ""),
        file("missing/.wh.x", ""),
        file(".wh..wh.plnk", ""),
    ];
    let done = applied(top.path(), layer(&second).as_slice()).unwrap();
    let names: Vec<String> = tree(top.path()).into_keys().collect();
    assert_eq!(names, [".", "a", "a/stays", "b", "b/deep", "b/deep/new", "b/new", "c", "c/new", "d"]);
    assert_eq!(fs::read(top.path().join("d")).unwrap(), b"y");
    assert_eq!((done.entries, done.left_out.notes), (13, 1));
}

#[test]
fn an_ordinary_archive_has_no_whiteouts() {
    let top = tempfile::tempdir().unwrap();
    applied(top.path(), layer(&[file("a", "x")]).as_slice()).unwrap();
    let options = LayerOptions { plain: true, ..LayerOptions::default() };
    let archive = layer(&[file(".wh.a", "y"), file(".wh..wh.plnk", "z")]);
    apply_layer(&opened(top.path()), archive.as_slice(), &options).unwrap();
    let names: Vec<String> = tree(top.path()).into_keys().collect();
    assert_eq!(names, [".", ".wh..wh.plnk", ".wh.a", "a"]);
}

#[test]
fn entries_replace_each_other_and_links_lead_only_within() {
    let top = tempfile::tempdir().unwrap();
    let first = [
        folder("usr/"),
        folder("usr/lib/"),
        symlink("lib", "usr/lib"),
        symlink("abs", "/usr/lib"),
        symlink("up", "../../usr"),
        folder("tree/"),
        file("tree/f", "x"),
        file("plain", "x"),
        symlink("link", "plain"),
        symlink("dangling", "/new/place"),
        file("usr/lib/target", "t"),
        hard_link("name", "/abs/target"),
    ];
    applied(top.path(), layer(&first).as_slice()).unwrap();
    let second = [
        file("lib/one", "1"),
        file("abs/two", "2"),
        file("up/three", "3"),
        file("tree", "a file"),
        folder("plain/"),
        file("plain/f", "x"),
        file("link", "no longer a link"),
        file("dangling/f", "x"),
        folder("abs/"),
        file("usr/lib/target", "other"),
    ];
    applied(top.path(), layer(&second).as_slice()).unwrap();
    let all = tree(top.path());
    let text = |name: &str| String::from_utf8(all[name].body.clone()).unwrap();
    assert_eq!(
        (text("usr/lib/one"), text("usr/lib/two"), text("usr/three")),
        ("1".into(), "2".into(), "3".into())
    );
    assert_eq!(
        (text("tree"), text("link"), text("new/place/f")),
        ("a file".into(), "no longer a link".into(), "x".into())
    );
    // A folder in the place of a link replaces it; a file that is replaced leaves its other names alone.
    assert!(top.path().join("abs").symlink_metadata().unwrap().is_dir());
    assert_eq!((text("name"), text("usr/lib/target")), ("t".into(), "other".into()));
    assert!(!all.contains_key("tree/f"));
}

#[test]
fn modes_ids_and_times_are_the_archives_and_what_cannot_be_kept_is_counted() {
    let top = tempfile::tempdir().unwrap();
    let mut pax = entry(EntryType::XHeader, "x", "", b"");
    let record = |key: &str, value: &str| {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|length| *length == rest + length.to_string().len()).unwrap();
        format!("{length} {key}={value}\n")
    };
    let records =
        [("mtime", "12.25"), ("SCHILY.xattr.user.a", "b"), ("SCHILY.xattr.trusted.x", "y"), ("uid", "7")];
    pax.body = records.iter().map(|(key, value)| record(key, value)).collect::<String>().into_bytes();
    let entries = [
        folder("dev/"),
        entry(EntryType::Char, "dev/null", "", b""),
        entry(EntryType::Block, "dev/sda", "", b""),
        folder("closed/").mode(0o500).ids(1000, 1000),
        file("closed/suid", "x").mode(0o6755).ids(1000, 65535),
        pax,
        file("closed/x", "x"),
        entry(EntryType::Fifo, "fifo", "", b"").mode(0o622),
        symlink("l", "/nowhere").ids(5, 6),
        folder("tmp/").mode(0o1777),
    ];
    let done = applied(top.path(), layer(&entries).as_slice()).unwrap();
    assert_eq!(done.left_out, LeftOut { devices: 2, xattrs: 1, notes: 0 });
    let all = tree(top.path());
    assert_eq!((all["closed/suid"].mode & 0o7777, all["closed/suid"].ids), (0o6755, (1000, 65535)));
    assert_eq!((all["closed"].mode & 0o7777, all["closed"].mtime), (0o500, (1_000_000_000, 0)));
    assert_eq!((all["closed/x"].mtime, all["closed/x"].ids), ((12, 250_000_000), (7, 0)));
    assert_eq!(all["closed/x"].xattrs["user.a"], b"b");
    assert_eq!((all["fifo"].mode, all["l"].ids, all["tmp"].mode & 0o7777), (0o010_622, (5, 6), 0o1777));
    assert!(!all.contains_key("dev/null"));
    // A layer that changes a folder without naming it leaves the folder's time.
    applied(top.path(), layer(&[file("closed/more", "x"), file("tmp/.wh.x", "")]).as_slice()).unwrap();
    assert_eq!(tree(top.path())["closed"].mtime, (1_000_000_000, 0));
}

#[test]
fn every_compression_gives_the_same_layer() {
    let plain = layer(&[folder("d/"), entry(EntryType::Regular, "d/f", "", &[7; 300_000])]);
    let (head, tail) = plain.split_at(100_000);
    let note = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
    let forms = [
        (Compression::None, plain.clone()),
        (Compression::Gzip, gzip(&plain)),
        (Compression::Gzip, [gzip(head), gzip(tail)].concat()),
        (Compression::Zstd, zstd(&plain)),
        // As zstd:chunked has it, and pzstd.
        (Compression::Zstd, [note.clone(), zstd(head), note.clone(), zstd(tail), note].concat()),
    ];
    let mut trees = Vec::new();
    for (compression, bytes) in forms {
        let top = tempfile::tempdir().unwrap();
        let done = applied(top.path(), bytes.as_slice()).unwrap();
        assert_eq!(done.compression, compression);
        assert_eq!(done.diff_id, Digest::of(&plain));
        assert_eq!(done.digest, Digest::of(&bytes));
        assert_eq!((done.entries, done.bytes), (2, plain.len() as u64));
        trees.push(tree(top.path()).remove("d/f").unwrap());
    }
    assert!(trees.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn sparse_files_keep_their_holes_in_all_of_tars_forms() {
    let from = tempfile::tempdir().unwrap();
    let sparse = fs::File::create(from.path().join("sparse")).unwrap();
    for at in (0..40_u64).map(|n| n << 20) {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[at as u8 | 1; 4096], at).unwrap();
    }
    sparse.set_len(100 << 20).unwrap();
    drop(sparse);
    let whole = fs::read(from.path().join("sparse")).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let archive = from.path().join("archive");
        let arguments = [format, &["--sparse", "--hole-detection=raw", "-cf", "archive", "sparse"]].concat();
        run("tar", &arguments, from.path());
        assert!(fs::metadata(&archive).unwrap().len() < 2 << 20, "{format:?}");
        let top = tempfile::tempdir().unwrap();
        applied(top.path(), fs::File::open(&archive).unwrap()).unwrap();
        assert!(fs::read(top.path().join("sparse")).unwrap() == whole, "{format:?}");
        assert!(fs::metadata(top.path().join("sparse")).unwrap().blocks() * 512 < 2 << 20, "{format:?}");
    }
}

#[test]
fn a_folder_as_a_layer_comes_out_as_it_went_in() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = format!("{}/{}", "d".repeat(200), "é".repeat(100));
    let mut entries = vec![
        folder("etc/").ids(0, 42).mode(0o2775),
        file("etc/suid", "x").mode(0o4755).ids(1000, 100),
        hard_link("etc/same", "etc/suid"),
        symlink("l", "../../x"),
        hard_link("l2", "l"),
        entry(EntryType::Fifo, "fifo", "", b""),
        entry(EntryType::Regular, "big", "", &[3; 200_000]),
    ];
    let mut name = entry(EntryType::GNULongName, "x", "", b"");
    name.body = format!("{long}\0").into_bytes();
    entries.extend([name, file("x", "deep")]);
    applied(from.path(), layer(&entries).as_slice()).unwrap();
    let attribute = from.path().join("etc/suid");
    rustix::fs::setxattr(&attribute, "user.a", b"\0\n=", rustix::fs::XattrFlags::empty()).unwrap();
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(
        from.path().join("big"),
        "security.capability",
        &capability,
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let packed = || {
        let mut bytes = Vec::new();
        pack_image(opened(from.path()), &mut bytes).unwrap();
        bytes
    };
    let bytes = packed();
    assert!(bytes == packed(), "the same files are always the same bytes");
    applied(to.path(), bytes.as_slice()).unwrap();
    assert_eq!(differences(&tree(to.path()), &tree(from.path())), [""; 0]);
    // What is measured first is what comes then, compressed or not.
    for gzip in [false, true] {
        let measured = pack_layer(opened(from.path()), gzip, std::io::sink()).unwrap();
        let mut packed = Vec::new();
        assert_eq!(pack_layer(opened(from.path()), gzip, &mut packed).unwrap(), measured);
        assert_eq!((measured.digest, measured.size), (Digest::of(&packed), packed.len() as u64));
        assert_eq!(measured.diff_id, Digest::of(&bytes));
        let to = tempfile::tempdir().unwrap();
        applied(to.path(), packed.as_slice()).unwrap();
        assert_eq!(differences(&tree(to.path()), &tree(from.path())), [""; 0]);
    }
}
