use super::{index::LONGEST_TARGET, *};
use crate::image_specs::dockerfile::Dockerfile;
use atoll_guest_tools::archive::{BLOCK, END_MARK, Entries};
use tar::{EntryType, Header};

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(7);
    header.set_gid(7);
    header.set_mtime(5);
    header.set_size(size);
    header
}

fn archive(entries: &[(&str, EntryType, &[u8], &str)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (path, kind, body, target) in entries {
        for (kind, text) in [(EntryType::GNULongName, path), (EntryType::GNULongLink, target)] {
            if text.len() > 100 {
                let mut header = header(kind, text.len() as u64 + 1);
                header.set_path("././@LongLink").unwrap();
                header.set_cksum();
                all.extend_from_slice(header.as_bytes());
                all.extend_from_slice(text.as_bytes());
                all.resize((all.len() + 1).next_multiple_of(BLOCK), 0);
            }
        }
        let mut header = header(*kind, body.len() as u64);
        let fields = header.as_gnu_mut().unwrap();
        let (path, target) =
            (&path.as_bytes()[..path.len().min(100)], &target.as_bytes()[..target.len().min(100)]);
        fields.name[..path.len()].copy_from_slice(path);
        fields.linkname[..target.len()].copy_from_slice(target);
        header.set_cksum();
        all.extend_from_slice(header.as_bytes());
        all.extend_from_slice(body);
        all.resize(all.len().next_multiple_of(BLOCK), 0);
    }
    all.extend_from_slice(&END_MARK);
    all
}

async fn received(folder: &Path, bytes: Vec<u8>) -> Result<BuildFiles> {
    let pieces: Vec<Result<Bytes>> =
        bytes.chunks(700).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    BuildFiles::receive(folder, futures_util::stream::iter(pieces)).await
}

fn usual() -> Vec<u8> {
    let long = format!("src/{}.txt", "x".repeat(150));
    archive(&[
        ("./Dockerfile", EntryType::Regular, b"FROM x", ""),
        ("src/", EntryType::Directory, b"", ""),
        ("src/a.py", EntryType::Regular, b"print(1)", ""),
        ("src/b.py", EntryType::Link, b"", "src/a.py"),
        ("src/link", EntryType::Symlink, b"", "a.py"),
        (&long, EntryType::Regular, &[b'y'; 70_000], ""),
    ])
}

/// What a copy makes of a target that the image does not have, or has as a folder.
async fn layer(files: &BuildFiles, sources: &[&str], path: &str, exists: bool) -> Result<Vec<String>> {
    let mut selected = Vec::new();
    for source in sources {
        selected.extend(files.select(source)?);
    }
    let target = CopyTarget { path: path.to_owned(), exists, is_folder: exists, owner: (3, 4), mode: None };
    let bytes = files.layer(&selected, &target)?.collect::<Vec<_>>().await.concat();
    let mut found = Vec::new();
    let mut entries = Entries::new(&bytes[..]);
    while let Some(entry) = entries.next_entry().unwrap() {
        assert_eq!((entry.uid, entry.gid), (3, 4));
        found.push(format!("{} {}", String::from_utf8(entry.name).unwrap(), entry.size));
    }
    Ok(found)
}

#[tokio::test]
async fn a_copy_is_a_layer_of_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let files = received(folder.path(), usual()).await.unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(files.text("Dockerfile", 100).unwrap(), "FROM x");
    assert_eq!(layer(&files, &["src/a.py"], "/opt/x", false).await.unwrap(), ["opt/x 8"]);
    assert_eq!(layer(&files, &["src/a.py"], "/opt/x", true).await.unwrap(), ["opt/x/a.py 8"]);
    assert_eq!(layer(&files, &["src/?.py"], "/opt/", false).await.unwrap(), ["opt/a.py 8", "opt/b.py 8"]);
    let all = layer(&files, &["."], "/srv", true).await.unwrap();
    assert!(all.contains(&"srv/src/link 0".to_owned()) && all.len() == 6, "{all:?}");
    let inside = layer(&files, &["src"], "/srv", true).await.unwrap();
    assert!(inside.contains(&"srv/a.py 8".to_owned()) && inside.len() == 4, "{inside:?}");
    for missing in ["nosuch", "*.txt", "../x"] {
        assert_eq!(layer(&files, &[missing], "/", true).await.unwrap_err().code, ErrorCode::InvalidArgument);
    }
}

#[tokio::test]
async fn the_digest_is_of_what_is_copied_alone() {
    let folder = tempfile::tempdir().unwrap();
    let files = received(folder.path(), usual()).await.unwrap();
    let other = archive(&[
        ("Dockerfile", EntryType::Regular, b"FROM other", ""),
        ("src/a.py", EntryType::Regular, b"print(1)", ""),
    ]);
    let other = received(folder.path(), other).await.unwrap();
    assert_eq!(files.digest("src/a.py"), other.digest("src/a.py"));
    assert_ne!(files.digest("Dockerfile"), other.digest("Dockerfile"));
    assert_ne!(files.digest("."), other.digest("."));
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (what, bytes) in [
        ("no archive", vec![7; 2000]),
        ("cut off", usual()[..2000].to_vec()),
        ("out of the folder", archive(&[("../x", EntryType::Regular, b"", "")])),
        ("a device", archive(&[("x", EntryType::Char, b"", "")])),
        ("a list of what to leave out", archive(&[("./.dockerignore", EntryType::Regular, b"*", "")])),
        ("a whiteout", archive(&[("a/.wh.x", EntryType::Regular, b"", "")])),
        ("a link to nothing", archive(&[("x", EntryType::Link, b"", "y")])),
    ] {
        assert!(received(folder.path(), bytes).await.is_err(), "{what}");
    }
}

#[tokio::test]
async fn links_are_short_and_hard_links_are_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(LONGEST_TARGET + 1);
    for entries in [
        vec![("a", EntryType::Symlink, &b""[..], long.as_str())],
        vec![("a", EntryType::Symlink, b"", "b"), ("c", EntryType::Link, b"", "a")],
    ] {
        let refused = received(folder.path(), archive(&entries)).await.err().unwrap();
        assert_eq!(refused.field.as_deref(), Some("body"), "{refused}");
    }
}

#[tokio::test]
async fn a_target_that_the_image_lacks_is_made_with_the_owner_of_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let files = received(
        folder.path(),
        archive(&[("empty/", EntryType::Directory, b"", ""), ("src/a.py", EntryType::Regular, b"1", "")]),
    );
    let files = files.await.unwrap();
    assert_eq!(layer(&files, &["empty"], "/x", false).await.unwrap(), ["x 0"]);
    assert_eq!(layer(&files, &["src"], "/srv/app", false).await.unwrap(), ["srv/app 0", "srv/app/a.py 1"]);
    assert_eq!(layer(&files, &["src"], "/srv/app", true).await.unwrap(), ["srv/app/a.py 1"]);
    assert_eq!(layer(&files, &["src"], "/", false).await.unwrap(), ["a.py 1"]);
}

#[tokio::test]
async fn folders_that_the_archive_does_not_name_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let files =
        received(folder.path(), archive(&[("a/b/c.py", EntryType::Regular, b"1", "")])).await.unwrap();
    assert_eq!(layer(&files, &["a/b"], "/x", true).await.unwrap(), ["x/c.py 1"]);
    assert_eq!(layer(&files, &["a"], "/x", true).await.unwrap(), ["x/b 0", "x/b/c.py 1"]);
}

#[tokio::test]
async fn archives_are_taken_and_the_rest_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let files = archive(&[
        ("vendor/one.tar", EntryType::Regular, b"x", ""),
        ("vendor/plain.txt", EntryType::Regular, b"yy", ""),
        ("other/two.tar.xz", EntryType::Regular, b"x", ""),
    ]);
    let files = received(folder.path(), files).await.unwrap();
    let mut selected = files.select("vendor/*").unwrap();
    assert_eq!(BuildFiles::take_archives(&mut selected).unwrap().len(), 1);
    assert_eq!(selected.iter().map(|one| one.top.as_str()).collect::<Vec<_>>(), ["vendor/plain.txt"]);
    let mut unsupported = files.select("other/*").unwrap();
    assert_eq!(BuildFiles::take_archives(&mut unsupported).unwrap_err().code, ErrorCode::Unsupported);
}

#[tokio::test]
async fn an_archive_keeps_its_owners_and_an_add_that_says_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files =
        archive(&[("one.tar", EntryType::Regular, b"x", ""), ("plain.txt", EntryType::Regular, b"y", "")]);
    let files = received(folder.path(), files).await.unwrap();
    for (line, refused) in [
        ("ADD --chown=1 plain.txt /opt/", false),
        ("ADD one.tar /opt/", false),
        ("COPY --chown=1 one.tar /opt/", false),
        ("ADD --chown=1 *.t* /opt/", true),
        ("ADD --chmod=600 one.tar /opt/", true),
    ] {
        let text = format!("FROM x\n{line}");
        let steps = Dockerfile::parse(&text, [].into(), [].into()).unwrap().steps;
        let checked = files.check_archives(&steps);
        assert_eq!(checked.is_err(), refused, "{line}: {checked:?}");
        assert!(checked.is_ok() || checked.unwrap_err().message.starts_with("line 2: ADD --ch"), "{line}");
    }
}

#[tokio::test]
async fn names_are_bounded_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| format!("{}/{number}", ["x"; 16].map(|part| part.repeat(250)).join("/"));
    let paths: Vec<String> = (0..5000).map(path).collect();
    let entries: Vec<_> =
        paths.iter().map(|path| (path.as_str(), EntryType::Regular, &b""[..], "")).collect();
    let refused = received(folder.path(), archive(&entries)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TooLarge);
}
