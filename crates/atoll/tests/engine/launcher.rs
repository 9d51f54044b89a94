//! The launcher as its clients meet it: who may ask, and that no client keeps another waiting.

use super::fixture::{Instance, data_folder, eventually, leftovers_of, options, says, spec};
use atoll_launch_proto::{
    Envelope, Family, HEADER, LauncherAnswer, LauncherReply, MAX_PROTOCOL, MAX_REQUEST, Request,
    SocketsRequest, decode, encode, frame_length,
};
use atoll_provider::Provider;
use atoll_provider_native::{LaunchOptions, NativeProvider, Started, ensure_launcher};
use atoll_types::ErrorCode;
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::Command,
    time::Duration,
};

fn exchange(stream: &mut UnixStream, frame: &[u8]) -> Option<LauncherAnswer> {
    stream.write_all(frame).ok()?;
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).ok()?;
    let mut body = vec![0; frame_length(header, 1 << 20).unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some(decode(&body).unwrap())
}

#[tokio::test]
async fn a_slow_client_delays_nobody() {
    let instance = Instance::start().await;
    // Clients that connect and say nothing, or half of something.
    let silent: Vec<UnixStream> = (0..50)
        .map(|n| {
            let mut stream = UnixStream::connect(instance.layout.socket()).unwrap();
            stream.write_all(&[0, 0, 1, 0, b'{'][..n % 6]).unwrap();
            stream
        })
        .collect();
    let c = instance.container("default").await;
    assert_eq!(says(&c, "echo hello").await, "hello");
    drop(silent);
}

#[tokio::test]
async fn hostile_bytes_get_an_error_and_change_nothing() {
    let instance = Instance::start().await;
    let good = encode(&Envelope { protocol: MAX_PROTOCOL, request: Request::List }, MAX_REQUEST).unwrap();
    let mut newer = Envelope { protocol: 999, request: Request::List };
    let cases: Vec<(Vec<u8>, ErrorCode)> = vec![
        (b"\0\0\0\x04null".to_vec(), ErrorCode::InvalidArgument),
        (b"\0\0\0\x02{}".to_vec(), ErrorCode::InvalidArgument),
        (b"\0\0\0\0".to_vec(), ErrorCode::InvalidArgument),
        (b"\xff\xff\xff\xff".to_vec(), ErrorCode::InvalidArgument),
        ([b"\0\0\0\x10".as_slice(), &[b'['; 16]].concat(), ErrorCode::InvalidArgument),
        (encode(&newer, MAX_REQUEST).unwrap(), ErrorCode::VersionMismatch),
        (b"\0\0\0\x20{\"protocol\":999,\"request\":\"new\"}".to_vec(), ErrorCode::VersionMismatch),
        (b"\0\0\0\x1e{\"protocol\":2,\"request\":\"new\"}".to_vec(), ErrorCode::InvalidArgument),
    ];
    for (bytes, code) in cases {
        let mut stream = UnixStream::connect(instance.layout.socket()).unwrap();
        match exchange(&mut stream, &bytes) {
            Some(LauncherAnswer::Err(error)) => assert_eq!(error.code, code, "{bytes:?}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
    // A client that is too new can still ask for the launcher's protocol.
    newer.request = Request::Hello;
    let mut stream = UnixStream::connect(instance.layout.socket()).unwrap();
    let hello = exchange(&mut stream, &encode(&newer, MAX_REQUEST).unwrap());
    assert!(
        matches!(hello, Some(LauncherAnswer::Ok(LauncherReply::Hello(l))) if l.max_protocol == MAX_PROTOCOL)
    );
    let mut stream = UnixStream::connect(instance.layout.socket()).unwrap();
    assert_eq!(exchange(&mut stream, &good), Some(LauncherAnswer::Ok(LauncherReply::Containers(vec![]))));
}

/// Connects as another user and prints how many bytes come back to a Hello.
fn knock_as(uid: u32, instance: &Instance) -> usize {
    let frame = encode(&Envelope { protocol: 1, request: Request::Hello }, MAX_REQUEST).unwrap();
    let program = format!(
        "import os,socket\nos.setgid({uid}); os.setuid({uid})\ns=socket.socket(socket.AF_UNIX)\ns.connect({:?})\n\
         try:\n  s.sendall(bytes({frame:?})); print(len(s.recv(4096)))\nexcept OSError: print(0)",
        instance.layout.socket()
    );
    let ran = Command::new("/usr/bin/python3").args(["-c", &program]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn only_named_users_may_give_orders() {
    let instance = Instance::start_with(&["--client-uid", "4242"]).await;
    assert!(knock_as(4242, &instance) > 0);
    assert_eq!(knock_as(4243, &instance), 0);
    assert_eq!(knock_as(65534, &instance), 0);
}

#[tokio::test]
async fn a_second_launcher_finds_the_first() {
    let instance = Instance::start().await;
    let pids = instance.launcher_pids();
    assert_eq!(pids.len(), 2, "a monitor and a launcher");
    let again = ensure_launcher(&options(instance.data(), &[])).await.unwrap();
    assert!(!again.new);
    // Even when it is started by hand.
    let helper = std::path::Path::new(env!("CARGO_BIN_EXE_atoll")).with_file_name("atoll-launch");
    let ran = Command::new(helper).arg("--data-dir").arg(instance.data()).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"running\n"[..]));
    assert_eq!(instance.launcher_pids(), pids);
}

/// Commands that follow one another find a launcher that is about to end; a busy machine makes them slow.
#[tokio::test]
async fn an_ephemeral_launcher_waits_for_the_container_of_its_caller() {
    let folder = data_folder(&std::env::temp_dir());
    let options = LaunchOptions { ephemeral: true, ..options(folder.path(), &[]) };
    let create = async |started: Started| {
        tokio::time::sleep(Duration::from_millis(600)).await;
        let made = NativeProvider::new(started.client).create_held(spec("default")).await.unwrap();
        drop(started.visit);
        made
    };
    let first = ensure_launcher(&options).await.unwrap();
    assert!(first.new);
    let container = create(first).await;
    let second = ensure_launcher(&options).await.unwrap();
    assert!(!second.new);
    // The launcher has no work now, but a visitor.
    drop(container);
    drop(create(second).await);
    eventually("the end of the launcher", || leftovers_of(folder.path()).is_empty());
}

#[tokio::test]
async fn the_launcher_has_no_network_and_one_thread() {
    let instance = Instance::start().await;
    let _c = instance.provider.create(spec("default")).await.unwrap();
    for pid in instance.launcher_pids() {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        assert_eq!(threads, 1);
        let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .flatten()
            .filter_map(|e| std::fs::read_link(e.path()).ok()?.to_str().map(str::to_owned))
            .filter_map(|link| link.strip_prefix("socket:[").map(|s| s.trim_end_matches(']').to_owned()))
            .collect();
        for table in ["tcp", "tcp6", "udp", "udp6", "raw", "packet", "netlink"] {
            let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            for line in table.lines() {
                assert!(line.split_whitespace().all(|field| !sockets.contains(&field.to_owned())), "{line}");
            }
        }
    }
}

#[tokio::test]
async fn sockets_are_of_the_containers_network_and_of_a_bounded_number() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let asked = |container, count| Request::Sockets(SocketsRequest { container, family: Family::V4, count });
    for count in [0, 33, 255] {
        let error = instance.client.ask(asked(c.id(), count)).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("count")));
    }
    for count in [1, 32] {
        assert_eq!(instance.client.ask(asked(c.id(), count)).await, Ok(LauncherReply::Sockets { count }));
    }
    let nobodys = atoll_types::ContainerId::random();
    assert_eq!(instance.client.ask(asked(nobodys, 1)).await.unwrap_err().code, ErrorCode::NotFound);
    // A number that has become another process's opens nothing, and least of all the machine's network.
    let path = instance.layout.run().join("c").join(c.id().to_string()).join("record.json");
    let kept = std::fs::read_to_string(&path).unwrap();
    let pid = instance.pid_of(&c);
    let us = std::process::id();
    std::fs::write(&path, kept.replace(&format!("\"pid\":{pid},"), &format!("\"pid\":{us},"))).unwrap();
    let error = instance.client.ask(asked(c.id(), 1)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ContainerDied, "{error:?}");
    std::fs::write(&path, kept).unwrap();
    assert_eq!(instance.client.ask(asked(c.id(), 1)).await, Ok(LauncherReply::Sockets { count: 1 }));
}

#[tokio::test]
async fn a_request_with_descriptors_is_refused_and_they_are_closed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let instance = Instance::start().await;
    let good = encode(&Envelope { protocol: MAX_PROTOCOL, request: Request::List }, MAX_REQUEST).unwrap();
    for at in [0, HEADER, good.len() - 1] {
        let mut stream = UnixStream::connect(instance.layout.socket()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        stream.write_all(&good[..at]).unwrap();
        let fds = [std::os::fd::AsFd::as_fd(&theirs)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let rest = [std::io::IoSlice::new(&good[at..])];
        sendmsg(&stream, &rest, &mut control, SendFlags::empty()).unwrap();
        match exchange(&mut stream, &[]) {
            Some(LauncherAnswer::Err(error)) => assert_eq!(error.code, ErrorCode::InvalidArgument),
            other => panic!("{other:?}"),
        }
        drop(theirs);
        // Nobody holds the other end any more.
        let mut byte = [0];
        assert_eq!((&ours).read(&mut byte).unwrap(), 0);
    }
}
