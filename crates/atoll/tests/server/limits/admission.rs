//! What the machine has: nothing is promised past the ratios, who does not fit waits, and owners take
//! turns. Cores are what these tests make short, because every machine has a few.

use super::super::events::kill_inside;
use super::{KEY, ROOT, SETTINGS, Server, created, http, key, path_of, refused, under_way};
use crate::engine::fixture::eventually;
use serde_json::json;
use std::{io::Write, net::TcpStream, sync::Mutex, thread};

/// A server that gives out this many cores in all.
fn with_cores(cores: f64, wait: u32) -> Server {
    let there = thread::available_parallelism().unwrap().get() as f64;
    let (ratio, wait) = (cores / there, format!("admission.wait_seconds={wait}"));
    Server::start_with(&["--set", &format!("admission.cpu_ratio={ratio}"), "--set", &wait])
}

const ONE_CORE: &str = r#"{"cpu_cores":1,"disk_mb":16}"#;

#[test]
fn what_does_not_fit_is_refused_with_figures_and_a_restart_counts_the_same() {
    let mut server = with_cores(2.0, 0);
    let (first, second) = (server.create(ONE_CORE), server.create(ONE_CORE));
    for kill in [false, true] {
        if kill {
            server.kill();
            server.restart();
        }
        let wanted = json!({"field": "cpu_cores", "resource": "cpu_cores", "asked": 1.0, "free": 0.0,
            "capacity": 2.0, "waited_seconds": 0, "when": "when another sandbox is stopped or removed",
            "retry_after_seconds": 5});
        assert_eq!(refused(&server.ask("POST", ROOT, ONE_CORE), 429, "limit_exceeded"), wanted);
    }
    let never = server.ask("POST", ROOT, r#"{"cpu_cores":3}"#);
    let wanted = json!({"field": "cpu_cores", "resource": "cpu_cores", "asked": 3.0, "allowed": 2.0});
    assert_eq!(refused(&never, 403, "permission_denied"), wanted);
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 2);
    // A stopped one holds nothing, and comes back only when there is room.
    server.ask("POST", &format!("{first}/stop"), "");
    let third = server.create(ONE_CORE);
    let resume = format!("{first}/resume");
    assert_eq!(refused(&server.ask("POST", &resume, ""), 429, "limit_exceeded")["free"], 0.0);
    assert_eq!(server.ask("GET", &first, "").json()["status"], "stopped");
    server.ask("DELETE", &third, "");
    assert_eq!(server.ask("POST", &resume, "").status, 200);
    // Nor does one that died.
    kill_inside(&server, &second);
    eventually("its place", || server.ask("POST", ROOT, ONE_CORE).status == 201);
    assert_eq!(server.ask("POST", &format!("{second}/resume"), "").status, 429);
}

#[test]
fn a_create_waits_and_goes_on_when_something_stops() {
    let server = with_cores(1.0, 600);
    let first = server.create(ONE_CORE);
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.ask("POST", ROOT, ONE_CORE));
        eventually("somebody who waits", || under_way(&server, "sandbox.create") == 1);
        assert_eq!(server.ask("GET", ROOT, "").json()["total"], 1, "there is no sandbox yet");
        // Whatever else there is to do goes on meanwhile.
        assert_eq!(server.says(&first, "echo lives"), "lives");
        server.ask("POST", &format!("{first}/stop"), "");
        assert_eq!(waits.join().unwrap().status, 201);
        let waits = scope.spawn(|| server.ask("POST", &format!("{first}/resume"), ""));
        eventually("somebody who waits", || under_way(&server, "sandbox.resume") == 1);
        // More room helps as well as fewer who need it.
        let ratio = json!({"atoll": {"admission": {"cpu_ratio": 100}}}).to_string();
        assert_eq!(server.ask("PATCH", SETTINGS, &ratio).status, 200);
        assert_eq!(waits.join().unwrap().status, 200);
    });
}

#[test]
fn one_owners_burst_does_not_starve_another() {
    let server = with_cores(1.0, 600);
    server.ask("PATCH", SETTINGS, r#"{"default_max_per_user":100}"#);
    let keys = [key(&server, "ann", "standard"), key(&server, "bob", "standard")];
    let first = server.create(ONE_CORE);
    let order = Mutex::new(Vec::new());
    let come_and_go = |who: usize| {
        let made = server.ask_as(&keys[who], "POST", ROOT, ONE_CORE);
        assert_eq!(made.status, 201, "{made:?}");
        order.lock().unwrap().push(who);
        assert_eq!(server.ask_as(&keys[who], "DELETE", &path_of(&made), "").status, 204);
    };
    thread::scope(|scope| {
        (0..20).for_each(|_| drop(scope.spawn(|| come_and_go(0))));
        eventually("twenty who wait", || under_way(&server, "sandbox.create") == 20);
        scope.spawn(|| come_and_go(1));
        eventually("one more", || under_way(&server, "sandbox.create") == 21);
        server.ask("DELETE", &first, "");
    });
    let order = order.into_inner().unwrap();
    let other = order.iter().position(|who| *who == 1).unwrap();
    assert!(other <= 1 && order.len() == 21, "the other's turn came after one of the twenty: {order:?}");
}

#[test]
fn who_goes_away_while_it_waits_leaves_nothing() {
    let server = with_cores(1.0, 600);
    let ann = key(&server, "ann", "standard");
    let first = created(&server, &ann, ONE_CORE);
    let head = format!(
        "POST {ROOT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ann}\r\nContent-Length: {}\r\n\r\n{ONE_CORE}",
        ONE_CORE.len()
    );
    let mut gone: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    gone.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    eventually("two who wait", || under_way(&server, "sandbox.create") == 2);
    // They count while they wait: this would be the fourth.
    let quota = server.ask("PATCH", SETTINGS, r#"{"atoll":{"admission":{"wait_seconds":0}}}"#);
    assert_eq!(quota.status, 200);
    assert_eq!(server.ask_as(&ann, "POST", ROOT, ONE_CORE).status, 429);
    assert_eq!(
        server.ask_as(&ann, "POST", ROOT, ONE_CORE).json()["error"]["details"]["limit"],
        "concurrent_sandboxes"
    );
    drop(gone);
    eventually("their end", || under_way(&server, "sandbox.create") == 0);
    let ended = server.ask("GET", "/api/v1/audit?kind=sandbox.create&outcome=failed", "").json();
    let ended = ended["entries"].as_array().unwrap();
    assert!(
        ended.len() == 2 && ended.iter().all(|e| e["ended"]["error"]["code"] == "cancelled"),
        "{ended:?}"
    );
    assert_eq!(
        server.ask_as(&ann, "POST", ROOT, ONE_CORE).json()["error"]["details"]["resource"],
        "cpu_cores"
    );
    server.ask_as(&ann, "DELETE", &first, "");
    created(&server, &ann, ONE_CORE);
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 1);
    let headers = [("X-API-Key", KEY)];
    assert_eq!(http::request(server.address, "GET", "/health", &headers, b"").unwrap().status, 200);
}
