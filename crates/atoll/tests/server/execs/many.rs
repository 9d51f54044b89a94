//! Much output, and many commands.

use super::{Server, ended, events::Events, info, shell, start};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{
    io::{BufRead, Read},
    thread,
};

const GIB: u64 = 1 << 30;
/// Lines of 64 bytes, so that every offset says what must be there. Made of blocks, because one by one they
/// would take the test's time.
const PRINT: &str = "import sys
block = b''.join(b'A' * 59 + b'%04d\\n' % i for i in range(10000))
left, k = 1 << 30, 0
while left:
  piece = block.replace(b'A' * 59, b'%059d' % k)[:left]
  sys.stdout.buffer.write(piece)
  left, k = left - len(piece), k + 1";

/// The most memory that a process ever had, in bytes.
fn peak(pid: impl std::fmt::Display) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Checks lines at an offset, as long as they are.
fn check(offset: u64, data: &[u8]) {
    for (at, byte) in data.iter().enumerate().step_by(997) {
        let place = offset + at as u64;
        let line = format!("{:063}\n", place / 64);
        assert_eq!(*byte, line.as_bytes()[(place % 64) as usize], "at {place}");
    }
}

/// Ends the wait of commands that each read a line of the fifo `go`, also of those that open it only later: the
/// lines stay in it as long as this command runs.
fn release(server: &Server, path: &str, commands: usize) -> String {
    start(server, path, shell(&format!("exec 3<>/workspace/go; seq {commands} >&3; exec sleep 1000")))
}

fn print_all() -> Value {
    json!({ "arguments": ["python3", "-c", PRINT], "timeout_seconds": 600 })
}

#[test]
fn a_gibibyte_in_the_background_leaves_its_end() {
    let server = Server::start();
    let path = server.create(r#"{"cpu_cores":2}"#);
    let exec = start(&server, &path, print_all());
    // As long as it takes: a machine may be slow.
    while info(&server, &exec)["status"] == "running" {
        thread::sleep(std::time::Duration::from_millis(100));
    }
    let over = info(&server, &exec);
    let first = over["first_offset"].as_u64().unwrap();
    assert_eq!(
        (&over["exit_code"], &over["output_bytes"], &over["dropped_bytes"]),
        (&0.into(), &GIB.into(), &0.into())
    );
    let kept = GIB - first;
    assert!((32 << 20..=64 << 20).contains(&kept), "{kept} bytes were kept");
    let raw = server.ask("GET", &format!("{exec}/output?format=raw"), "");
    assert_eq!(raw.header("x-atoll-offset"), Some(first.to_string().as_str()));
    assert_eq!(raw.header("x-atoll-dropped"), Some(first.to_string().as_str()));
    assert_eq!(raw.body.len() as u64, kept);
    check(first, &raw.body);
    let mut events = Events::follow(&server, &exec, 100);
    events.next().unwrap();
    let (id, gap) = events.next().unwrap();
    assert_eq!((id, gap), (first, json!({ "type": "dropped", "offset": 100, "bytes": first - 100 })));
    assert!(peak(server.pid_1(&path)) < 40 << 20, "PID 1 had {}", peak(server.pid_1(&path)));
    assert!(peak(server.child.id()) < 200 << 20, "the server had {}", peak(server.child.id()));
}

#[test]
fn a_gibibyte_streamed_arrives_or_is_said_to_be_missing() {
    let server = Server::start();
    let path = server.create(r#"{"cpu_cores":2}"#);
    let mut body = print_all();
    body["stream"] = true.into();
    let mut reader = Events::open(&server, "POST", &format!("{path}/exec"), &[], &body.to_string()).raw();
    // Parsing a gibibyte of JSON would take the test's time, so an event is looked at by its ends.
    let (mut next, mut missing, mut exit) = (0, 0, None);
    let mut line = Vec::new();
    while exit.is_none() {
        line.clear();
        assert!(reader.read_until(b'\n', &mut line).unwrap() > 0, "no end");
        let Some(event) = line.strip_prefix(b"data: ") else { continue };
        if let Some(rest) = event.strip_prefix(b"{\"type\":\"stdout\",\"offset\":") {
            let comma = rest.iter().position(|b| *b == b',').unwrap();
            let offset: u64 = std::str::from_utf8(&rest[..comma]).unwrap().parse().unwrap();
            let text: String =
                serde_json::from_slice(&rest[comma + b",\"data\":".len()..rest.len() - 2]).unwrap();
            assert_eq!(offset, next);
            check(offset, text.as_bytes());
            next = offset + text.len() as u64;
            continue;
        }
        let event: Value = serde_json::from_slice(event).unwrap();
        match event["type"].as_str().unwrap() {
            "dropped" => {
                assert_eq!(event["offset"], next);
                missing += event["bytes"].as_u64().unwrap();
                next += event["bytes"].as_u64().unwrap();
            }
            "exit" => exit = Some(event),
            "started" => {}
            other => panic!("{other}"),
        }
    }
    let exit = exit.unwrap();
    assert_eq!((next, &exit["output_bytes"], &exit["exit_code"]), (GIB, &GIB.into(), &0.into()));
    let mut left = Vec::new();
    reader.read_to_end(&mut left).unwrap();
    eprintln!("{missing} bytes were missing");
    assert!(peak(server.pid_1(&path)) < 40 << 20, "PID 1 had {}", peak(server.pid_1(&path)));
    assert!(peak(server.child.id()) < 200 << 20, "the server had {}", peak(server.child.id()));
}

#[test]
fn ended_commands_make_room() {
    let server = Server::start();
    let path = server.create("{}");
    let large: Vec<String> = (0..4)
        .map(|_| {
            let exec = start(&server, &path, shell("head -c 50000000 /dev/zero | tr '\\0' x"));
            ended(&server, &exec);
            exec
        })
        .collect();
    // Half of the spool holds two of them.
    let firsts: Vec<Value> = large.iter().map(|exec| info(&server, exec)["first_offset"].clone()).collect();
    assert_eq!(firsts, [json!(50_000_000), json!(50_000_000), json!(0), json!(0)]);
    let gone = server.ask("GET", &format!("{}/output?format=raw", large[0]), "");
    assert_eq!((gone.status, gone.body.len(), gone.header("x-atoll-dropped")), (200, 0, Some("50000000")));
    let seen = Events::follow(&server, &large[0], 0).all();
    assert_eq!((seen.dropped, &seen.exit.unwrap()["exit_code"]), (vec![(0, 50_000_000)], &0.into()));
}

#[test]
fn loud_commands_share_the_spool_and_leave_room_for_others() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "head -c 40000000 /dev/zero | tr '\\0' x; read y";
    let body = json!({ "command": line, "stdin_open": true });
    let loud: Vec<String> = (0..8).map(|_| start(&server, &path, body.clone())).collect();
    for exec in &loud {
        // None waits for room, and what is gone is counted.
        eventually("its output", || info(&server, exec)["output_bytes"] == 40_000_000);
    }
    let kept = |exec: &String| 40_000_000 - info(&server, exec)["first_offset"].as_u64().unwrap();
    eventually("their shares", || loud.iter().all(|exec| kept(exec) <= 8 << 20));
    assert!(loud.iter().all(|exec| kept(exec) >= 7 << 20));
    let ran = server.exec(&path, "head -c 6000000 /dev/zero | tr '\\0' y; echo end >&2");
    assert_eq!((ran["stdout"].as_str().unwrap().len(), &ran["stderr"]), (6_000_000, &"end\n".into()));
    assert_eq!(ran["truncated"], false);
}

#[test]
fn a_full_spool_drops_and_counts_and_nothing_waits() {
    let server = Server::start();
    // A spool of 32 MiB, of which one command may have 8.
    let path = server.create(r#"{"disk_mb":8}"#);
    let hold = |n: usize| format!("head -c 8000000 /dev/zero | tr '\\0' {n}; read x < /workspace/go; true");
    server.exec(&path, "mkfifo /workspace/go");
    let (ran, infos) = thread::scope(|scope| {
        let (server, path, hold) = (&server, &path, &hold);
        let asks: Vec<_> = (1..8).map(|n| scope.spawn(move || server.exec(path, &hold(n)))).collect();
        let all = || server.ask("GET", &format!("{path}/execs"), "").json();
        let printed = |e: &Value| e["output_bytes"].as_u64().unwrap() + e["dropped_bytes"].as_u64().unwrap();
        eventually("all output", || {
            all().as_array().unwrap().iter().filter(|e| printed(e) == 8_000_000).count() == 7
        });
        let infos = all();
        release(server, path, 7);
        (asks.into_iter().map(|ask| ask.join().unwrap()).collect::<Vec<_>>(), infos)
    });
    let dropped = |e: &Value| e["dropped_bytes"].as_u64().unwrap();
    assert!(
        infos.as_array().unwrap().iter().map(dropped).sum::<u64>() >= 7 * 8_000_000 - (32 << 20),
        "{infos}"
    );
    for answer in &ran {
        assert_eq!(answer["exit_code"], 0);
        assert_eq!(answer["truncated"], answer["stdout"].as_str().unwrap().len() < 8_000_000);
    }
    assert!(ran.iter().any(|answer| answer["truncated"] == true));
    // Ended ones make room again.
    assert_eq!(server.says(&path, "echo room"), "room");
}

#[test]
fn two_hundred_commands_at_once_in_one_sandbox() {
    let server = Server::start();
    let path = server.create(r#"{"processes":2000,"memory_mb":1024}"#);
    server.exec(&path, "mkfifo /workspace/go");
    let line = |n: usize| format!("echo {n}; read x < /workspace/go; echo {n} >&2; exit {}", n % 100);
    let execs: Vec<String> = (0..200).map(|n| start(&server, &path, shell(&line(n)))).collect();
    let listed = server.ask("GET", &format!("{path}/execs"), "").json();
    assert_eq!(listed.as_array().unwrap().iter().filter(|e| e["status"] == "running").count(), 200);
    for exec in &execs {
        eventually("its output", || info(&server, exec)["output_bytes"].as_u64() > Some(1));
    }
    let releasing = release(&server, &path, 200);
    thread::scope(|scope| {
        for part in 0..8 {
            let (server, execs) = (&server, &execs);
            scope.spawn(move || {
                for n in (part..200).step_by(8) {
                    let seen = Events::follow(server, &execs[n], 0).all();
                    assert_eq!(seen.exit()["exit_code"], n % 100);
                    let printed = format!("{n}\n").into_bytes();
                    assert_eq!((&seen.stdout, &seen.stderr), (&printed, &printed));
                }
            });
        }
    });
    assert_eq!(server.ask("POST", &format!("{releasing}/kill"), "").status, 200);
    eventually("the notes", || server.ask("GET", &path, "").json()["exec_count"] == 202);
}

/// As many sandboxes as `ATOLL_TEST_SANDBOXES` says; few where it says nothing.
#[test]
fn one_command_in_each_of_many_sandboxes() {
    let count: usize = std::env::var("ATOLL_TEST_SANDBOXES").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let server = Server::start();
    let body = r#"{"disk_mb":8,"memory_mb":64,"processes":32}"#;
    let paths: Vec<String> = (0..count).map(|_| server.create(body)).collect();
    let execs: Vec<String> = paths
        .iter()
        .enumerate()
        .map(|(n, path)| {
            start(
                &server,
                path,
                json!({ "command": format!("echo {n}; read x; echo $x"), "stdin_open": true }),
            )
        })
        .collect();
    for exec in &execs {
        assert_eq!(info(&server, exec)["status"], "running");
    }
    for (n, exec) in execs.iter().enumerate() {
        assert_eq!(server.ask("POST", &format!("{exec}/stdin?close=true"), &format!("to {n}\n")).status, 200);
        let seen = Events::follow(&server, exec, 0).all();
        assert_eq!(String::from_utf8(seen.stdout).unwrap(), format!("{n}\nto {n}\n"));
    }
}
