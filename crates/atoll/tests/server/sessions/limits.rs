//! How many sessions there may be, and what a key may have.

use super::{Server, Thread, key};
use serde_json::{Value, json};

#[test]
fn three_of_a_thread_and_a_bound_for_each_owner() {
    let limits = ["--set", "tool_sessions.max=4", "--set", "admission.wait_seconds=1"];
    let server = Server::start_with(&limits);
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
    let last = second.create(&json!({}));
    let full = second.call("create_session", &json!({}));
    assert!(full["error"].as_str().unwrap().contains("owner has 4 sessions"), "{full}");
    let theirs = Thread::of(&server, &key(&server, "eve", "standard"), "t1");
    theirs.create(&json!({}));
    // A sandbox that stops gives its seat back at once.
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    let of = |item: &&Value| item["labels"]["atoll.tool_session"] == last.as_str();
    let sandbox = listed["items"].as_array().unwrap().iter().find(of).unwrap()["id"].clone();
    let stop = format!("/api/v1/sandboxes/{}/stop", sandbox.as_str().unwrap());
    assert_eq!(server.ask("POST", &stop, "").status, 200);
    second.create(&json!({}));
    assert_eq!(second.sessions()[0], (last, "dead".to_owned()));
}

#[test]
fn a_call_waits_for_a_free_session_before_it_is_refused() {
    // By the name that another sandbox server has for `tool_sessions.max`.
    let seats = [("CONTAINER_MAX_SESSIONS", "1")];
    let server = Server::start_in("warn", &["--set", "admission.wait_seconds=60"], &seats);
    let (first, second) = (Thread::new(&server, "t1"), Thread::new(&server, "t2"));
    let held = first.create(&json!({}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.create(&json!({})));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!waiting.is_finished(), "it waits");
        first.call("stop_session", &json!({ "session_id": held }));
        waiting.join().unwrap();
    });
    assert_eq!((first.sessions().len(), second.sessions().len()), (0, 1));
}

#[test]
fn a_session_has_the_network_of_the_policy_or_less() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("atoll.toml");
    let text = "[egress.presets]\npython = [\"index.example:443\"]\nnode = [\"npm.example:443\"]\n\
                [egress.tiers.standard]\nmode = \"allowlist\"\npresets = [\"python\", \"node\"]\n";
    std::fs::write(&file, text).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), None).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    let usual = key(&server, "ann", "standard");
    // An admin's session has no more than that of everybody.
    for who in [super::KEY, &usual] {
        let thread = Thread::of(&server, who, "t1");
        let policy = |arguments: &Value| {
            let made = thread.call("create_session", arguments);
            let Some(id) = made["session_id"].as_str() else { return made };
            let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
            let of = |item: &&Value| item["labels"]["atoll.tool_session"] == id;
            let sandbox = listed["items"].as_array().unwrap().iter().find(of).unwrap()["id"].clone();
            let path = format!("/api/v1/sandboxes/{}/egress", sandbox.as_str().unwrap());
            let policy = server.ask("GET", &path, "").json();
            thread.call("stop_session", &json!({ "session_id": id }));
            json!([policy["policy"]["mode"], policy["policy"]["presets"]])
        };
        let usual = json!(["allowlist", ["python", "node"]]);
        assert_eq!(policy(&json!({})), usual);
        assert_eq!(policy(&json!({ "network": "allowlist" })), usual);
        assert_eq!(policy(&json!({ "network": "none" }))[0], "none");
        assert_eq!(policy(&json!({ "network_presets": "[\"node\"]" })), json!(["allowlist", ["node"]]));
        let more = policy(&json!({ "network": "full" }));
        assert!(more["error"].as_str().unwrap().starts_with("PermissionDenied: network may be"), "{more}");
        let other = policy(&json!({ "network": "allowlist", "network_presets": ["github"] }));
        assert!(other["error"].as_str().unwrap().starts_with("PermissionDenied: "), "{other}");
    }
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
