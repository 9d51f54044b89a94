//! Files that pass as descriptors: the same rights, the same errors and the same all or nothing as when
//! their bytes pass.

use crate::{files::head, support::*};
use atoll_guest_proto::{
    DESCRIPTOR_MAGIC, from_failure, from_frame, to_frame,
    v1::{
        Abandon, Commit, DescriptorReply, DescriptorRequest, FileEntry, HelloRequest, ReadFileRequest,
        WriteHead, descriptor_reply::Reply, descriptor_request::Request,
    },
};
use atoll_types::{Error, ErrorCode};
use rustix::{
    fs::{OFlags, fcntl_getfl},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{
    fs::File,
    io::{IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

pub(crate) struct Connection(UnixStream);

impl Connection {
    pub(crate) fn new(guest: &Guest) -> Self {
        let mut stream = guest.dial();
        stream.write_all(&DESCRIPTOR_MAGIC).unwrap();
        Self(stream)
    }

    fn send(&mut self, request: Request) {
        self.0.write_all(&to_frame(&DescriptorRequest { request: Some(request) })).unwrap();
    }

    fn receive(&mut self) -> (Reply, Option<File>) {
        let mut header = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut header)], &mut control, flags).unwrap();
        assert_eq!(got.bytes, header.len());
        let mut passed: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                passed.extend(files);
            }
        }
        assert!(passed.len() <= 1);
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        self.0.read_exact(&mut body).unwrap();
        (from_frame::<DescriptorReply>(&body).unwrap().reply.unwrap(), passed.pop().map(File::from))
    }

    fn ask(&mut self, request: Request) -> Result<(Reply, Option<File>), Error> {
        self.send(request);
        match self.receive() {
            (Reply::Failure(failure), None) => Err(from_failure(&failure)),
            answer => Ok(answer),
        }
    }

    fn open(&mut self, path: &str) -> Result<(FileEntry, File), Error> {
        match self.ask(Request::Read(ReadFileRequest { path: path.into(), offset: 0, length: 0 }))? {
            (Reply::Entry(entry), Some(file)) => Ok((entry, file)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn begin(&mut self, head: WriteHead) -> Result<File, Error> {
        match self.ask(Request::Write(head))? {
            (Reply::Opened(_), Some(file)) => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self) -> Result<FileEntry, Error> {
        match self.ask(Request::Commit(Commit {}))? {
            (Reply::Entry(entry), None) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, head: WriteHead, bytes: &[u8]) -> Result<FileEntry, Error> {
        self.begin(head)?.write_all(bytes).unwrap();
        self.commit()
    }

    /// Whether the other end has closed it.
    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

async fn nothing_left(guest: &Guest) {
    eventually("nothing is left", async || guest.output("ls -A").await.is_empty()).await;
}

#[tokio::test]
async fn an_open_file_is_passed_with_its_entry() {
    let guest = Guest::start().await;
    guest
        .output(
            "head -c 3000000 /dev/urandom > big; chmod 600 big; mkdir d; mkfifo pipe; ln -s /etc/passwd out",
        )
        .await;
    let mut connection = Connection::new(&guest);
    let (entry, mut file) = connection.open("big").unwrap();
    assert_eq!((entry.name.as_str(), entry.size, entry.mode, entry.uid), ("big", 3_000_000, 0o600, 1000));
    assert_eq!(fcntl_getfl(&file).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes == std::fs::read(guest.path("/workspace/big")).unwrap());
    // The same errors as a call has, one after another on one connection.
    for (path, code) in [
        ("nothing", ErrorCode::NotFound),
        ("d", ErrorCode::IsADirectory),
        ("pipe", ErrorCode::SpecialFile),
        ("out", ErrorCode::PathOutsideRoot),
        ("/dev/null", ErrorCode::SpecialFile),
        ("/proc/self/environ", ErrorCode::PermissionDenied),
        ("", ErrorCode::InvalidArgument),
    ] {
        let error = connection.open(path).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (code, Some("path")), "{path}");
    }
    guest.output("chmod 000 big").await;
    assert_eq!(connection.open("big").unwrap_err().code, ErrorCode::PermissionDenied);
}

#[tokio::test]
async fn what_is_written_gets_its_name_by_commit() {
    let guest = Guest::start().await;
    let mut connection = Connection::new(&guest);
    let mut file = connection.begin(WriteHead { mode: 0o750, ..head("f") }).unwrap();
    assert_eq!(fcntl_getfl(&file).unwrap() & OFlags::RWMODE, OFlags::WRONLY);
    file.write_all(b"some bytes").unwrap();
    drop(file);
    assert!(!guest.path("/workspace/f").exists());
    let entry = connection.commit().unwrap();
    assert_eq!((entry.name.as_str(), entry.size, entry.mode, entry.uid), ("f", 10, 0o750, 1000));
    assert_eq!(guest.output("stat -c '%U %a' f; cat f; ls -A").await, "user 750\nsome bytesf");
    let exclusive = connection.begin(WriteHead { exclusive: true, ..head("f") }).unwrap_err();
    assert_eq!(exclusive.code, ErrorCode::AlreadyExists);
    assert_eq!(connection.begin(head("a/b/f")).unwrap_err().code, ErrorCode::NotFound);
    connection.write(WriteHead { create_parents: true, ..head("a/b/f") }, b"deep").unwrap();
    let file = connection.begin(WriteHead { append: true, ..head("f") }).unwrap();
    assert!(fcntl_getfl(&file).unwrap().contains(OFlags::APPEND));
    (&file).write_all(b", and more").unwrap();
    assert_eq!(connection.commit().unwrap().size, 20);
    assert_eq!(connection.write(head("f"), b"").unwrap().mode, 0o750, "its mode stays");
    assert_eq!(guest.output("stat -c '%U %a %s' f a/b/f").await, "user 750 0\nuser 644 4");
    // Somebody else was faster.
    connection.begin(WriteHead { exclusive: true, ..head("g") }).unwrap();
    guest.output("echo theirs > g").await;
    assert_eq!(connection.commit().unwrap_err().code, ErrorCode::AlreadyExists);
    assert_eq!(guest.output("cat g; ls -A").await, "theirs\na\nf\ng");
}

#[tokio::test]
async fn what_is_not_committed_leaves_nothing() {
    let guest = Guest::start().await;
    let mut connection = Connection::new(&guest);
    connection.begin(head("f")).unwrap().write_all(b"half").unwrap();
    assert!(guest.output("ls -A").await.starts_with(".atoll-"));
    let abandoned = connection.ask(Request::Abandon(Abandon {})).unwrap();
    assert!(matches!(abandoned, (Reply::Abandoned(_), None)));
    assert_eq!(guest.output("ls -A").await, "");
    connection.begin(head("f")).unwrap().write_all(b"half").unwrap();
    drop(connection);
    nothing_left(&guest).await;
    // A process that still has the descriptor can only fill a file without a name.
    let mut connection = Connection::new(&guest);
    let mut file = connection.begin(head("f")).unwrap();
    drop(connection);
    nothing_left(&guest).await;
    file.write_all(b"too late").unwrap();
    assert_eq!(guest.output("ls -A").await, "");
}

#[tokio::test]
async fn requests_that_do_not_fit_undo_what_was_begun() {
    let guest = Guest::start().await;
    let mut connection = Connection::new(&guest);
    assert_eq!(connection.commit().unwrap_err().code, ErrorCode::InvalidArgument);
    let abandon = connection.ask(Request::Abandon(Abandon {})).unwrap_err();
    assert_eq!(abandon.field.as_deref(), Some("request"));
    for request in [Request::Write(head("g")), Request::Read(ReadFileRequest::default())] {
        connection.begin(head("f")).unwrap();
        assert_eq!(connection.ask(request).unwrap_err().code, ErrorCode::InvalidArgument);
        assert_eq!(connection.commit().unwrap_err().code, ErrorCode::InvalidArgument);
        nothing_left(&guest).await;
    }
    connection.write(head("f"), b"x").unwrap();
    guest.output("rm f").await;
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x00\x01\x00\x01", b"\x00\x00\x00\x03\xff\xff\xff"] {
        let mut connection = Connection::new(&guest);
        connection.begin(head("f")).unwrap();
        connection.0.write_all(bytes).unwrap();
        assert!(connection.is_closed(), "{bytes:?}");
        nothing_left(&guest).await;
    }
}

#[tokio::test]
async fn a_request_that_stalls_halfway_holds_nobody() {
    let guest = Guest::start().await;
    // In the middle of the first bytes, of a length, and of a message.
    let mut first = guest.dial();
    first.write_all(&DESCRIPTOR_MAGIC[..3]).unwrap();
    let mut second = Connection::new(&guest);
    second.begin(head("f")).unwrap();
    second.0.write_all(&[0, 0]).unwrap();
    let mut third = Connection::new(&guest);
    let frame = to_frame(&DescriptorRequest { request: Some(Request::Write(head("g"))) });
    third.0.write_all(&frame[..frame.len() - 1]).unwrap();
    let mut other = Connection::new(&guest);
    other.write(head("h"), b"whole").unwrap();
    assert_eq!(guest.output("cat h").await, "whole");
    // Each goes on where it stopped.
    first.write_all(&DESCRIPTOR_MAGIC[3..]).unwrap();
    assert_eq!(Connection(first).open("h").unwrap().0.size, 5);
    third.0.write_all(&frame[frame.len() - 1..]).unwrap();
    assert!(matches!(third.receive(), (Reply::Opened(_), Some(_))));
    assert_eq!(third.commit().unwrap().name, "g");
    drop(second);
    eventually("the stalled one is undone", async || guest.output("ls -A").await == "g\nh").await;
}

#[tokio::test]
async fn it_is_announced_where_descriptors_can_pass() {
    let guest = Guest::start().await;
    let hello = HelloRequest { min_protocol: 1, max_protocol: 1 };
    let reply = guest.client.clone().hello(hello).await.unwrap().into_inner();
    assert!(reply.features.contains(&"descriptors".to_string()));
    // Whatever else a connection begins with is for calls, which close on what they do not understand.
    let mut stream = guest.dial();
    stream.write_all(b"ATOLLFD2 and more of it, so that it is longer than a preface").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(guest.output("echo alive").await, "alive");
}

#[tokio::test]
async fn many_open_uploads_hold_no_thread() {
    let guest = Guest::start().await;
    let mut connections: Vec<_> = (0..100).map(|_| Connection::new(&guest)).collect();
    for (n, connection) in connections.iter_mut().enumerate() {
        connection.begin(head(&format!("f{n}"))).unwrap().write_all(b"x").unwrap();
    }
    assert_eq!(guest.output("ls -A | wc -l").await, "100");
    for connection in connections.iter_mut().skip(50) {
        connection.commit().unwrap();
    }
    drop(connections);
    eventually("half of them are there", async || guest.output("ls -A | wc -l").await == "50").await;
    assert_eq!(guest.output("ls -A | grep -c atoll || true").await, "0");
}
