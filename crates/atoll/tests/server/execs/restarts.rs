//! Commands outlive the server, and so does all that they print.

use super::{
    AUTH, Server, ended,
    events::{Events, Seen},
    http, info, noted, shell, start,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::thread;

/// Prints numbered lines until it is told to stop.
const COUNTING: &str =
    "i=0; while ! test -e /workspace/stop; do echo line $i; i=$((i+1)); done; echo stopped >&2";

/// What it must have printed.
fn check(stdout: &[u8], stderr: &[u8]) {
    assert_eq!(stderr, b"stopped\n");
    let text = String::from_utf8(stdout.to_vec()).unwrap();
    let count = text.lines().count();
    let expected: String = (0..count).map(|n| format!("line {n}\n")).collect();
    assert!(count > 100 && text == expected, "{count} lines");
}

fn restart(server: &mut Server) {
    server.kill();
    server.restart();
}

#[test]
fn streamed_and_background_commands_lose_no_byte() {
    let mut server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell(COUNTING));
    let mut streamed = Events::run(&server, &path, shell(COUNTING));
    let mut watched = Events::follow(&server, &exec, 0);
    let (mut first, mut second) = (Seen::default(), Seen::default());
    while first.next < 20_000 {
        first.add(streamed.next().unwrap());
    }
    while second.next < 20_000 {
        second.add(watched.next().unwrap());
    }
    let id = first.started.as_ref().unwrap()["exec_id"].as_str().unwrap().to_owned();
    let streamed_exec = format!("{path}/execs/{id}");
    server.kill();
    // What had come already is read; then the connections are over, without an end of the command.
    let (first, second) = (streamed.rest(first), watched.rest(second));
    assert!(first.exit.is_none() && second.exit.is_none() && !streamed.is_whole());
    server.restart();
    for exec in [&exec, &streamed_exec] {
        assert_eq!(info(&server, exec)["status"], "running");
    }
    assert_eq!(server.ask("PUT", &format!("{path}/files/stop"), "").status, 204);
    for (exec, seen) in [(&streamed_exec, first), (&exec, second)] {
        let from = seen.id;
        let seen = Events::follow(&server, exec, from).rest(seen);
        assert_eq!(seen.exit()["exit_code"], 0);
        assert_eq!(seen.exit()["output_bytes"], seen.stdout.len() + seen.stderr.len());
        assert!(seen.dropped.is_empty());
        check(&seen.stdout, &seen.stderr);
        let whole = Events::follow(&server, exec, 0).all();
        assert!(whole.stdout == seen.stdout && whole.stderr == seen.stderr);
    }
    // Each end is noted once, by the server that saw it.
    eventually("the notes", || noted(&server, &path).len() == 2);
    restart(&mut server);
    assert_eq!(server.says(&path, "echo here"), "here");
    assert_eq!(noted(&server, &path).len(), 3);
    assert_eq!(server.ask("GET", &path, "").json()["exec_count"], 3);
}

#[test]
fn an_end_that_no_server_saw_is_noted_by_the_next() {
    let mut server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell("while ! test -e /workspace/stop; do sleep 0.02; done; exit 9"));
    server.exec(&path, "(setsid sh -c 'sleep 0.3; touch /workspace/stop' >/dev/null 2>&1 &)");
    server.kill();
    thread::sleep(std::time::Duration::from_millis(1500));
    server.restart();
    assert_eq!(ended(&server, &exec)["exit_code"], 9);
    eventually("the note", || noted(&server, &path).iter().filter(|(_, code)| *code == 9).count() == 1);
    for _ in 0..2 {
        restart(&mut server);
        server.exec(&path, "true");
    }
    let notes = noted(&server, &path);
    assert_eq!((notes.len(), notes.iter().filter(|(_, code)| *code == 9).count()), (4, 1), "{notes:?}");
}

/// A request with a key, from a thread of its own: the server will not answer it.
fn ask_with_key(server: &Server, path: &str, key: &'static str, body: &Value) -> thread::JoinHandle<()> {
    let (address, path, body) = (server.address, format!("{path}/exec"), body.to_string());
    thread::spawn(move || {
        let headers = [AUTH, ("Idempotency-Key", key)];
        let _ = http::request(address, "POST", &path, &headers, body.as_bytes());
    })
}

fn with_key(server: &Server, path: &str, key: &str, body: &Value) -> http::Answer {
    let headers = [AUTH, ("Idempotency-Key", key)];
    let path = format!("{path}/exec");
    http::request(server.address, "POST", &path, &headers, body.to_string().as_bytes()).unwrap()
}

#[test]
fn a_repeated_request_joins_the_command_that_a_dead_server_began() {
    let mut server = Server::start();
    let path = server.create("{}");
    let line = "echo began >> /workspace/log; while ! test -e /workspace/stop; do sleep 0.02; done; cat /workspace/log";
    let body = shell(line);
    let lost = ask_with_key(&server, &path, "again", &body);
    eventually("its start", || server.ask("GET", &format!("{path}/fs/stat?path=log"), "").status == 200);
    server.kill();
    lost.join().unwrap();
    server.restart();
    thread::scope(|scope| {
        // Several may come back for it, while it runs.
        let retries: Vec<_> =
            (0..3).map(|_| scope.spawn(|| with_key(&server, &path, "again", &body))).collect();
        server.ask("PUT", &format!("{path}/files/stop"), "");
        let answers: Vec<Value> = retries
            .into_iter()
            .map(|retry| {
                let answer = retry.join().unwrap();
                assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
                answer.json()
            })
            .collect();
        for answer in &answers {
            assert_eq!((&answer["stdout"], &answer["exit_code"]), (&"began\n".into(), &0.into()));
            assert_eq!(answer["exec_id"], answers[0]["exec_id"]);
        }
    });
    // And afterwards, and never for another request.
    assert_eq!(with_key(&server, &path, "again", &body).json()["stdout"], "began\n");
    assert_eq!(with_key(&server, &path, "again", &shell("true")).status, 422);
    assert_eq!(server.says(&path, "wc -l < /workspace/log"), "1");
    eventually("one note", || noted(&server, &path).iter().filter(|(text, _)| text == line).count() == 1);
}

#[test]
fn a_repeated_background_or_streamed_request_is_one_command() {
    let mut server = Server::start();
    let path = server.create("{}");
    let line = "echo began >> /workspace/log; echo up; while ! test -e /workspace/stop; do sleep 0.02; done; echo over";
    let body = json!({ "command": line, "background": true });
    let first = with_key(&server, &path, "b", &body);
    assert_eq!(first.status, 202);
    let again = with_key(&server, &path, "b", &body);
    assert_eq!((again.status, again.header("idempotent-replay")), (202, Some("true")));
    restart(&mut server);
    let exec = with_key(&server, &path, "b", &body).json()["exec_id"].as_str().unwrap().to_owned();
    assert_eq!(first.json()["exec_id"], exec);
    // A streamed one outlives its caller when it has a key, and a caller that comes back reads all of it.
    let streamed = json!({ "command": line, "stream": true }).to_string();
    let open = |server: &Server| {
        Events::open(server, "POST", &format!("{path}/exec"), &[("Idempotency-Key", "s")], &streamed)
    };
    let mut events = open(&server);
    let mut seen = Seen::default();
    while seen.stdout.is_empty() {
        seen.add(events.next().unwrap());
    }
    drop(events);
    let mut events = open(&server);
    let mut joined = Seen::default();
    while joined.stdout.is_empty() {
        joined.add(events.next().unwrap());
    }
    let id = |seen: &Seen| seen.started.as_ref().unwrap()["exec_id"].clone();
    assert_eq!(id(&seen), id(&joined));
    restart(&mut server);
    server.ask("PUT", &format!("{path}/files/stop"), "");
    let seen = open(&server).all();
    assert_eq!((id(&seen), &seen.stdout[..]), (id(&joined), &b"up\nover\n"[..]));
    assert_eq!(server.says(&path, "wc -l < /workspace/log"), "2");
    // What was run and is forgotten is not run again.
    let forgotten = format!("{path}/execs/{}", id(&seen).as_str().unwrap());
    assert_eq!(server.ask("DELETE", &forgotten, "").status, 204);
    assert_eq!(with_key(&server, &path, "s", &json!({ "command": line, "stream": true })).status, 409);
}

#[test]
fn the_kept_answer_of_a_background_command_holds_no_secret() {
    let server = Server::start();
    let secret = "s3cr3t-of-a-background-45";
    let path = server.create(&json!({ "secrets": { "TOKEN": secret } }).to_string());
    let body = json!({ "command": format!("echo {secret}"), "background": true });
    let first = with_key(&server, &path, "b", &body);
    assert!(first.json()["command"].as_str().unwrap().contains(secret), "its owner may see it");
    let again = with_key(&server, &path, "b", &body);
    assert_eq!((again.status, again.header("idempotent-replay")), (202, Some("true")));
    let kept = String::from_utf8_lossy(&again.body).into_owned();
    assert!(!kept.contains(secret) && kept.contains("[secret]"), "{kept}");
}

#[test]
fn with_a_key_the_caller_may_go_and_come_back() {
    let server = Server::start();
    let path = server.create("{}");
    let body = shell(
        "echo began >> /workspace/log; while ! test -e /workspace/stop; do sleep 0.02; done; echo over",
    );
    let text = body.to_string();
    let hurried = std::net::TcpStream::connect(server.address).unwrap();
    let request = format!(
        "POST {path}/exec HTTP/1.1\r\nHost: x\r\n{}: {}\r\nIdempotency-Key: k\r\nContent-Length: {}\r\n\r\n{text}",
        AUTH.0,
        AUTH.1,
        text.len()
    );
    std::io::Write::write_all(&mut &hurried, request.as_bytes()).unwrap();
    eventually("its start", || server.ask("GET", &format!("{path}/fs/stat?path=log"), "").status == 200);
    drop(hurried);
    server.ask("PUT", &format!("{path}/files/stop"), "");
    let answer = with_key(&server, &path, "k", &body);
    assert_eq!((answer.status, answer.json()["stdout"].as_str()), (200, Some("over\n")));
    assert_eq!(server.says(&path, "wc -l < /workspace/log"), "1");
}
