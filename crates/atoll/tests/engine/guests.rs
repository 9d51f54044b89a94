//! Commands and files through the whole stack; the finer points are the guest's own tests.

use super::fixture::{Instance, says, shell};
use atoll_provider::{Command, EntryKind, ExecEvent, OutputStream, WriteOptions};
use atoll_types::{ErrorCode, ExecId};
use bytes::Bytes;
use futures_util::stream;

#[tokio::test]
async fn output_can_be_joined_at_any_offset_by_anyone() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let id = ExecId::random();
    c.guest()
        .start(id, &Command::shell("for i in $(seq 1000); do echo line $i; done; echo end >&2"))
        .await
        .unwrap();
    let collect = async |from: u64| {
        let mut events = c.guest().attach(id, from, true).await.unwrap();
        let (mut all, mut next) = (Vec::new(), from);
        while let Some(event) = events.next().await.unwrap() {
            if let ExecEvent::Output { offset, data, .. } = event {
                assert_eq!(offset, next);
                next += data.len() as u64;
                all.extend_from_slice(&data);
            }
        }
        all
    };
    let whole = collect(0).await;
    // Each output is in its own order; between the two pipes there is none to keep.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut events = c.guest().attach(id, 0, true).await.unwrap();
    while let Some(event) = events.next().await.unwrap() {
        match event {
            ExecEvent::Output { stream: OutputStream::Stdout, data, .. } => stdout.extend_from_slice(&data),
            ExecEvent::Output { stream: OutputStream::Stderr, data, .. } => stderr.extend_from_slice(&data),
            _ => {}
        }
    }
    let lines: String = (1..=1000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(
        (stdout, stderr, whole.len()),
        (lines.clone().into_bytes(), b"end\n".to_vec(), lines.len() + 4)
    );
    for from in [1, 7, 4000, whole.len() as u64] {
        assert_eq!(collect(from).await, &whole[usize::try_from(from).unwrap()..]);
    }
    assert_eq!(c.guest().get_exec(id).await.unwrap().output_bytes, whole.len() as u64);
    c.guest().forget_exec(id).await.unwrap();
    assert_eq!(c.guest().get_exec(id).await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn the_same_id_starts_once() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let id = ExecId::random();
    for _ in 0..3 {
        c.guest().start(id, &Command::shell("echo once >> /workspace/log; sleep 0.2")).await.unwrap();
    }
    let mut events = c.guest().attach(id, 0, true).await.unwrap();
    while events.next().await.unwrap().is_some() {}
    assert_eq!(says(&c, "cat /workspace/log").await, "once");
}

#[tokio::test]
async fn killing_a_command_kills_what_it_started() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let id = ExecId::random();
    let line =
        "for i in $(seq 30); do (setsid sh -c '(sleep 5555 &) ; sleep 5555' &); done; echo up; sleep 5555";
    let mut events = c.guest().exec(id, &Command::shell(line)).await.unwrap();
    while !matches!(events.next().await.unwrap(), Some(ExecEvent::Output { .. })) {}
    let report = c.guest().kill(id).await.unwrap();
    assert!(report.killed && report.signal == Some(9), "{report:?}");
    assert_eq!(says(&c, "pgrep -fc '[s]leep 5555' || true").await, "0");
}

#[tokio::test]
async fn fifty_at_once() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let all = (0..50).map(|n| {
        let c = std::sync::Arc::clone(&c);
        async move { (n, shell(&c, &format!("sleep 0.2; echo {n}; exit {n}")).await) }
    });
    for (n, finished) in futures_util::future::join_all(all).await {
        assert_eq!((finished.report.exit_code, finished.stdout), (Some(n), format!("{n}\n").into_bytes()));
    }
}

#[tokio::test]
async fn paths_stay_inside_and_special_files_are_named() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    says(&c, "cd /workspace; ln -s /etc/passwd out; ln -s ../../etc up; mkfifo pipe; mkdir d; ln -s d in; echo hi > d/f").await;
    let g = c.guest();
    let read = async |path: &str| match g.read_file(path, 0, 0).await {
        Ok(reader) => Ok(reader.collect(1 << 20).await.unwrap()),
        Err(error) => Err(error.code),
    };
    assert_eq!(read("in/f").await, Ok(b"hi\n".to_vec()), "a link that stays inside is followed");
    assert_eq!(read("/workspace/d/f").await, Ok(b"hi\n".to_vec()));
    for path in ["out", "up/passwd", "../etc/passwd", "/workspace/../etc/passwd"] {
        assert_eq!(read(path).await, Err(ErrorCode::PathOutsideRoot), "{path}");
    }
    for path in ["pipe", "/dev/null", "/dev/zero"] {
        assert_eq!(read(path).await, Err(ErrorCode::SpecialFile), "{path}");
    }
    for path in ["/proc/1/environ", "/proc/self/environ", "/sys/kernel/notes"] {
        assert!(read(path).await.is_err(), "{path}");
    }
    assert_eq!(read("d").await, Err(ErrorCode::IsADirectory));
    assert_eq!(read("nothing").await, Err(ErrorCode::NotFound));
    assert_eq!(read("/etc/os-release").await.map(|b| b.is_empty()), Ok(false), "the image can be read");
    let entries = g.list_dir("/workspace").await.unwrap();
    let kind = |name: &str| entries.iter().find(|e| e.name == name).map(|e| e.kind);
    assert_eq!(
        (kind("out"), kind("pipe"), kind("d")),
        (Some(EntryKind::Symlink), Some(EntryKind::Other), Some(EntryKind::Directory))
    );
    let write = async |path: &str| {
        let body = stream::iter([Ok(Bytes::from_static(b"x"))]);
        g.write_file(path, WriteOptions::default(), body).await.map_err(|e| e.code)
    };
    assert_eq!(write("up/x").await.err(), Some(ErrorCode::PathOutsideRoot));
    assert_eq!(write("/usr/x").await.err(), Some(ErrorCode::ReadOnly));
    assert!(write("/tmp/x").await.is_ok());
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let body = stream::iter([
        Ok(Bytes::from(vec![1; 100_000])),
        Err(atoll_types::Error::new(ErrorCode::Unavailable, "the client went away")),
    ]);
    let error = c.guest().write_file("half", WriteOptions::default(), body).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    for _ in 0..200 {
        if says(&c, "ls -A /workspace").await.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("left: {}", says(&c, "ls -A /workspace").await);
}
