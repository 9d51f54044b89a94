//! Commands, in every way that they can be run.

#[path = "../server/execs/events.rs"]
#[allow(dead_code, reason = "the tests of `server` use more of it")]
mod events;

use super::{AUTH, Server, eventually, http, refused};
use events::{Events, Seen};
use serde_json::{Value, json};
use std::thread;

#[test]
fn one_that_is_waited_for_has_its_code_and_outputs() {
    let server = Server::start();
    let path = server.create("{}");
    let ran = server.exec(&path, &json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert_eq!(
        (&ran["exit_code"], &ran["stdout"], &ran["stderr"]),
        (&json!(3), &json!("out\n"), &json!("err\n"))
    );
    let body = json!({ "arguments": ["sh", "-c", "cat; pwd; echo $X"], "stdin": "in\n",
        "working_directory": "/tmp", "env_vars": { "X": "y" } });
    assert_eq!(server.exec(&path, &body)["stdout"], "in\n/tmp\ny\n");
    assert_eq!(server.exec(&path, &json!({ "arguments": ["no-such-program"] }))["exit_code"], 127);
    let odd = json!({ "command": "true", "working_directory": "/nowhere" }).to_string();
    let odd = server.ask("POST", &format!("{path}/exec"), &odd);
    assert_eq!(refused(&odd, 400).1["field"], "working_directory");
    assert_eq!(server.get(&path)["exec_count"], 3);
}

#[test]
fn a_timeout_ends_it_with_all_that_it_started() {
    let server = Server::start();
    let path = server.create("{}");
    let late =
        server.exec(&path, &json!({ "command": "(setsid sleep 4321 &); sleep 4321", "timeout_seconds": 1 }));
    assert_eq!((&late["exit_code"], &late["timed_out"]), (&json!(124), &json!(true)));
    assert_eq!(server.says(&path, "pgrep -fc '[s]leep 4321' || true"), "0");
}

#[test]
fn a_stream_comes_while_it_runs() {
    let server = Server::start();
    let path = server.create("{}");
    let body = json!({ "command": "echo one; read x; echo two $x >&2; exit 3", "stdin_open": true });
    let mut events = Events::run(&server, &path, body);
    let mut seen = Seen::default();
    while seen.stdout.is_empty() {
        seen.add(events.next().unwrap());
    }
    // It waits for its input, so the first line came while it ran.
    let exec = format!("{path}/execs/{}", seen.started.as_ref().unwrap()["exec_id"].as_str().unwrap());
    assert_eq!(server.get(&exec)["status"], "running");
    server.ask("POST", &format!("{exec}/stdin?close=true"), "three\n");
    let seen = events.rest(seen);
    assert_eq!((&seen.stdout[..], &seen.stderr[..]), (&b"one\n"[..], &b"two three\n"[..]));
    assert_eq!((&seen.exit()["exit_code"], &seen.exit()["status"]), (&json!(3), &json!("ended")));
    let again = Events::follow(&server, &exec, 4).all();
    assert_eq!((&again.stdout[..], &again.stderr[..]), (&b""[..], &b"two three\n"[..]), "from an offset on");
}

#[test]
fn one_in_the_background_takes_input_and_signals() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = server
        .background(&path, "trap 'echo got it; exit 7' TERM; read x; echo $x; while :; do sleep 0.01; done");
    let running = server.get(&exec);
    assert_eq!((&running["status"], &running["exit_code"]), (&json!("running"), &Value::Null));
    assert_eq!(server.get(&format!("{path}/execs"))[0]["exec_id"], running["exec_id"]);
    assert_eq!(server.ask("POST", &format!("{exec}/stdin"), "hello\n").json()["written"], 6);
    eventually("its output", || server.get(&exec)["output_bytes"] == 6);
    assert_eq!(server.ask("DELETE", &exec, "").status, 409, "it still runs");
    let signal = |body: &str| server.ask("POST", &format!("{exec}/signal"), body).status;
    assert_eq!((signal(r#"{"signal":"NOSUCH"}"#), signal(r#"{"signal":"SIGTERM"}"#)), (422, 204));
    assert_eq!(server.ended(&exec)["exit_code"], 7);
    assert_eq!(signal(r#"{"signal":15}"#), 409, "it has ended");
    let raw = server.ask("GET", &format!("{exec}/output?format=raw&stream=stdout"), "");
    assert_eq!(raw.body, b"hello\ngot it\n");
    assert_eq!(server.ask("DELETE", &exec, "").status, 204);
    assert_eq!(server.ask("GET", &exec, "").status, 404);
}

#[test]
fn a_kill_takes_everything_that_it_started() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = server.background(&path, "(setsid sleep 5432 &); echo up; sleep 5432");
    eventually("its output", || server.get(&exec)["output_bytes"] == 3);
    let killed = server.ask("POST", &format!("{exec}/kill"), "").json();
    assert_eq!((&killed["killed"], &killed["exit_code"]), (&json!(true), &json!(137)));
    assert_eq!(killed["descendants_alive"], false);
    assert_eq!(server.says(&path, "pgrep -fc '[s]leep 5432' || true"), "0");
    assert_eq!(server.ask("POST", &format!("{exec}/kill"), "").status, 200, "a second kill succeeds");
}

#[test]
fn a_repeated_request_is_carried_out_once() {
    let server = Server::start();
    let path = server.create("{}");
    let once = |key: &str, body: &str| {
        let headers = [AUTH, ("Idempotency-Key", key)];
        http::request(server.address, "POST", &format!("{path}/exec"), &headers, body.as_bytes()).unwrap()
    };
    let body = r#"{"command":"echo once >> /workspace/log; cat /workspace/log"}"#;
    let answers: Vec<_> = thread::scope(|scope| {
        let asks: Vec<_> = (0..4).map(|_| scope.spawn(|| once("k1", body))).collect();
        asks.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert!(
        answers.iter().all(|answer| answer.status == 200 && answer.body == answers[0].body),
        "{answers:?}"
    );
    let again = once("k1", body);
    assert_eq!((again.header("idempotent-replay"), &again.body), (Some("true"), &answers[0].body));
    assert_eq!(server.says(&path, "wc -l < log"), "1");
    assert_eq!(once("k1", r#"{"command":"true"}"#).status, 422, "the key was used for another request");
    assert_eq!(once("k2", body).status, 200);
    assert_eq!(server.says(&path, "wc -l < log"), "2");
}

#[test]
fn wrong_requests_run_nothing_and_name_their_field() {
    let server = Server::start();
    let path = server.create("{}");
    for (body, field) in [
        (r#"{}"#, "command"),
        (r#"{"command":""}"#, "command"),
        (r#"{"command":"x","timeout_seconds":0}"#, "timeout_seconds"),
        (r#"{"command":"x","no_such":1}"#, "no_such"),
    ] {
        let answer = server.ask("POST", &format!("{path}/exec"), body);
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        assert!(answer.json()["detail"][0]["loc"].to_string().contains(field), "{body}: {answer:?}");
    }
    assert_eq!(server.ask("POST", &format!("{path}/exec"), "not json").status / 100, 4);
    assert_eq!(server.get(&path)["exec_count"], 0);
}

#[test]
fn an_installation_that_is_asked_for_again_is_not_begun_again() {
    let mut server = Server::start();
    let path = server.create("{}");
    // `python3 -m pip` finds this one first: it notes that it ran, and ends when the test says so.
    let pip = "import os, time\nopen('ran', 'a').write('x')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')";
    let put = |server: &Server, name: &str, content: &str| {
        assert_eq!(server.ask("PUT", &format!("{path}/files/{name}"), content).status, 204);
    };
    put(&server, "pip.py", pip);
    let body = br#"{"packages":{"six":""}}"#;
    let install = |server: &Server| {
        let headers = [AUTH, ("Idempotency-Key", "one")];
        http::request(server.address, "POST", &format!("{path}/dependencies"), &headers, body)
    };
    // The server is killed while it waits for the installation, and its caller asks the next one.
    thread::scope(|scope| {
        let lost = scope.spawn({
            let (address, path) = (server.address, &path);
            move || {
                let headers = [AUTH, ("Idempotency-Key", "one")];
                http::request(address, "POST", &format!("{path}/dependencies"), &headers, body)
            }
        });
        eventually("its begin", || server.ask("GET", &format!("{path}/files/ran"), "").body == b"x");
        server.kill();
        drop(lost.join().unwrap());
    });
    server.restart();
    thread::scope(|scope| {
        let (first, second) = (scope.spawn(|| install(&server)), scope.spawn(|| install(&server)));
        put(&server, "go", "");
        for joined in [first, second] {
            let answer = joined.join().unwrap().unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.json(), json!({"success": true, "stdout": "done\n", "stderr": ""}));
        }
    });
    let again = install(&server).unwrap();
    assert_eq!((again.status, again.json()["stdout"].as_str()), (200, Some("done\n")));
    assert_eq!(server.says(&path, "cat ran"), "x");
    // Another request, and one that names no key, are installations of their own.
    assert_eq!(server.ask("POST", &format!("{path}/dependencies"), r#"{"packages":{"six":""}}"#).status, 200);
    assert_eq!(server.says(&path, "cat ran"), "xx");
}
