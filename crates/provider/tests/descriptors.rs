//! Files as descriptors, with a PID 1 that says and passes whatever a test wants it to. A real one is in
//! the guest's tests and the program's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod fake;

use atoll_guest_proto::v1::{
    Abandoned, FileEntry, FileKind, Opened, descriptor_reply::Reply, descriptor_request::Request,
};
use atoll_provider::{Guest, WriteOptions};
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use fake::{End, FakeDial, copies, greet, greet_with};
use futures_util::{StreamExt, stream};
use rustix::fs::{Mode, OFlags, open};
use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

fn entry() -> Reply {
    // What it says of the size is not believed.
    Reply::Entry(FileEntry { name: "f".into(), kind: FileKind::File.into(), size: 7, ..FileEntry::default() })
}

fn opened() -> Reply {
    Reply::Opened(Opened {})
}

fn body(pieces: &[&'static [u8]]) -> impl futures_util::Stream<Item = Result<Bytes>> + Send + 'static {
    let pieces: Vec<_> = pieces.iter().map(|p| Ok(Bytes::from_static(p))).collect();
    stream::iter(pieces)
}

async fn read(guest: &Guest) -> Result<Vec<u8>> {
    guest.read_file("f", 0, 0).await?.collect(1 << 24).await
}

async fn write(guest: &Guest, options: WriteOptions) -> Result<()> {
    guest.write_file("f", options, body(&[b"some ", b"bytes"])).await.map(drop)
}

fn file(folder: &Path, flags: OFlags) -> OwnedFd {
    open(folder.join("f"), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o600)).unwrap()
}

/// Waits until this process has no copy of what was passed.
async fn all_closed(what: &str, of: &str) {
    for _ in 0..3000 {
        if copies(of) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: still open");
}

/// Opens what a test passes.
type Make = fn(&Path) -> Vec<OwnedFd>;

/// Things that are not a file to read from, nor one to write to.
const NEVER_RIGHT: [(&str, Make); 11] = [
    ("nothing", |_| vec![]),
    ("two", |folder| (0..2).map(|_| file(folder, OFlags::RDONLY)).collect()),
    ("five", |folder| (0..5).map(|_| file(folder, OFlags::RDONLY)).collect()),
    ("a folder", |folder| vec![File::open(folder).unwrap().into()]),
    ("a place", |folder| vec![file(folder, OFlags::PATH)]),
    ("a pipe", |_| vec![rustix::pipe::pipe().unwrap().0]),
    ("a socket", |_| vec![std::os::unix::net::UnixStream::pair().unwrap().0.into()]),
    ("a device", |_| vec![File::open("/dev/zero").unwrap().into()]),
    ("a file of proc", |_| vec![File::open("/proc/self/environ").unwrap().into()]),
    ("a namespace", |_| vec![File::open("/proc/self/ns/uts").unwrap().into()]),
    ("one for both", |folder| vec![file(folder, OFlags::RDWR)]),
];

enum AskAs {
    Reader,
    Writer(WriteOptions),
}

/// Passes these with an answer, and sees what becomes of them: an error, and all of them closed.
async fn refused(what: &str, passed: Vec<OwnedFd>, reply: fn() -> Reply, ask: AskAs) {
    let names: Vec<String> = passed.iter().map(fake::name).collect();
    let passed = std::sync::Mutex::new(Some(passed));
    let dial = FakeDial::new(move |end: &mut End| {
        let passed = passed.lock().unwrap().take().unwrap_or_default();
        end.request();
        end.answer(reply(), &passed.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        drop(passed);
        end.wait_for_end();
    });
    let guest = greet_with(&dial).await;
    let error = match ask {
        AskAs::Reader => read(&guest).await.unwrap_err(),
        AskAs::Writer(options) => write(&guest, options).await.unwrap_err(),
    };
    assert_eq!(error.code, ErrorCode::Internal, "{what}: {error:?}");
    for name in names {
        all_closed(what, &name).await;
    }
    drop(guest);
    dial.join();
}

#[tokio::test]
async fn what_is_not_a_file_to_read_is_refused_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "content").unwrap();
    let writable: (&str, Make) = ("one to write", |folder| vec![file(folder, OFlags::WRONLY)]);
    for (what, make) in NEVER_RIGHT.into_iter().chain([writable]) {
        refused(what, make(folder.path()), entry, AskAs::Reader).await;
    }
}

#[tokio::test]
async fn what_is_not_a_file_to_write_is_refused_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "content").unwrap();
    let plain = WriteOptions::default();
    let append = WriteOptions { append: true, ..plain };
    let more: [(&str, Make); 3] = [
        ("one to read", |folder| vec![file(folder, OFlags::RDONLY)]),
        ("one to append to", |folder| vec![file(folder, OFlags::WRONLY | OFlags::APPEND)]),
        ("one of proc", |_| vec![File::options().write(true).open("/proc/self/comm").unwrap().into()]),
    ];
    for (what, make) in NEVER_RIGHT.into_iter().chain(more) {
        refused(what, make(folder.path()), opened, AskAs::Writer(plain)).await;
    }
    let not_append = vec![file(folder.path(), OFlags::WRONLY)];
    refused("one not to append to", not_append, opened, AskAs::Writer(append)).await;
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"content");
}

#[tokio::test]
async fn answers_that_do_not_fit_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "content").unwrap();
    let one = |flags| vec![file(folder.path(), flags)];
    for reply in [opened, || Reply::Abandoned(Abandoned {})] {
        refused("another answer", one(OFlags::RDONLY), reply, AskAs::Reader).await;
    }
    let writing = AskAs::Writer(WriteOptions::default());
    refused("another answer", one(OFlags::WRONLY), entry, writing).await;
    let path = || Reply::Entry(FileEntry { name: "../f".into(), ..FileEntry::default() });
    refused("a path", one(OFlags::RDONLY), path, AskAs::Reader).await;
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x00\x01\x00\x01", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x00"]
    {
        let dial = FakeDial::new(move |end: &mut End| {
            end.request();
            end.send(bytes);
            end.wait_for_end();
        });
        let guest = greet_with(&dial).await;
        assert_eq!(read(&guest).await.unwrap_err().code, ErrorCode::Internal, "{bytes:?}");
        drop(guest);
        dial.join();
    }
    let gone = FakeDial::new(|end: &mut End| drop(end.request()));
    assert_eq!(read(&greet_with(&gone).await).await.unwrap_err().code, ErrorCode::Unavailable);
    gone.join();
}

#[tokio::test]
async fn silence_has_an_end() {
    let dial = FakeDial::new(|end: &mut End| {
        end.request();
        // Half an answer, and no more.
        end.send(b"\x00\x00");
        end.wait_for_end();
    });
    let guest = greet_with(&dial).await;
    tokio::time::pause();
    assert_eq!(read(&guest).await.unwrap_err().code, ErrorCode::Timeout);
    assert_eq!(write(&guest, WriteOptions::default()).await.unwrap_err().code, ErrorCode::Timeout);
    drop(guest);
    dial.join();
}

/// Passes the file of a folder for every request to read.
fn giving(folder: &Path) -> Arc<FakeDial> {
    let folder = folder.to_owned();
    FakeDial::new(move |end: &mut End| {
        while end.try_request().is_some() {
            end.answer(entry(), &[file(&folder, OFlags::RDONLY).as_fd()]);
        }
    })
}

#[tokio::test]
async fn a_file_is_read_as_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(folder.path().join("f"), &data).unwrap();
    let dial = giving(folder.path());
    let guest = greet_with(&dial).await;
    let parts = [(0, 0), (0, 10), (5, 1_000_000), (1_599_999, 0), (1_599_990, 50), (1_600_000, 0)];
    for (offset, length) in parts {
        let reader = guest.read_file("f", offset as u64, length as u64).await.unwrap();
        let end = if length == 0 { data.len() } else { data.len().min(offset + length) };
        assert_eq!((reader.entry.size, reader.left()), (1_600_000, Some((end - offset) as u64)));
        assert!(reader.collect(1 << 24).await.unwrap() == data[offset..end], "{offset} {length}");
    }
    let beyond = guest.read_file("f", u64::MAX, 0).await.unwrap();
    assert_eq!(beyond.left(), Some(0));
    assert_eq!(beyond.collect(10).await.unwrap(), b"");
    assert_eq!(dial.dialled(), 1, "a connection serves one file after another");
    drop(guest);
    dial.join();
}

#[tokio::test]
async fn a_file_that_changes_on_the_way_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, vec![1; 2 << 20]).unwrap();
    let dial = giving(folder.path());
    let guest = greet_with(&dial).await;
    let mut reader = guest.read_file("f", 0, 0).await.unwrap();
    File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let mut bytes = 0;
    while let Some(piece) = reader.next().await.unwrap() {
        bytes += piece.len();
    }
    assert_eq!(bytes, 2 << 20, "what came later is not part of it");
    let mut reader = guest.read_file("f", 0, 0).await.unwrap();
    assert!(reader.next().await.unwrap().is_some());
    File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    let error = loop {
        match reader.next().await {
            Ok(piece) => assert!(piece.is_some(), "a short file must not look like a whole one"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Conflict, Some("path")));
    drop((reader, guest));
    dial.join();
}

#[tokio::test]
async fn a_file_is_written_and_then_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (told, seen) = mpsc::channel();
    let dial = FakeDial::new(move |end: &mut End| {
        while let Some(request) = end.try_request() {
            let reply = match &request {
                Request::Write(head) => {
                    let how = if head.append { OFlags::APPEND } else { OFlags::TRUNC };
                    let file = file(&path, OFlags::WRONLY | OFlags::CREATE | how);
                    end.answer(opened(), &[file.as_fd()]);
                    continue;
                }
                Request::Abandon(_) => Reply::Abandoned(Abandoned {}),
                _ => entry(),
            };
            let open = copies(path.join("f").to_str().unwrap());
            let content = std::fs::read(path.join("f")).unwrap();
            told.send((matches!(request, Request::Commit(_)), content, open)).unwrap();
            end.answer(reply, &[]);
        }
    });
    let guest = greet_with(&dial).await;
    let pieces = (0..3000u32).map(|n| Ok(Bytes::from(n.to_le_bytes().repeat(100))));
    let data: Vec<u8> = (0..3000u32).flat_map(|n| n.to_le_bytes().repeat(100)).collect();
    guest.write_file("f", WriteOptions::default(), stream::iter(pieces)).await.unwrap();
    assert!(seen.recv().unwrap() == (true, data.clone(), 0), "all is there and closed when it is committed");
    write(&guest, WriteOptions { append: true, ..WriteOptions::default() }).await.unwrap();
    assert!(seen.recv().unwrap() == (true, [&data[..], b"some bytes"].concat(), 0));
    guest.write_file("f", WriteOptions::default(), body(&[b"", b""])).await.unwrap();
    assert_eq!(seen.recv().unwrap(), (true, vec![], 0));
    let cut = Error::new(ErrorCode::Unavailable, "cut off");
    let broken = body(&[b"half"]).chain(stream::iter([Err(cut.clone())]));
    assert_eq!(guest.write_file("f", WriteOptions::default(), broken).await.unwrap_err(), cut);
    assert!(!seen.recv().unwrap().0, "what breaks off is abandoned");
    assert_eq!(dial.dialled(), 1);
    drop(guest);
    dial.join();
}

#[tokio::test]
async fn a_writer_that_is_dropped_closes_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (told, seen) = mpsc::channel();
    let dial = FakeDial::new(move |end: &mut End| {
        end.request();
        end.answer(opened(), &[file(&path, OFlags::WRONLY | OFlags::CREATE).as_fd()]);
        told.send(()).unwrap();
        assert!(end.try_request().is_none(), "neither committed nor abandoned");
    });
    let guest = greet_with(&dial).await;
    let endless = body(&[b"half"]).chain(stream::pending());
    let writing =
        tokio::spawn(async move { guest.write_file("f", WriteOptions::default(), endless).await.map(drop) });
    tokio::task::spawn_blocking(move || seen.recv().unwrap()).await.unwrap();
    writing.abort();
    assert!(writing.await.unwrap_err().is_cancelled());
    dial.join();
    all_closed("the file", folder.path().join("f").to_str().unwrap()).await;
}

#[tokio::test]
async fn a_connection_on_which_something_comes_unasked_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "content").unwrap();
    let path = folder.path().to_owned();
    let (told, seen) = mpsc::channel();
    let dial = FakeDial::new(move |end: &mut End| {
        end.request();
        let file = file(&path, OFlags::RDONLY);
        end.answer(entry(), &[file.as_fd()]);
        end.answer(entry(), &[file.as_fd()]);
        drop(file);
        told.send(()).unwrap();
        end.wait_for_end();
    });
    let guest = greet_with(&dial).await;
    for _ in 0..3 {
        assert_eq!(read(&guest).await.unwrap(), b"content");
        seen.recv().unwrap();
    }
    assert_eq!(dial.dialled(), 3);
    drop(guest);
    dial.join();
    all_closed("the file", folder.path().join("f").to_str().unwrap()).await;
}

#[tokio::test]
async fn without_descriptors_calls_are_used() {
    let dial = FakeDial::new(|_: &mut End| ());
    // The fake knows no call but Hello.
    let by_call = |error: Error| error.code == ErrorCode::Unsupported;
    let old = greet(&["another"]).await.with_descriptors(Arc::clone(&dial) as _);
    assert!(by_call(read(&old).await.unwrap_err()));
    assert!(by_call(write(&old, WriteOptions::default()).await.unwrap_err()));
    assert_eq!(dial.dialled(), 0, "PID 1 has not said that it can");
    let remote = greet(&["descriptors"]).await;
    assert!(by_call(read(&remote).await.unwrap_err()), "there is nobody to dial");
    let unreachable = greet(&["descriptors"]).await.with_descriptors(Arc::new(fake::NoDial));
    assert!(by_call(read(&unreachable).await.unwrap_err()), "there is no connection to be had");
}
