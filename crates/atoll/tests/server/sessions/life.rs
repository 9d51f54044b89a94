//! What is remembered, and what goes by itself.

use super::{Server, Thread};
use crate::engine::fixture::eventually;
use serde_json::json;

#[test]
fn a_server_that_starts_again_knows_its_sessions() {
    let mut server = Server::start();
    let (id, other) = {
        let thread = Thread::new(&server, "t1");
        let id = thread.create(&json!({}));
        thread.code(&id, "x = 41");
        thread.says(&id, "echo kept >a.txt");
        thread.export(&id, "a.txt");
        thread.upload(&[("up.txt", b"up")]);
        (id, thread.create(&json!({ "language": "node" })))
    };
    server.kill();
    server.restart();
    let thread = Thread::new(&server, "t1");
    let running = |id: &String| (id.clone(), "running".to_owned());
    assert_eq!(thread.sessions(), [running(&id), running(&other)]);
    assert_eq!(thread.code(&id, "x + 1")["result"]["text/plain"], "42");
    assert_eq!(thread.download(&id, "/workspace/a.txt").body, b"kept\n");
    let done = thread.import(&other, json!([{ "source": "up.txt" }, { "session_id": id, "path": "a.txt" }]));
    assert_eq!(done["success"], true, "{done}");
    // One whose sandbox goes while no server runs is forgotten.
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    let sandbox = |id: &str| {
        let all = listed["items"].as_array().unwrap();
        let found = all.iter().find(|item| item["labels"]["atoll.tool_session"] == id).unwrap();
        format!("/api/v1/sandboxes/{}", found["id"].as_str().unwrap())
    };
    server.ask("DELETE", &sandbox(&other), "");
    server.ask("POST", &format!("{}/stop", sandbox(&id)), "");
    server.kill();
    server.restart();
    let thread = Thread::new(&server, "t1");
    assert_eq!(thread.sessions(), [(id.clone(), "dead".to_owned())]);
    let answer = thread.code(&id, "1");
    assert!(answer["error"].as_str().unwrap().starts_with("CONTAINER_DIED: "), "{answer}");
}

#[test]
fn a_session_that_was_being_made_is_taken_back() {
    let mut server = Server::start();
    std::thread::scope(|scope| {
        let address = server.address;
        let body = json!({ "dependencies": { "no-such-package-of-anybody-0": "" } }).to_string();
        scope.spawn(move || {
            let key = format!("Bearer {}", super::KEY);
            let path = "/threads/t1/tools/create_session";
            let _ = super::http::request(address, "POST", path, &[("Authorization", &key)], body.as_bytes());
        });
        let begun = |server: &Server| {
            let listed = server.ask("GET", "/api/v1/sandboxes", "").json()["total"].clone();
            !Thread::new(server, "t1").sessions().is_empty() && listed == 1
        };
        eventually("it begins", || begun(&server));
        server.kill();
    });
    server.restart();
    assert_eq!(Thread::new(&server, "t1").sessions(), []);
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 0);
}

#[test]
fn the_idle_and_the_old_are_collected_with_a_reason() {
    let server = Server::start_with(&[
        "--set",
        "tool_sessions.collect_seconds=1",
        "--set",
        "tool_sessions.idle_seconds=2",
        "--set",
        "tool_sessions.max_lifetime_seconds=8",
        "--set",
        "tool_sessions.thread_retention_seconds=1",
    ]);
    let (idle, busy) = (Thread::new(&server, "idle"), Thread::new(&server, "busy"));
    idle.create(&json!({}));
    idle.upload(&[("a", b"a")]);
    let id = busy.create(&json!({}));
    let uploads = server.data().join("server/uploads");
    eventually("the idle one goes", || {
        busy.code(&id, "1");
        idle.sessions().is_empty()
    });
    eventually("its thread goes", || {
        std::fs::read_dir(&uploads)
            .unwrap()
            .all(|o| std::fs::read_dir(o.unwrap().path()).unwrap().next().is_none())
    });
    eventually("what lived for long enough goes", || {
        busy.code(&id, "1");
        busy.sessions().is_empty()
    });
    let told = server.ask("GET", "/api/v1/audit?kind=session.stop", "").json().to_string();
    assert!(told.contains("idle for 2 seconds") && told.contains("it lived for 8 seconds"), "{told}");
    let events = server.ask("GET", "/api/v1/audit?kind=sandbox.destroy", "").json().to_string();
    assert!(events.contains("idle for 2 seconds"), "{events}");
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 0);
}

#[test]
fn a_sandbox_without_its_session_is_collected() {
    // Set by the names of the reference system.
    let variables = [("SESSION_GC_INTERVAL_SECONDS", "1"), ("CONTAINER_ORPHAN_MIN_AGE_SECONDS", "1")];
    let server = Server::start_in("warn", &[], &variables);
    let kept = server.create(r#"{"disk_mb":64}"#);
    let orphan = server.create(r#"{"disk_mb":64,"labels":{"atoll.tool_session":"0badc0de"}}"#);
    eventually("the orphan goes", || server.ask("GET", &orphan, "").json()["status"] == "destroyed");
    assert_eq!(server.ask("GET", &kept, "").json()["status"], "running");
    let told = server.ask("GET", "/api/v1/audit?kind=sandbox.destroy", "").json().to_string();
    assert!(told.contains("its tool session is gone"), "{told}");
}
