//! Commands that nobody waits for: looking at them, steering them, reading what they printed.

use super::{Server, ended, events::Events, info, noted, shell, start};
use crate::engine::fixture::eventually;
use serde_json::json;

#[test]
fn it_starts_answers_at_once_and_can_be_watched_and_steered() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "trap 'echo got it; exit 7' TERM; echo up; while :; do sleep 0.05; done";
    let exec = start(&server, &path, shell(line));
    let running = info(&server, &exec);
    assert_eq!((&running["status"], &running["exit_code"]), (&"running".into(), &serde_json::Value::Null));
    assert_eq!((&running["command"], &running["terminal"]), (&line.into(), &serde_json::Value::Null));
    assert!(running["pid"].as_u64().unwrap() > 1 && running["started_at"].as_str().unwrap().ends_with('Z'));
    let listed = server.ask("GET", &format!("{path}/execs"), "").json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["exec_id"]), (1, &running["exec_id"]));
    eventually("its output", || info(&server, &exec)["output_bytes"] == 3);
    assert_eq!(server.ask("DELETE", &exec, "").status, 409, "it still runs");
    let signal = |body: &str| server.ask("POST", &format!("{exec}/signal"), body).status;
    for wrong in
        [r#"{"signal":"NOSUCH"}"#, r#"{"signal":0}"#, r#"{"signal":65}"#, "{}", r#"{"signal":"TERM","x":1}"#]
    {
        assert_eq!(signal(wrong), 422, "{wrong}");
    }
    assert_eq!(signal(r#"{"signal":"SIGTERM"}"#), 204);
    let over = ended(&server, &exec);
    assert_eq!((&over["exit_code"], &over["killed"]), (&7.into(), &false.into()));
    assert_eq!(signal(r#"{"signal":15}"#), 409, "it has ended");
    // What it printed stays, as events and as bytes.
    assert_eq!(Events::follow(&server, &exec, 3).all().stdout, b"got it\n");
    // The shell says on stderr that its sleep was ended.
    let raw = server.ask("GET", &format!("{exec}/output?format=raw&from=1&stream=stdout"), "");
    assert_eq!((&raw.body[..], raw.header("x-atoll-offset")), (&b"p\ngot it\n"[..], Some("1")));
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"));
    eventually("the note", || noted(&server, &path) == [(line.to_owned(), 7.into())]);
    assert_eq!(server.ask("DELETE", &exec, "").status, 204);
    for (method, tail) in
        [("GET", ""), ("GET", "/output"), ("POST", "/kill"), ("DELETE", ""), ("POST", "/stdin")]
    {
        assert_eq!(server.ask(method, &format!("{exec}{tail}"), "").status, 404, "{method} {tail}");
    }
    for odd in ["nosuch", "00000000000000000000000000000000", "..", "%00"] {
        assert_eq!(server.ask("GET", &format!("{path}/execs/{odd}"), "").status, 404, "{odd}");
    }
}

#[test]
fn input_comes_in_pieces_and_ends_when_told() {
    let server = Server::start();
    let path = server.create("{}");
    let exec =
        start(&server, &path, json!({ "command": "cat; echo end", "stdin": "first ", "stdin_open": true }));
    let stdin = |query: &str, body: &str| server.ask("POST", &format!("{exec}/stdin{query}"), body);
    eventually("the first", || info(&server, &exec)["output_bytes"] == 6);
    assert_eq!(stdin("", "second ").json()["written"], 7);
    eventually("the second", || info(&server, &exec)["output_bytes"] == 13);
    assert_eq!(info(&server, &exec)["status"], "running");
    let large = "x".repeat(5 << 20);
    assert_eq!(stdin("?close=true", &large).json()["written"], 5 << 20);
    assert_eq!(stdin("", "late").status, 409);
    ended(&server, &exec);
    let raw = server.ask("GET", &format!("{exec}/output?format=raw&stream=stdout"), "").body;
    assert!(raw == format!("first second {large}end\n").as_bytes());
    assert_eq!(stdin("", "later").status, 409);
    // Without stdin_open what is given is all there is.
    let closed = start(&server, &path, json!({ "command": "cat", "stdin": "all of it" }));
    ended(&server, &closed);
    assert_eq!(server.ask("GET", &format!("{closed}/output?format=raw"), "").body, b"all of it");
}

#[test]
fn killing_takes_everything_and_usage_counts_orphans() {
    let server = Server::start();
    let path = server.create(r#"{"memory_mb":512}"#);
    let burn = "import time\nx = bytearray(50 << 20)\nwhile time.process_time() < 0.3: pass\nopen('burnt', 'w')\ntime.sleep(1000)";
    let line = format!("(setsid python3 -c '{}' &); sleep 7003", burn.replace('\'', "\""));
    let exec = start(&server, &path, shell(&line));
    eventually("the orphan", || server.ask("GET", &format!("{path}/fs/stat?path=burnt"), "").status == 200);
    let live = info(&server, &exec);
    assert!(live["cpu_user_ms"].as_u64().unwrap() + live["cpu_system_ms"].as_u64().unwrap() >= 250, "{live}");
    assert!(live["peak_memory_bytes"].as_u64().unwrap() >= 50 << 20, "{live}");
    let killed = server.ask("POST", &format!("{exec}/kill"), "").json();
    assert_eq!(
        (&killed["killed"], &killed["exit_code"], &killed["descendants_alive"]),
        (&true.into(), &137.into(), &false.into())
    );
    assert!(
        killed["cpu_user_ms"].as_u64().unwrap() + killed["cpu_system_ms"].as_u64().unwrap() >= 250,
        "{killed}"
    );
    assert!(killed["peak_memory_bytes"].as_u64().unwrap() >= 50 << 20, "{killed}");
    assert_eq!(server.says(&path, "pgrep -c '[p]ython3|[s]leep' || true"), "0");
    assert_eq!(server.ask("POST", &format!("{exec}/kill"), "").status, 200, "twice is fine");
    eventually("the note", || noted(&server, &path).contains(&(line.clone(), 137.into())));
}

#[test]
fn foreground_output_can_be_asked_for_again_and_one_output_alone() {
    let server = Server::start();
    let path = server.create("{}");
    let ran = server.exec(&path, "echo out; echo err >&2; exit 4");
    let exec = format!("{path}/execs/{}", ran["exec_id"].as_str().unwrap());
    assert_eq!(info(&server, &exec)["exit_code"], 4);
    let raw = |which: &str| server.ask("GET", &format!("{exec}/output?format=raw&stream={which}"), "").body;
    assert_eq!((&raw("stdout")[..], &raw("stderr")[..]), (&b"out\n"[..], &b"err\n"[..]));
    let mut events = Events::open(&server, "GET", &format!("{exec}/output?stream=stderr"), &[], "");
    let seen = events.rest(super::events::Seen::default());
    assert_eq!((&seen.stdout[..], &seen.stderr[..]), (&b""[..], &b"err\n"[..]));
    assert!(seen.dropped.is_empty() && seen.exit()["exit_code"] == 4);
}

#[test]
fn what_a_background_command_writes_is_told_by_the_next() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell("echo x > /workspace/later"));
    ended(&server, &exec);
    let next = server.exec(&path, "true");
    assert_eq!(next["files_changed"], json!([{ "path": "later", "action": "created", "size_bytes": 2 }]));
}

#[test]
fn others_and_readers_are_kept_out() {
    let server = Server::start();
    let key =
        |body: &str| server.ask("POST", "/api/v1/keys", body).json()["key"].as_str().unwrap().to_owned();
    let reader = key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let (ann, bob) = (key(r#"{"name":"a","owner":"ann"}"#), key(r#"{"name":"b","owner":"bob"}"#));
    let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", "{}").json();
    let path = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let body = r#"{"command":"sleep 7004","background":true}"#;
    let exec = server.ask_as(&ann, "POST", &format!("{path}/exec"), body).json();
    let exec = format!("{path}/execs/{}", exec["exec_id"].as_str().unwrap());
    for (method, tail, body, reads) in [
        ("GET", "", "", true),
        ("GET", "/output", "", true),
        ("POST", "/stdin", "x", false),
        ("POST", "/signal", r#"{"signal":"TERM"}"#, false),
        ("POST", "/kill", "", false),
        ("DELETE", "", "", false),
    ] {
        let target = format!("{exec}{tail}");
        assert_eq!(server.ask_as(&bob, method, &target, body).status, 404, "{method} {tail}");
        let expected = if reads { 200 } else { 403 };
        assert_eq!(server.ask_as(&reader, method, &target, body).status, expected, "{method} {tail}");
    }
    assert_eq!(server.ask_as(&bob, "GET", &format!("{path}/execs"), "").status, 404);
    assert_eq!(server.ask_as(&reader, "GET", &format!("{path}/execs"), "").status, 200);
    assert_eq!(info(&server, &exec)["status"], "running");
    server.ask("POST", &format!("{path}/stop"), "");
    let refused = server.ask("GET", &exec, "");
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("not_running")));
    // It went with its sandbox.
    eventually("the note", || noted(&server, &path) == [("sleep 7004".to_owned(), serde_json::Value::Null)]);
}
