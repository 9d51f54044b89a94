//! PID 1 with a table of descriptors that is used up: by commands, by what callers read and write, and wholly.

use crate::{
    descriptors::Connection,
    files::{head, stat, write},
    support::*,
};
use atoll_guest_proto::v1::{
    AttachRequest, ExecRequest, ListDirRequest, ListExecsRequest, MakeDirRequest, MoveRequest,
    ReadFileRequest, RemoveRequest, StdinChunk, Terminal,
};
use atoll_types::{Error, ErrorCode};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::{
    fs,
    io::{Read, Write},
};
use tonic::Status;

/// Room for some commands and what they leave.
const ROOM: u64 = 120;

/// The PID 1 itself, which `unshare` has started once it answers.
fn pid_1(guest: &Guest) -> i32 {
    let unshare = guest.pid();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

fn descriptors(pid: i32) -> Vec<u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    all.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Lets it have this many descriptors from now on.
fn limit(pid: i32, most: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let new = Rlimit { current: Some(most), maximum };
    prlimit(Pid::from_raw(pid), Resource::Nofile, new).unwrap();
}

/// Leaves it none. What it has open for a moment meanwhile would be free again.
async fn fill(guest: &Guest, pid: i32) {
    eventually("a full table", async || {
        let open = descriptors(pid);
        let free = (0..).find(|number| !open.contains(number)).unwrap();
        limit(pid, free);
        guest.client.clone().stat(stat("there")).await.is_err()
    })
    .await;
}

async fn read(guest: &Guest, path: &str) -> Result<(), Status> {
    let request = ReadFileRequest { path: path.into(), offset: 0, length: 0 };
    guest.client.clone().read_file(request).await.map(drop)
}

async fn feed(guest: &Guest, id: &str, text: &'static str) {
    let chunk = StdinChunk { exec_id: id.into(), data: text.into(), close: true };
    guest.client.clone().write_stdin(tokio_stream::iter([chunk])).await.unwrap();
}

/// A command that says what it is told, and has said nothing yet.
async fn waiting(guest: &Guest) -> Result<String, Status> {
    let request = ExecRequest { stdin: true, ..sh("read line; echo \"$line\"; echo \"$line\" >&2") };
    let id = request.exec_id.clone();
    guest.client.clone().start_exec(request).await.map(|_| id)
}

fn too_many_commands(error: &Error) {
    assert_eq!(error.code, ErrorCode::Conflict, "{error:?}");
    let words = ["too many commands", "kill a command", "stop and resume"];
    assert!(words.iter().all(|word| error.message.contains(word)), "{error:?}");
}

fn too_many_files(error: &Error) {
    assert_eq!(error.code, ErrorCode::LimitExceeded, "{error:?}");
    assert!(error.message.contains("too many") && error.message.contains("open"), "{error:?}");
}

#[tokio::test]
async fn commands_and_callers_leave_what_pid_1_needs() {
    let guest = Guest::as_pid_1(config()).await;
    write(&guest, head("there"), &[b"needle"]).await.unwrap();
    let pid = pid_1(&guest);
    limit(pid, descriptors(pid).len() as u64 + ROOM);
    // As many commands as may be.
    let mut commands = Vec::new();
    let refused = loop {
        match waiting(&guest).await {
            Ok(id) => commands.push(id),
            refused => break error(refused),
        }
    };
    too_many_commands(&refused);
    assert!(commands.len() > 3, "{}", commands.len());
    // As many files on their way as may be, from callers that do not write.
    let (mut connections, mut files) = (Vec::new(), Vec::new());
    let refused = loop {
        let mut connection = Connection::new(&guest);
        let begun = connection.begin(head(&format!("file-{}", files.len())));
        connections.push(connection);
        match begun {
            Ok(file) => files.push(file),
            Err(refused) => break refused,
        }
    };
    too_many_files(&refused);
    assert!(files.len() > 3, "{}", files.len());
    too_many_files(&error(read(&guest, "there").await));
    too_many_files(&error(write(&guest, head("new"), &[b"x"]).await));
    let list = async || guest.client.clone().list_dir(ListDirRequest { path: ".".into() }).await;
    too_many_files(&error(list().await));
    // What takes a moment goes on as ever, and so does the output of what runs.
    let mut client = guest.client.clone();
    client.stat(stat("there")).await.unwrap();
    client.make_dir(MakeDirRequest { path: "folder".into(), parents: false, mode: 0 }).await.unwrap();
    let moved = MoveRequest { from: "folder".into(), to: "moved".into(), overwrite: false };
    client.r#move(moved).await.unwrap();
    client.remove(RemoveRequest { path: "moved".into(), recursive: true }).await.unwrap();
    for id in &commands {
        feed(&guest, id, "said\n").await;
    }
    for id in &commands {
        eventually("its end", async || {
            let info = guest.client.clone().get_exec(reference(id)).await.unwrap().into_inner();
            info.exit_code == Some(0)
        })
        .await;
    }
    drop((connections, files));
    eventually("room for a reader", async || list().await.is_ok()).await;
    for id in &commands {
        let seen = guest.attach(id, 0, true).await;
        assert_eq!((seen.stdout().as_str(), seen.stderr().as_str()), ("said\n", "said\n"), "nothing is lost");
    }
    assert_eq!(guest.output("echo well").await, "well");
}

#[tokio::test]
async fn pid_1_without_any_descriptor_answers_and_recovers() {
    let guest = Guest::as_pid_1(config()).await;
    write(&guest, head("there"), &[b"needle"]).await.unwrap();
    let pid = pid_1(&guest);
    let (quiet, loud) = (waiting(&guest).await.unwrap(), sh("echo before; sleep 1000"));
    let loud_id = loud.exec_id.clone();
    let mut client = guest.client.clone();
    client.start_exec(loud).await.unwrap();
    eventually("its output", async || guest.attach(&loud_id, 0, false).await.stdout() == "before\n").await;
    let lost = sh("setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid; sleep 1000");
    let lost_id = lost.exec_id.clone();
    let started = client.start_exec(lost).await.unwrap().into_inner();
    eventually("its file", async || client.stat(stat("pid")).await.is_ok_and(|e| e.get_ref().size > 1)).await;
    fill(&guest, pid).await;
    // Every request has an answer of its own that says what is lacking.
    too_many_commands(&error(client.start_exec(sh("true")).await));
    let on_terminal = ExecRequest { terminal: Some(Terminal { rows: 24, columns: 80 }), ..sh("true") };
    too_many_commands(&error(client.start_exec(on_terminal).await));
    too_many_files(&error(client.stat(stat("there")).await));
    too_many_files(&error(read(&guest, "there").await));
    too_many_files(&error(write(&guest, head("new"), &[b"x"]).await));
    too_many_files(&error(client.list_dir(ListDirRequest { path: ".".into() }).await.map(|_| ())));
    let request = MakeDirRequest { path: "folder".into(), parents: false, mode: 0 };
    too_many_files(&error(client.make_dir(request).await));
    let request = MoveRequest { from: "there".into(), to: "moved".into(), overwrite: false };
    too_many_files(&error(client.r#move(request).await));
    let request = RemoveRequest { path: "there".into(), recursive: false };
    too_many_files(&error(client.remove(request).await));
    let request = AttachRequest { exec_id: loud_id.clone(), from: 0, follow: false };
    let mut events = client.attach(request).await.unwrap().into_inner();
    let failed = loop {
        match events.message().await {
            Ok(event) => assert!(event.is_some(), "it ended without a word of the output that was there"),
            failed => break error(failed),
        }
    };
    too_many_files(&failed);
    // What needs none is done: lists, input, and a kill.
    assert_eq!(client.list_execs(ListExecsRequest {}).await.unwrap().into_inner().execs.len(), 3);
    feed(&guest, &quiet, "said\n").await;
    eventually("its end", async || {
        client.get_exec(reference(&quiet)).await.unwrap().into_inner().exit_code == Some(0)
    })
    .await;
    client.kill_exec(reference(&loud_id)).await.unwrap();
    // A shim that is killed meanwhile: its command is killed when there is a descriptor to look with.
    let shim = {
        let status = fs::read_to_string(format!("/proc/{pid}/root/proc/{}/status", started.pid)).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
        let host = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let inside = |host: &&str| {
            let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap();
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap().to_owned();
            ids.split_whitespace().last() == Some(parent.as_str())
        };
        host.split_whitespace().find(inside).unwrap().parse().unwrap()
    };
    rustix::process::kill_process(Pid::from_raw(shim).unwrap(), rustix::process::Signal::KILL).unwrap();
    eventually("the loss of its shim", async || {
        client.get_exec(reference(&lost_id)).await.unwrap().into_inner().signal == Some(libc::SIGKILL)
    })
    .await;
    // A connection that it cannot take waits.
    let mut later = guest.dial();
    limit(pid, 256);
    const SETTINGS: &[u8; 9] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    later.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), SETTINGS].concat()).unwrap();
    later.read_exact(&mut [0; 9]).unwrap();
    client.kill_exec(reference(&lost_id)).await.unwrap();
    assert_eq!(guest.output("kill -0 $(cat pid) 2>/dev/null || echo gone").await, "gone");
    assert_eq!(guest.output("cat there").await, "needle");
    assert_eq!(client.stat(stat("there")).await.unwrap().into_inner().size, 6);
}
