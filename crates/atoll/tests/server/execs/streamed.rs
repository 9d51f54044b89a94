//! Commands whose output comes as they print it.

use super::{
    AUTH, Server, ended,
    events::{Events, Seen},
    http, info, noted, shell, start,
};
use crate::engine::fixture::eventually;
use serde_json::json;
use std::{io::Read, process::Command, thread};

#[test]
fn output_comes_while_the_command_runs_and_the_end_says_how_it_went() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "echo one; read x; echo two >&2; echo $x > /workspace/made; exit 3";
    let mut events = Events::run(&server, &path, json!({ "command": line, "stdin_open": true }));
    let mut seen = Seen::default();
    while seen.stdout.is_empty() {
        seen.add(events.next().unwrap());
    }
    // It waits for us, so this was seen while it ran.
    let id = seen.started.as_ref().unwrap()["exec_id"].as_str().unwrap().to_owned();
    let exec = format!("{path}/execs/{id}");
    assert_eq!((info(&server, &exec)["status"].as_str(), seen.next), (Some("running"), 4));
    assert_eq!(server.ask("POST", &format!("{exec}/stdin?close=true"), "three\n").json()["written"], 6);
    let seen = events.rest(seen);
    assert_eq!((&seen.stdout[..], &seen.stderr[..]), (&b"one\n"[..], &b"two\n"[..]));
    let exit = seen.exit();
    assert_eq!(
        (&exit["exit_code"], &exit["status"], &exit["exec_id"]),
        (&3.into(), &"ended".into(), &id.into())
    );
    assert_eq!((&exit["output_bytes"], seen.id), (&8.into(), 8));
    assert_eq!(exit["files_changed"], json!([{ "path": "made", "action": "created", "size_bytes": 6 }]));
    assert_eq!(exit["files_changed_truncated"], false);
    assert!(events.is_whole() && seen.dropped.is_empty() && seen.base64 == 0);
    // A second request gets the same, and the same end.
    let again = Events::follow(&server, &exec, 0).all();
    assert_eq!((&again.stdout, &again.stderr), (&seen.stdout, &seen.stderr));
    assert_eq!((&again.exit()["exit_code"], again.exit().get("files_changed")), (&3.into(), None));
    eventually("the note", || noted(&server, &path) == [(line.to_owned(), 3.into())]);
    assert_eq!(server.ask("GET", &path, "").json()["exec_count"], 1);
}

#[test]
fn what_cannot_start_is_an_error_before_the_first_event() {
    let server = Server::start();
    let path = server.create("{}");
    for kind in ["stream", "background"] {
        let ask = |extra: &str| {
            server.ask(
                "POST",
                &format!("{path}/exec"),
                &format!(r#"{{"{kind}":true,"command":"true"{extra}}}"#),
            )
        };
        let odd = ask(r#","working_directory":"/nowhere""#);
        let field = odd.json()["error"]["details"]["field"].clone();
        assert_eq!((odd.status, field), (400, "working_directory".into()), "{kind}");
        assert_eq!(ask(r#","user":"nosuch""#).status, 400, "{kind}");
        assert_eq!(ask(r#","timeout_seconds":604801"#).status, 422, "{kind}");
    }
    assert_eq!(
        server.ask("POST", &format!("{path}/exec"), r#"{"command":"x","stdin_open":true}"#).status,
        422
    );
    assert_eq!(
        server
            .ask("POST", &format!("{path}/exec"), r#"{"command":"x","stream":true,"timeout_seconds":86401}"#)
            .status,
        422
    );
    // A program that is not there is an ordinary failure, as in a shell.
    let seen = Events::run(&server, &path, json!({ "arguments": ["no-such-program"] })).all();
    assert_eq!(seen.exit()["exit_code"], 127);
    assert!(seen.exit()["failure"]["message"].as_str().unwrap().contains("no-such-program"), "{seen:?}");
    // What never came to its program is not noted.
    eventually("the note", || noted(&server, &path) == [("no-such-program".to_owned(), 127.into())]);
}

#[test]
fn a_program_that_cannot_be_executed_has_one_exit_code_everywhere() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap();
    let refused = server.ask("POST", &format!("{path}/exec"), r#"{"arguments":["/etc/passwd"]}"#).json();
    assert_eq!(refused["exit_code"], 126, "{refused}");
    eventually("the note", || noted(&server, &path) == [("/etc/passwd".to_owned(), 126.into())]);
    let rows =
        server.ask("GET", &format!("/api/v1/audit?sandbox_id={id}&kind=exec&exit_code=126"), "").json();
    assert_eq!(rows["entries"].as_array().map(Vec::len), Some(1), "{rows}");
    eventually("the event", || {
        let told = server.ask("GET", &format!("/api/v1/events?sandbox_id={id}&kind=exec.ended"), "").json();
        told["events"][0]["data"]["exit_code"] == 126
    });
}

#[test]
fn text_is_never_cut_and_bytes_are_base64() {
    let server = Server::start();
    let path = server.create("{}");
    // Every character is cut by a write of its own, and the other output comes between.
    let program = "import os, time\nfor b in 'aé世🏝\\n'.encode() * 20:\n  os.write(1, bytes([b])); os.write(2, b'.'); time.sleep(0.001)";
    let seen = Events::run(&server, &path, json!({ "arguments": ["python3", "-c", program] })).all();
    assert_eq!(String::from_utf8(seen.stdout).unwrap(), "aé世🏝\n".repeat(20));
    assert_eq!((seen.stderr.len(), seen.base64), (220, 0));
    // Text that is larger than any buffer on the way.
    let program = "import sys\nsys.stdout.write('é世🏝' * 300000)";
    let seen = Events::run(&server, &path, json!({ "arguments": ["python3", "-c", program] })).all();
    assert!(String::from_utf8(seen.stdout).unwrap() == "é世🏝".repeat(300_000));
    assert_eq!(seen.base64, 0);
    let seen = Events::run(&server, &path, shell(r"printf '\377\000ok'; printf '\360\237' >&2")).all();
    assert_eq!((&seen.stdout[..], &seen.stderr[..]), (&b"\xff\0ok"[..], &b"\xf0\x9f"[..]));
    assert!(seen.base64 >= 2);
}

#[test]
fn readers_see_the_same_bytes_and_the_slowest_slows_nobody() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "read x; for i in $(seq 300000); do echo line $i; done; echo done >&2";
    let exec = start(&server, &path, json!({ "command": line, "stdin_open": true }));
    // Takes one byte at a time, and none but when it is told to.
    let mut slow = Events::follow(&server, &exec, 0).raw();
    let mut byte = [0];
    slow.read_exact(&mut byte).unwrap();
    let readers: Vec<_> = (0..2).map(|_| Events::follow(&server, &exec, 0)).collect();
    assert_eq!(server.ask("POST", &format!("{exec}/stdin?close=true"), "go\n").status, 200);
    let all: Vec<Seen> = thread::scope(|scope| {
        let reads: Vec<_> = readers.into_iter().map(|reader| scope.spawn(|| reader.all())).collect();
        reads.into_iter().map(|r| r.join().unwrap()).collect()
    });
    // Both have everything, the end too, while the slow one has read a byte; other commands run as well.
    let expected: String = (1..=300_000).map(|n| format!("line {n}\n")).collect();
    for seen in &all {
        assert!(seen.stdout == expected.as_bytes() && seen.stderr == b"done\n" && seen.dropped.is_empty());
        assert_eq!(seen.exit()["exit_code"], 0);
    }
    assert_eq!(server.says(&path, "echo others are not disturbed"), "others are not disturbed");
    for _ in 0..50_000 {
        slow.read_exact(&mut byte).unwrap();
    }
}

#[test]
fn many_readers_that_do_not_read_hold_up_nobody() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell("head -c 20000000 /dev/zero | tr '\\0' x; sleep 1000"));
    eventually("its output", || info(&server, &exec)["output_bytes"] == 20_000_000);
    let stuck: Vec<_> = (0..16).map(|_| Events::follow(&server, &exec, 0)).collect();
    // Each holds what its connection holds; together they would fill any window that they shared.
    let raw = server.ask("GET", &format!("{exec}/output?format=raw"), "");
    assert_eq!((raw.body.len(), raw.header("x-atoll-dropped")), (20_000_000, None));
    assert_eq!(server.says(&path, "head -c 3000000 /dev/zero | tr '\\0' y").len(), 3_000_000);
    drop(stuck);
}

fn alive(server: &Server, path: &str, what: &str) -> bool {
    server.says(path, &format!("pgrep -fc '[s]leep {what}' || true")) != "0"
}

#[test]
fn a_caller_that_goes_away_ends_what_it_streamed_and_not_what_runs_in_the_background() {
    let server = Server::start();
    let path = server.create("{}");
    let line = |n: u32| format!("echo up; (setsid sleep {n} &); sleep {n}");
    let open = |n: u32, background: bool| {
        let body = json!({ "command": line(n), "background": background });
        let mut events = Events::run(&server, &path, body);
        let mut seen = Seen::default();
        while seen.stdout.is_empty() {
            seen.add(events.next().unwrap());
        }
        (events, format!("{path}/execs/{}", seen.started.unwrap()["exec_id"].as_str().unwrap()))
    };
    let (streamed, its) = open(7001, false);
    let (both, kept) = open(7002, true);
    assert!(alive(&server, &path, "7001") && alive(&server, &path, "7002"));
    drop(streamed);
    drop(both);
    eventually("its end", || !alive(&server, &path, "7001"));
    assert!(alive(&server, &path, "7002"));
    assert_eq!(
        (&ended(&server, &its)["killed"], &info(&server, &kept)["status"]),
        (&true.into(), &"running".into())
    );
    eventually("the note", || noted(&server, &path).contains(&(line(7001), 137.into())));
}

#[test]
fn a_reader_resumes_where_an_event_says() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell("for i in $(seq 1000); do echo $i; echo $i >&2; done"));
    ended(&server, &exec);
    let whole = Events::follow(&server, &exec, 0).all();
    let mut events = Events::follow(&server, &exec, 0);
    let mut seen = Seen::default();
    while seen.next < 3000 {
        seen.add(events.next().unwrap());
    }
    drop(events);
    let id = seen.id.to_string();
    // The header of a reconnecting client goes before the query that it repeats.
    let path = format!("{exec}/output?follow=true&from=0");
    let mut events = Events::open(&server, "GET", &path, &[("Last-Event-ID", &id)], "");
    let seen = events.rest(seen);
    assert_eq!((seen.stdout, seen.stderr), (whole.stdout, whole.stderr));
    for (headers, query, field) in [
        (vec![AUTH, ("Last-Event-ID", "x")], "", "Last-Event-ID"),
        (vec![AUTH], "?from=-1", "from"),
        (vec![AUTH], "?format=xml", "format"),
        (vec![AUTH], "?stream=stdin", "stream"),
        (vec![AUTH], "?follow=maybe", "follow"),
    ] {
        let answer =
            http::request(server.address, "GET", &format!("{exec}/output{query}"), &headers, b"").unwrap();
        assert_eq!(answer.status, 422, "{query}: {answer:?}");
        assert_eq!(answer.json()["detail"][0]["loc"][1], field, "{query}");
    }
}

#[test]
fn a_server_that_is_told_to_end_lets_streams_go_and_commands_live() {
    let mut server = Server::start();
    let path = server.create("{}");
    let mut events = Events::run(
        &server,
        &path,
        json!({ "command": "echo up; read x; echo went on", "stdin_open": true }),
    );
    let mut seen = Seen::default();
    while seen.stdout.is_empty() {
        seen.add(events.next().unwrap());
    }
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let seen = events.rest(seen);
    assert_eq!(seen.error.as_ref().unwrap()["error"]["code"], "unavailable");
    server.child.wait().unwrap();
    server.restart();
    let exec = format!("{path}/execs/{}", seen.started.as_ref().unwrap()["exec_id"].as_str().unwrap());
    assert_eq!(info(&server, &exec)["status"], "running");
    server.ask("POST", &format!("{exec}/stdin?close=true"), "\n");
    let rest = Events::follow(&server, &exec, seen.id).all();
    assert_eq!((&rest.stdout[..], &rest.exit()["exit_code"]), (&b"went on\n"[..], &0.into()));
}
