//! Settings, plans, tiers and admission.

use super::{KEY, ROOT, SETTINGS, Server, eventually, refused};
use serde_json::json;
use std::thread;

#[test]
fn a_setting_changes_at_once_and_outlives_the_server() {
    let mut server = Server::start_with(&["--set", "default_max_per_user=1"]);
    let ann = server.key(r#"{"name":"k","owner":"ann"}"#);
    server.create_as(&ann, r#"{"disk_mb":16}"#);
    assert_eq!(server.ask_as(&ann, "POST", ROOT, "{}").status, 429);
    let changed = server.ask("PATCH", SETTINGS, r#"{"default_max_per_user":2,"idle_timeout_seconds":77}"#);
    assert_eq!((changed.status, &changed.json()["default_max_per_user"]), (200, &json!(2)));
    let second = server.create_as(&ann, r#"{"disk_mb":16}"#);
    assert_eq!(server.get(&second)["idle_timeout_seconds"], 77);
    server.end();
    server.restart();
    let after = server.get(SETTINGS);
    assert_eq!(
        (&after["default_max_per_user"], &after["atoll"]["sources"]["default_max_per_user"]),
        (&json!(2), &json!("stored"))
    );
    let back = server.ask("PATCH", SETTINGS, r#"{"default_max_per_user":null}"#).json();
    assert_eq!(
        (&back["default_max_per_user"], &back["atoll"]["sources"]["default_max_per_user"]),
        (&json!(1), &json!("flag"))
    );
}

#[test]
fn a_wrong_setting_changes_nothing() {
    let server = Server::start();
    let before = server.get(SETTINGS);
    for (body, field) in [
        (json!({ "default_max_per_user": -1, "idle_timeout_seconds": 60 }), "default_max_per_user"),
        (json!({ "idle_timeout_seconds": 9 }), "idle_timeout_seconds"),
        (json!({ "no_such": 1, "idle_timeout_seconds": 60 }), "no_such"),
        (json!({ "atoll": { "admission": { "wait_seconds": 601 } } }), "atoll.admission.wait_seconds"),
        (json!({ "atoll": { "owners": { "ann": "nosuch" } } }), "atoll.owners"),
    ] {
        let answer = server.ask("PATCH", SETTINGS, &body.to_string());
        let loc: Vec<_> = ["body"].into_iter().chain(field.split('.')).collect();
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"]), (422, &json!(loc)), "{answer:?}");
        assert_eq!(server.get(SETTINGS), before, "{body}");
    }
}

#[test]
fn a_provider_that_attaches_nothing_says_so_and_nothing_is_left() {
    let server = Server::start();
    let volume = server.ask("POST", "/api/v1/volumes", r#"{"name":"data"}"#);
    let listed = server.get("/api/v1/volumes")["total"].clone();
    assert_eq!((volume.status, listed), (501, json!(0)), "{volume:?}");
    for body in [r#"{"filesystem":{"blocked":["/opt"]}}"#, r#"{"tenant_id":"t"}"#] {
        let answer = server.ask("POST", ROOT, body);
        assert!(matches!(answer.status, 422 | 501), "{answer:?}");
    }
    assert_eq!(server.get(ROOT)["total"], 0);
}

#[test]
fn of_many_creates_at_once_a_plans_number_succeeds() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"k","owner":"ann","tier":"sandbox"}"#);
    let answers: Vec<_> = thread::scope(|scope| {
        let ask = || server.ask_as(&ann, "POST", ROOT, r#"{"disk_mb":16}"#);
        let asks: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
        asks.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201), count(429)), (3, 9), "{answers:?}");
    let (code, details) = refused(answers.iter().find(|answer| answer.status == 429).unwrap(), 429);
    assert_eq!(
        (code.as_str(), &details["limit"], &details["allowed"]),
        ("limit_exceeded", &json!("concurrent_sandboxes"), &json!(3))
    );
    assert_eq!(server.get(ROOT)["total"], 3, "nothing is left of the others");
    // A stopped one makes room, and may come back only when there is room again.
    let made = answers.iter().find(|answer| answer.status == 201).unwrap().json();
    let first = format!("{ROOT}/{}", made["id"].as_str().unwrap());
    server.ask_as(&ann, "POST", &format!("{first}/stop"), "");
    let fourth = server.create_as(&ann, r#"{"disk_mb":16}"#);
    assert_eq!(server.ask_as(&ann, "POST", &format!("{first}/resume"), "").status, 429);
    server.ask_as(&ann, "DELETE", &fourth, "");
    assert_eq!(server.ask_as(&ann, "POST", &format!("{first}/resume"), "").status, 200);
}

#[test]
fn commands_have_a_rate() {
    let server = Server::start_with(&["--set", "plan.execs_per_second=1", "--set", "plan.exec_burst=2"]);
    let ann = server.key(r#"{"name":"k","owner":"ann"}"#);
    let exec = format!("{}/exec", server.create_as(&ann, "{}"));
    let answers: Vec<_> = thread::scope(|scope| {
        let ask = || server.ask_as(&ann, "POST", &exec, r#"{"command":"true"}"#);
        let asks: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        asks.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let late = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(refused(late, 429).1["limit"], "execs_per_second");
    assert_eq!(late.header("retry-after"), Some("1"));
    assert!(answers.iter().filter(|answer| answer.status == 200).count() >= 2, "{answers:?}");
    assert_eq!(
        server.ask_as(KEY, "POST", &exec, r#"{"command":"true"}"#).status,
        200,
        "an admin has no rate"
    );
}

/// A server that gives out this many cores in all.
fn with_cores(cores: f64, wait: u32) -> Server {
    let there = thread::available_parallelism().unwrap().get() as f64;
    let ratio = format!("admission.cpu_ratio={}", cores / there);
    Server::start_with(&["--set", &ratio, "--set", &format!("admission.wait_seconds={wait}")])
}

const ONE_CORE: &str = r#"{"cpu_cores":1,"disk_mb":16}"#;

#[test]
fn what_the_machine_has_not_is_refused_with_figures() {
    let mut server = with_cores(1.0, 0);
    let first = server.create(ONE_CORE);
    for killed in [false, true] {
        if killed {
            server.kill();
            server.restart();
        }
        let (code, details) = refused(&server.ask("POST", ROOT, ONE_CORE), 429);
        assert_eq!(
            (code.as_str(), &details["free"], &details["capacity"]),
            ("limit_exceeded", &json!(0.0), &json!(1.0))
        );
    }
    assert_eq!(refused(&server.ask("POST", ROOT, r#"{"cpu_cores":2}"#), 403).1["allowed"], 1.0);
    server.kill_inside(&first);
    eventually("its place", || server.ask("POST", ROOT, ONE_CORE).status == 201);
}

#[test]
fn a_create_waits_until_something_stops() {
    let server = with_cores(1.0, 600);
    let first = server.create(ONE_CORE);
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.ask("POST", ROOT, ONE_CORE));
        eventually("a request that waits", || {
            let open = server.get("/api/v1/audit?kind=sandbox.create&open=true");
            open["entries"].as_array().unwrap().len() == 1
        });
        assert_eq!(server.get(ROOT)["total"], 1, "there is no sandbox yet");
        server.ask("POST", &format!("{first}/stop"), "");
        assert_eq!(waits.join().unwrap().status, 201);
    });
}

#[test]
fn a_tier_bounds_what_is_asked_and_which_profiles() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"k","owner":"ann","tier":"sandbox"}"#);
    let (code, details) = refused(&server.ask_as(&ann, "POST", ROOT, r#"{"memory_mb":4096}"#), 403);
    assert_eq!((code.as_str(), &details["field"]), ("permission_denied", &json!("memory_mb")));
    assert_eq!(server.ask_as(&ann, "POST", ROOT, r#"{"profile":"root"}"#).status, 403);
    let own = server.create_as(&ann, "{}");
    assert_eq!(server.get(&own)["memory_mb"], 128, "what is not asked for is what the tier allows");
    let root = server.create(r#"{"profile":"root"}"#);
    assert_eq!(server.says(&root, "id -u; echo $HOME"), "0\n/root");
}
