//! Kernels outlive the server, and so does a cell that runs.

use super::{AUTH, Server, event, events, http, kernels, python, run, stream, value};
use crate::engine::fixture::eventually;
use crate::server::execs::noted;
use serde_json::{Value, json};
use std::thread;

fn restart(server: &mut Server) {
    server.kill();
    server.restart();
}

/// Prints, waits for a file, prints again, and counts how often it ran.
const WAITING: &str = "import os, time\nopen('log', 'a').write('ran\\n')\nprint('before', flush=True)\n\
    while not os.path.exists('go'): time.sleep(0.02)\nprint('after')\n'value'";

fn with_key(server: &Server, path: &str, key: &str, body: &Value) -> http::Answer {
    let headers = [AUTH, ("Idempotency-Key", key)];
    http::request(server.address, "POST", &format!("{path}/run"), &headers, body.to_string().as_bytes())
        .unwrap()
}

/// Waits until the cell has begun.
fn began(server: &Server, sandbox: &str) {
    eventually("its start", || server.ask("GET", &format!("{sandbox}/fs/stat?path=log"), "").status == 200);
}

/// The audit rows of cells, the latest first.
fn told(server: &Server) -> Vec<Value> {
    let page = server.ask("GET", "/api/v1/audit?limit=500&kind=kernel.execute", "").json();
    page["entries"].as_array().unwrap().clone()
}

#[test]
fn variables_survive_a_server_that_is_killed_between_two_cells() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    for (language, set, get, _) in super::LANGUAGES {
        assert_eq!(run(&server, &sandbox, language, set)["success"], true);
        restart(&mut server);
        let ran = run(&server, &sandbox, language, get);
        assert!(
            ran["stdout"].to_string().contains("42") || ran["result"].to_string().contains("42"),
            "{ran}"
        );
    }
    assert_eq!(kernels(&server, &sandbox).len(), 4);
}

#[test]
fn a_running_cell_is_attached_to_again_and_a_repeated_request_joins_it() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    python(&server, &sandbox, "1");
    let body = json!({ "code": WAITING, "timeout": 120 });
    let lost = {
        let (address, path, body) = (server.address, format!("{sandbox}/run"), body.to_string());
        thread::spawn(move || {
            let headers = [AUTH, ("Idempotency-Key", "again")];
            let _ = http::request(address, "POST", &path, &headers, body.as_bytes());
        })
    };
    began(&server, &sandbox);
    restart(&mut server);
    lost.join().unwrap();
    thread::scope(|scope| {
        let retries: Vec<_> =
            (0..3).map(|_| scope.spawn(|| with_key(&server, &sandbox, "again", &body))).collect();
        eventually("a busy kernel", || kernels(&server, &sandbox)[0]["status"] == "busy");
        server.ask("PUT", &format!("{sandbox}/files/go"), "");
        for retry in retries {
            let answer = retry.join().unwrap();
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
            let ran = answer.json();
            assert_eq!((ran["stdout"].as_str().unwrap(), value(&ran)), ("before\nafter\n", "'value'"));
        }
    });
    // Afterwards too; and it ran once, and was noted once.
    assert_eq!(value(&with_key(&server, &sandbox, "again", &body).json()), "'value'");
    assert_eq!(with_key(&server, &sandbox, "again", &json!({ "code": "1" })).status, 422);
    assert_eq!(server.says(&sandbox, "cat log"), "ran");
    let code = |text: &str| text.starts_with("import os, time");
    eventually("one note", || noted(&server, &sandbox).iter().filter(|(text, _)| code(text)).count() == 1);
    eventually("every end", || told(&server).iter().all(|entry| !entry["ended"].is_null()));
    // The operation of the server that died ended as the cell did.
    let first = told(&server).into_iter().rfind(|e| code(e["detail"].as_str().unwrap_or_default())).unwrap();
    assert_eq!(first["ended"]["outcome"], "ok", "{first}");
}

#[test]
fn a_cell_whose_caller_went_with_the_server_comes_to_its_end() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    let body = json!({ "code": WAITING, "timeout": 120, "stream": true });
    let mut coming = stream(&server, &format!("{sandbox}/run"), &body, &[]);
    let mut seen = String::new();
    while !seen.contains("before") {
        seen.push_str(&event(&mut coming).unwrap().to_string());
    }
    restart(&mut server);
    assert!(!events(&mut coming).iter().any(|e| e["type"] == "ended"));
    eventually("a busy kernel", || kernels(&server, &sandbox)[0]["status"] == "busy");
    server.ask("PUT", &format!("{sandbox}/files/go"), "");
    eventually("its end", || told(&server).iter().all(|entry| entry["ended"]["outcome"] == "ok"));
    eventually("its note", || {
        noted(&server, &sandbox).iter().any(|(text, code)| text.contains("after") && *code == 0)
    });
}

#[test]
fn a_streamed_request_with_a_key_can_be_come_back_to() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    let body = json!({ "code": WAITING, "timeout": 120, "stream": true });
    let path = format!("{sandbox}/run");
    let open = |server: &Server| stream(server, &path, &body, &[("Idempotency-Key", "s")]);
    let mut first = open(&server);
    began(&server, &sandbox);
    assert_eq!(event(&mut first).unwrap()["type"], "started");
    drop(first);
    for again in [false, true] {
        if again {
            restart(&mut server);
        }
        let mut coming = open(&server);
        let mut seen = String::new();
        while !seen.contains("before") {
            let event = event(&mut coming).expect("more to come");
            assert_ne!(event["type"], "ended", "nobody interrupted it: {event}");
            seen.push_str(event["text"].as_str().unwrap_or_default());
        }
    }
    server.ask("PUT", &format!("{sandbox}/files/go"), "");
    let all = events(&mut open(&server));
    let text: String = all.iter().filter_map(|e| e["text"].as_str()).collect();
    assert_eq!(text, "before\nafter\n");
    assert_eq!(all.last().unwrap()["success"], true);
    assert_eq!(server.says(&sandbox, "cat log"), "ran");
}
