//! How many sessions there may be, and what a key may have.

use super::{Server, Thread, key};
use serde_json::json;

#[test]
fn three_of_a_thread_and_five_in_all() {
    let server = Server::start();
    let (first, second) = (Thread::new(&server, "t1"), Thread::new(&server, "t2"));
    // All at once.
    let made = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| first.call("create_session", &json!({})))).collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(|made| made["success"] == true).count()
    });
    assert_eq!((made, first.sessions().len()), (3, 3));
    let full = first.call("create_session", &json!({}));
    assert!(full["error"].as_str().unwrap().starts_with("LimitExceeded: this conversation has 3"), "{full}");
    assert_eq!(full["active_sessions"].as_array().unwrap().len(), 3);
    assert!(full["hint"].as_str().unwrap().contains("stop_session"), "{full}");
    second.create(&json!({}));
    let last = second.create(&json!({}));
    let full = second.call("create_session", &json!({}));
    assert!(full["error"].as_str().unwrap().starts_with("LimitExceeded: there are 5"), "{full}");
    second.call("stop_session", &json!({ "session_id": last }));
    second.create(&json!({}));
    assert_eq!((first.sessions().len(), second.sessions().len()), (3, 2));
}

#[test]
fn one_thread_too_many_and_the_oldest_goes() {
    let server = Server::start_with(&["--set", "tool_sessions.max_threads=2"]);
    let threads: Vec<Thread> = ["t1", "t2", "t3"].map(|name| Thread::new(&server, name)).into();
    let (first, second) = (threads[0].create(&json!({})), threads[1].create(&json!({})));
    threads[0].code(&first, "1");
    let third = threads[2].create(&json!({}));
    assert_eq!(threads[0].sessions(), [(first, "running".to_owned())], "it was used later");
    assert_eq!(threads[1].sessions(), []);
    assert_eq!(threads[2].sessions(), [(third, "running".to_owned())]);
    let gone = threads[1].code(&second, "1");
    assert!(gone["error"].as_str().unwrap().starts_with("NotFound: "), "{gone}");
    let events = server.ask("GET", "/api/v1/audit?kind=sandbox.destroy", "").json();
    assert!(events.to_string().contains("its conversation was evicted"), "{events}");
    // Nobody's thread goes for somebody else's.
    let other = key(&server, "eve", "standard");
    let theirs = Thread::of(&server, &other, "t1");
    theirs.create(&json!({}));
    assert_eq!((threads[0].sessions().len(), threads[2].sessions().len()), (1, 1));
}

#[test]
fn a_session_has_what_its_tier_allows() {
    let server = Server::start();
    let admin = Thread::new(&server, "t1");
    admin.create(&json!({}));
    let low = key(&server, "eve", "sandbox");
    let theirs = Thread::of(&server, &low, "t1");
    let made = theirs.call("create_session", &json!({}));
    assert_eq!(made["success"], true, "{made}");
    let id = made["session_id"].as_str().unwrap();
    let input = json!({ "session_id": id, "command": "true", "timeout": 61 });
    let refused = theirs.call("execute_terminal", &input);
    assert!(refused["error"].as_str().unwrap().starts_with("PermissionDenied: "), "{refused}");
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    let of = |owner: &str| {
        let item = listed["items"].as_array().unwrap().iter().find(|i| i["user_name"] == owner).unwrap();
        (item["memory_mb"].clone(), item["cpu_cores"].clone(), item["network_enabled"].clone())
    };
    assert_eq!(of("eve"), (json!(128), json!(0.25), json!(false)));
    let admins = listed["items"].as_array().unwrap().iter().find(|i| i["user_name"] != "eve").unwrap();
    assert_eq!((&admins["memory_mb"], &admins["network_enabled"]), (&json!(2048), &json!(true)), "{admins}");
    // Who may only look may call no tool.
    let body = json!({ "name": "l", "owner": "eve", "scope": "read_only" }).to_string();
    let looks = server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    let looking = Thread::of(&server, &looks, "t1");
    assert_eq!(looking.sessions().len(), 1);
    for answer in [
        looking.call("create_session", &json!({})),
        looking.terminal(id, "true"),
        looking.code(id, "1"),
        looking.call("stop_session", &json!({ "session_id": id })),
    ] {
        assert!(answer["error"].as_str().unwrap().starts_with("PermissionDenied: "), "{answer}");
    }
    assert_eq!(looking.upload(&[("a", b"a")]).status, 403);
    assert_eq!(looking.ask("DELETE", "", "").status, 403);
    assert_eq!(theirs.sessions().len(), 1);
}
