//! Files: whole or not at all, the user's own rights, and no way out of an area.

use crate::support::*;
use atoll_guest_proto::v1::{
    FileEntry, FileKind, ListDirRequest, MakeDirRequest, MoveRequest, ReadFileRequest, RemoveRequest,
    StatRequest, WriteChunk, WriteHead, file_chunk, write_chunk::Part,
};
use atoll_types::ErrorCode;
use tonic::Status;

pub(crate) fn stat(path: &str) -> StatRequest {
    StatRequest { path: path.into(), follow: false }
}

pub(crate) fn head(path: &str) -> WriteHead {
    WriteHead { path: path.into(), ..WriteHead::default() }
}

pub(crate) async fn write(guest: &Guest, head: WriteHead, data: &[&[u8]]) -> Result<FileEntry, Status> {
    let mut parts = vec![Part::Head(head)];
    parts.extend(data.iter().map(|d| Part::Data(d.to_vec().into())));
    let stream = tokio_stream::iter(parts.into_iter().map(|part| WriteChunk { part: Some(part) }));
    Ok(guest.client.clone().write_file(stream).await?.into_inner())
}

async fn read_from(guest: &Guest, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Status> {
    let request = ReadFileRequest { path: path.into(), offset, length };
    let mut stream = guest.client.clone().read_file(request).await?.into_inner();
    let mut bytes = Vec::new();
    let first = stream.message().await?.unwrap().part.unwrap();
    assert!(matches!(first, file_chunk::Part::Head(_)));
    while let Some(chunk) = stream.message().await? {
        match chunk.part.unwrap() {
            file_chunk::Part::Data(data) => {
                assert!(data.len() <= 256 * 1024);
                bytes.extend(data);
            }
            file_chunk::Part::Head(_) => panic!("a second head"),
        }
    }
    Ok(bytes)
}

async fn read(guest: &Guest, path: &str) -> Result<Vec<u8>, Status> {
    read_from(guest, path, 0, 0).await
}

async fn list(guest: &Guest, path: &str) -> Result<Vec<FileEntry>, Status> {
    let mut stream = guest.client.clone().list_dir(ListDirRequest { path: path.into() }).await?.into_inner();
    let mut all = Vec::new();
    while let Some(entry) = stream.message().await? {
        all.push(entry);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

async fn remove(guest: &Guest, path: &str, recursive: bool) -> Result<(), Status> {
    guest.client.clone().remove(RemoveRequest { path: path.into(), recursive }).await.map(|_| ())
}

async fn rename(guest: &Guest, from: &str, to: &str, overwrite: bool) -> Result<FileEntry, Status> {
    let request = MoveRequest { from: from.into(), to: to.into(), overwrite };
    Ok(guest.client.clone().r#move(request).await?.into_inner())
}

async fn make_dir(guest: &Guest, path: &str, parents: bool, mode: u32) -> Result<FileEntry, Status> {
    let request = MakeDirRequest { path: path.into(), parents, mode };
    Ok(guest.client.clone().make_dir(request).await?.into_inner())
}

fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> ErrorCode {
    error(result).code
}

#[tokio::test]
async fn files_belong_to_the_user_and_come_back_whole() {
    let guest = Guest::start().await;
    let data: Vec<u8> = (0..1_500_000u32).flat_map(u32::to_le_bytes).collect();
    let chunks: Vec<&[u8]> = data.chunks(1 << 20).collect();
    let entry = write(&guest, head("big"), &chunks).await.unwrap();
    assert_eq!((entry.name.as_str(), entry.size, entry.mode), ("big", 6_000_000, 0o644));
    assert_eq!((entry.uid, entry.gid, entry.kind()), (1000, 1000, FileKind::File));
    assert!(read(&guest, "/workspace/big").await.unwrap() == data);
    assert!(read_from(&guest, "big", 1_000_001, 700_000).await.unwrap() == data[1_000_001..1_700_001]);
    assert!(read_from(&guest, "big", 5_999_999, 10).await.unwrap() == data[5_999_999..]);
    assert!(read_from(&guest, "big", 7_000_000, 0).await.unwrap().is_empty());
    assert!(read_from(&guest, "big", u64::MAX, 0).await.unwrap().is_empty());
    assert_eq!(write(&guest, head("empty"), &[]).await.unwrap().size, 0);
    assert_eq!(guest.output("stat -c '%U %s' big empty").await, "user 6000000\nuser 0");
}

#[tokio::test]
async fn modes_are_given_kept_or_usual() {
    let guest = Guest::start().await;
    let mode = async |mode| write(&guest, WriteHead { mode, ..head("f") }, &[b"x"]).await.unwrap().mode;
    assert_eq!(mode(0).await, 0o644);
    assert_eq!(mode(0o777).await, 0o777);
    assert_eq!(mode(0).await, 0o777);
    assert_eq!(make_dir(&guest, "d", false, 0).await.unwrap().mode, 0o755);
    let made = make_dir(&guest, "e", false, 0o777).await.unwrap();
    assert_eq!((made.kind(), made.uid), (FileKind::Directory, 1000));
    assert_eq!(guest.client.clone().stat(stat("e")).await.unwrap().into_inner().mode, 0o777);
}

#[tokio::test]
async fn append_exclusive_and_parents() {
    let guest = Guest::start().await;
    let append = || WriteHead { append: true, ..head("log") };
    write(&guest, append(), &[b"one "]).await.unwrap();
    assert_eq!(write(&guest, append(), &[b"two"]).await.unwrap().size, 7);
    assert_eq!(read(&guest, "log").await.unwrap(), b"one two");
    let exclusive = |path: &str| WriteHead { exclusive: true, ..head(path) };
    assert_eq!(code(write(&guest, exclusive("log"), &[b"x"]).await), ErrorCode::AlreadyExists);
    write(&guest, exclusive("fresh"), &[b"x"]).await.unwrap();
    assert_eq!(code(write(&guest, head("a/b/c"), &[b"x"]).await), ErrorCode::NotFound);
    write(&guest, WriteHead { create_parents: true, ..head("a/b/c") }, &[b"deep"]).await.unwrap();
    assert_eq!(guest.output("stat -c '%U %a' a a/b; cat a/b/c").await, "user 755\nuser 755\ndeep");
    make_dir(&guest, "/home/user/x/y", true, 0).await.unwrap();
    make_dir(&guest, "/home/user/x/y", true, 0).await.unwrap();
    assert_eq!(code(make_dir(&guest, "/home/user/x/y", false, 0).await), ErrorCode::AlreadyExists);
    assert_eq!(code(make_dir(&guest, "log/x", true, 0).await), ErrorCode::NotADirectory);
}

#[tokio::test]
async fn a_file_appears_whole_or_not_at_all() {
    let guest = Guest::start().await;
    write(&guest, head("f"), &[b"old"]).await.unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let mut client = guest.connect_again().await;
    let writing = tokio::spawn(async move {
        client.write_file(tokio_stream::wrappers::ReceiverStream::new(receiver)).await.map(|_| ())
    });
    for part in [Part::Head(head("f")), Part::Data(b"new"[..].into())] {
        sender.send(WriteChunk { part: Some(part) }).await.unwrap();
    }
    eventually("the upload has begun", async || guest.output("ls -A | wc -l").await == "2").await;
    assert_eq!(read(&guest, "f").await.unwrap(), b"old");
    // The client goes away in the middle.
    writing.abort();
    let _ = writing.await;
    eventually("nothing is left of it", async || guest.output("ls -A").await == "f").await;
    assert_eq!(read(&guest, "f").await.unwrap(), b"old");
    // Until here: to let go of it would be to end the file.
    drop(sender);
}

#[tokio::test]
async fn no_path_leads_out() {
    let guest = Guest::start().await;
    guest
        .output("ln -s /etc out; ln -s /etc/passwd pw; ln -s ../etc/passwd up; ln -s sub in; mkdir sub; echo x >sub/f")
        .await;
    let outside = ErrorCode::PathOutsideRoot;
    for path in ["../etc/passwd", "/workspace/../etc/passwd", "a/..", "..", "out/passwd", "pw", "up"] {
        assert_eq!(code(read(&guest, path).await), outside, "{path}");
    }
    assert_eq!(error(read(&guest, "..").await).field.as_deref(), Some("path"));
    assert_eq!(read(&guest, "in/f").await.unwrap(), b"x\n");
    for path in ["out/new", "../new"] {
        assert_eq!(code(write(&guest, head(path), &[b"x"]).await), outside, "{path}");
        let deep = WriteHead { create_parents: true, ..head(&format!("{path}/deeper")) };
        assert_eq!(code(write(&guest, deep, &[b"x"]).await), outside, "{path}");
        assert_eq!(code(make_dir(&guest, path, true, 0).await), outside, "{path}");
        assert_eq!(code(remove(&guest, path, true).await), outside, "{path}");
        assert_eq!(code(rename(&guest, "sub/f", path, true).await), outside, "{path}");
    }
    assert_eq!(code(list(&guest, "out").await), outside);
    let append = WriteHead { append: true, ..head("pw") };
    assert_eq!(code(write(&guest, append, &[b"x"]).await), outside);
    // Of a link itself one may ask, and a written file takes its place.
    let entry = guest.client.clone().stat(stat("pw")).await.unwrap().into_inner();
    assert_eq!((entry.kind(), entry.target.as_str()), (FileKind::Symlink, "/etc/passwd"));
    let follow = StatRequest { path: "pw".into(), follow: true };
    assert_eq!(code(guest.client.clone().stat(follow).await), outside);
    write(&guest, head("pw"), &[b"mine"]).await.unwrap();
    assert!(guest.output("cat pw; grep -c root /etc/passwd").await.starts_with("mine"));
    // Elsewhere links work as they do for the user.
    assert!(read(&guest, "/bin/true").await.is_ok());
}

#[tokio::test]
async fn the_user_may_not_do_more_here_than_in_a_shell() {
    let guest = Guest::start().await;
    let denied = ErrorCode::PermissionDenied;
    assert_eq!(code(read(&guest, "/secret/x").await), denied);
    assert_eq!(code(list(&guest, "/secret").await), denied);
    assert_eq!(code(write(&guest, head("/usr/x"), &[b"x"]).await), denied);
    assert_eq!(code(remove(&guest, "/etc/passwd", false).await), denied);
    assert_eq!(code(make_dir(&guest, "/etc/x", false, 0).await), denied);
    assert_eq!(code(rename(&guest, "/etc/passwd", "/workspace/p", false).await), denied);
    for path in ["/proc/self/status", "/proc/1/environ", "/proc/self/root/etc/passwd"] {
        assert!(matches!(
            code(read(&guest, path).await),
            ErrorCode::PermissionDenied | ErrorCode::PathOutsideRoot
        ));
    }
    assert_eq!(code(list(&guest, "/proc").await), denied);
    assert_eq!(code(guest.client.clone().stat(stat("/proc/version")).await), denied);
    // Supplementary groups count as they do in a shell.
    std::fs::write(guest.path("/home/grouped"), "g").unwrap();
    std::os::unix::fs::chown(guest.path("/home/grouped"), Some(0), Some(2000)).unwrap();
    std::fs::set_permissions(
        guest.path("/home/grouped"),
        std::os::unix::fs::PermissionsExt::from_mode(0o640),
    )
    .unwrap();
    assert_eq!(read(&guest, "/home/grouped").await.unwrap(), b"g");
}

#[tokio::test]
async fn special_files_are_named_and_never_opened_for_long() {
    let guest = Guest::start().await;
    guest.output("mkfifo fifo; mkdir dir; python3 -c 'import socket; socket.socket(1).bind(\"sock\")'").await;
    for path in ["fifo", "sock", "/dev/null"] {
        assert_eq!(code(read(&guest, path).await), ErrorCode::SpecialFile, "{path}");
    }
    for path in ["fifo", "sock"] {
        assert_eq!(code(write(&guest, head(path), &[b"x"]).await), ErrorCode::SpecialFile, "{path}");
        let append = WriteHead { append: true, ..head(path) };
        assert_eq!(code(write(&guest, append, &[b"x"]).await), ErrorCode::SpecialFile, "{path}");
    }
    assert_eq!(code(read(&guest, "dir").await), ErrorCode::IsADirectory);
    assert_eq!(code(write(&guest, head("dir"), &[b"x"]).await), ErrorCode::IsADirectory);
    assert_eq!(code(read(&guest, "none").await), ErrorCode::NotFound);
    assert_eq!(code(read(&guest, "fifo/x").await), ErrorCode::NotADirectory);
    assert_eq!(code(list(&guest, "fifo").await), ErrorCode::NotADirectory);
    for path in ["", "a\0b", &"x".repeat(5000), &"y".repeat(300)] {
        assert_eq!(code(read(&guest, path).await), ErrorCode::InvalidArgument);
    }
    let kinds: Vec<_> = list(&guest, ".").await.unwrap().iter().map(|e| (e.name.clone(), e.kind())).collect();
    let expected = [("dir", FileKind::Directory), ("fifo", FileKind::Other), ("sock", FileKind::Other)];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
}

#[tokio::test]
async fn directories_of_any_size_are_listed() {
    let guest = Guest::start().await;
    guest
        .output("mkdir many; cd many; touch $(seq 1000); ln -s 1 link; touch $'new\\nline' $'bad\\xff'")
        .await;
    let all = list(&guest, "many").await.unwrap();
    assert_eq!(all.len(), 1003);
    assert!(all.iter().any(|e| e.name == "new\nline") && all.iter().any(|e| e.name == "bad\u{fffd}"));
    assert!(all.iter().any(|e| e.name == "link" && e.target == "1" && e.kind() == FileKind::Symlink));
    assert!(!list(&guest, "/").await.unwrap().is_empty());
}

#[tokio::test]
async fn removing_follows_no_link() {
    let guest = Guest::start().await;
    guest
        .output("mkdir -p keep t/a/b/c t/d; touch keep/me t/a/x t/a/b/y; ln -s ../../keep t/a/link; ln -s /etc t/etc; ln -s keep l")
        .await;
    assert_eq!(code(remove(&guest, "t", false).await), ErrorCode::DirectoryNotEmpty);
    remove(&guest, "t", true).await.unwrap();
    remove(&guest, "l", true).await.unwrap();
    assert_eq!(guest.output("ls -A . keep").await, ".:\nkeep\n\nkeep:\nme");
    assert_eq!(code(remove(&guest, "t", true).await), ErrorCode::NotFound);
    for area in ["/workspace", "/", "/home/user", "/tmp", "."] {
        assert_eq!(code(remove(&guest, area, true).await), ErrorCode::InvalidArgument, "{area}");
    }
    // Deeper than any path is long.
    let deep =
        "import os\nfor i in range(3000):\n  os.mkdir('dddd'); os.chdir('dddd')\nopen('f', 'w').close()\n";
    assert_eq!(guest.run(python(deep)).await.info().exit_code, Some(0));
    remove(&guest, "dddd", true).await.unwrap();
    assert_eq!(guest.output("ls").await, "keep");
}

#[tokio::test]
async fn moving_within_and_across_filesystems() {
    let guest = Guest::start().await;
    write(&guest, head("a"), &[b"a"]).await.unwrap();
    write(&guest, head("b"), &[b"b"]).await.unwrap();
    assert_eq!(code(rename(&guest, "a", "b", false).await), ErrorCode::AlreadyExists);
    assert_eq!(rename(&guest, "a", "b", true).await.unwrap().name, "b");
    assert_eq!(read(&guest, "b").await.unwrap(), b"a");
    let missing = error(rename(&guest, "none", "c", false).await);
    assert_eq!((missing.code, missing.field.as_deref()), (ErrorCode::NotFound, Some("from")));
    assert_eq!(code(rename(&guest, "/workspace", "/tmp/w", false).await), ErrorCode::InvalidArgument);
    make_dir(&guest, "d/e", true, 0).await.unwrap();
    assert_eq!(code(rename(&guest, "d", "d/e/f", false).await), ErrorCode::InvalidArgument);
    // /dev/shm is a filesystem of its own.
    let other = format!("/dev/shm/atoll-guest-test-{}", new_id());
    write(&guest, WriteHead { mode: 0o750, ..head("x") }, &[b"across"]).await.unwrap();
    assert_eq!(rename(&guest, "x", &other, false).await.unwrap().mode, 0o750);
    assert_eq!(code(guest.client.clone().stat(stat("x")).await), ErrorCode::NotFound);
    write(&guest, head("y"), &[b"y"]).await.unwrap();
    assert_eq!(code(rename(&guest, "y", &other, false).await), ErrorCode::AlreadyExists);
    assert_eq!(read(&guest, &other).await.unwrap(), b"across");
    rename(&guest, &other, "back", false).await.unwrap();
    assert_eq!(code(rename(&guest, "d", &other, false).await), ErrorCode::Unsupported);
    assert_eq!(guest.output("ls; cat back").await, "b\nback\nd\ny\nacross");
}

#[tokio::test]
async fn many_uploads_at_once_hold_no_thread() {
    let guest = Guest::start().await;
    let uploads = (0..20).map(|n| {
        let guest = &guest;
        async move {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            let mut client = guest.client.clone();
            let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
            let writing = tokio::spawn(async move { client.write_file(stream).await.map(|_| ()) });
            sender.send(WriteChunk { part: Some(Part::Head(head(&format!("f{n}")))) }).await.unwrap();
            (sender, writing)
        }
    });
    let uploads = futures_util::future::join_all(uploads).await;
    // All of them wait for their senders, and still a file can be read.
    write(&guest, head("other"), &[b"x"]).await.unwrap();
    assert_eq!(read(&guest, "other").await.unwrap(), b"x");
    for (sender, writing) in uploads {
        sender.send(WriteChunk { part: Some(Part::Data(b"data"[..].into())) }).await.unwrap();
        drop(sender);
        writing.await.unwrap().unwrap();
    }
    assert_eq!(guest.output("cat f* | wc -c; ls -A | wc -l").await, "80\n21");
}
