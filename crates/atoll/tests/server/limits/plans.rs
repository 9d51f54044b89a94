//! What an owner may have in all.

use super::{KEY, ROOT, SETTINGS, Server, at_once, created, key, path_of, refused, with_status};
use serde_json::json;

#[test]
fn of_fifty_creates_at_once_exactly_three_succeed_and_a_restart_forgets_none() {
    let mut server = Server::start();
    let ann = key(&server, "ann", "sandbox");
    let answers = at_once(&server, 50, &ann, ROOT, r#"{"disk_mb":16}"#);
    let made: Vec<String> = with_status(&answers, 201).into_iter().map(path_of).collect();
    assert_eq!((made.len(), with_status(&answers, 429).len()), (3, 47));
    let wanted = json!({"limit": "concurrent_sandboxes", "plan": "free", "used": 3, "allowed": 3,
        "when": "when one of them is stopped or removed", "retry_after_seconds": 5});
    for answer in with_status(&answers, 429) {
        assert_eq!(refused(answer, 429, "limit_exceeded"), wanted);
    }
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 3, "and nothing is left of the others");
    for kill in [false, true] {
        if kill {
            server.kill();
            server.restart();
        }
        assert_eq!(server.ask_as(&ann, "POST", ROOT, "{}").status, 429);
    }
    // Another owner has its own, and an admin as many as it likes.
    created(&server, &key(&server, "bob", "sandbox"), "{}");
    (0..4).for_each(|_| drop(server.create(r#"{"disk_mb":16}"#)));
    // A stopped one makes room, and may come back only when there is room again.
    assert_eq!(server.ask_as(&ann, "POST", &format!("{}/stop", made[0]), "").status, 200);
    let fourth = created(&server, &ann, r#"{"disk_mb":16}"#);
    let resume = format!("{}/resume", made[0]);
    assert_eq!(refused(&server.ask_as(&ann, "POST", &resume, ""), 429, "limit_exceeded"), wanted);
    assert_eq!(server.ask_as(&ann, "DELETE", &fourth, "").status, 204);
    let answers = at_once(&server, 8, &ann, &resume, "");
    assert_eq!(with_status(&answers, 200).len(), 8, "all of them mean the same one: {answers:?}");
    assert_eq!(server.ask_as(&ann, "POST", ROOT, "{}").status, 429);
}

#[test]
fn one_session_is_one_place_however_many_ask_at_once() {
    let server = Server::start_with(&["--set", "default_max_per_user=1"]);
    let ann = key(&server, "ann", "sandbox");
    let answers = at_once(&server, 20, &ann, ROOT, r#"{"session_key":"s","disk_mb":16}"#);
    let ids: std::collections::BTreeSet<String> = answers.iter().map(path_of).collect();
    assert_eq!((ids.len(), with_status(&answers, 201).len(), with_status(&answers, 200).len()), (1, 1, 19));
    assert_eq!(server.ask_as(&ann, "POST", ROOT, r#"{"session_key":"t"}"#).status, 429);
}

#[test]
fn sandboxes_in_all_and_their_disks_count_while_they_are_stopped() {
    let server = Server::start_with(&["--set", "plan.sandboxes=2", "--set", "plan.disk_mb=100"]);
    let ann = key(&server, "ann", "standard");
    let first = created(&server, &ann, r#"{"disk_mb":60}"#);
    server.ask_as(&ann, "POST", &format!("{first}/stop"), "");
    let answer = server.ask_as(&ann, "POST", ROOT, r#"{"disk_mb":41}"#);
    let when = "when one of them is removed, or with a smaller disk_mb";
    let wanted = json!({"field": "disk_mb", "limit": "disk_mb", "plan": "free", "asked": 41, "used": 60,
        "allowed": 100, "when": when, "retry_after_seconds": 5});
    assert_eq!(refused(&answer, 429, "limit_exceeded"), wanted);
    let answer = server.ask_as(&ann, "PATCH", &first, r#"{"disk_mb":101}"#);
    let wanted = json!({"field": "disk_mb", "limit": "disk_mb", "plan": "free", "asked": 101, "used": 0,
        "allowed": 100, "when": when});
    assert_eq!(refused(&answer, 403, "permission_denied"), wanted);
    assert_eq!(server.ask_as(&ann, "PATCH", &first, r#"{"disk_mb":100}"#).status, 200);
    assert_eq!(server.ask_as(&ann, "POST", ROOT, r#"{"disk_mb":40}"#).status, 429);
    assert_eq!(server.ask_as(&ann, "PATCH", &first, r#"{"disk_mb":60}"#).status, 200);
    let second = created(&server, &ann, r#"{"disk_mb":40}"#);
    server.ask_as(&ann, "POST", &format!("{second}/stop"), "");
    let answer = server.ask_as(&ann, "POST", ROOT, r#"{"disk_mb":16}"#);
    let wanted = json!({"limit": "sandboxes", "plan": "free", "used": 2, "allowed": 2,
        "when": "when one of them is removed", "retry_after_seconds": 5});
    assert_eq!(refused(&answer, 429, "limit_exceeded"), wanted);
    assert_eq!(server.ask_as(&ann, "DELETE", &second, "").status, 204);
    created(&server, &ann, r#"{"disk_mb":40}"#);
}

#[test]
fn commands_have_a_rate_and_the_answer_says_when_to_come_back() {
    let server = Server::start_with(&["--set", "plan.execs_per_second=1", "--set", "plan.exec_burst=3"]);
    let ann = key(&server, "ann", "standard");
    let sandbox = created(&server, &ann, "{}");
    let exec = format!("{sandbox}/exec");
    let answers = at_once(&server, 40, &ann, &exec, r#"{"command":"true"}"#);
    let (ran, late) = (with_status(&answers, 200), with_status(&answers, 429));
    assert!(ran.len() >= 3 && !late.is_empty() && ran.len() + late.len() == 40, "{answers:?}");
    let wanted = json!({"limit": "execs_per_second", "plan": "free", "allowed": 1, "burst": 3,
        "retry_after_seconds": 1});
    assert_eq!(refused(late[0], 429, "limit_exceeded"), wanted);
    // What was refused so is not in the trail, which a flood must not fill.
    let told = server.ask("GET", "/api/v1/audit?kind=exec&limit=500", "").json();
    assert_eq!(told["entries"].as_array().unwrap().len(), ran.len());
    let answers = at_once(&server, 10, KEY, &exec, r#"{"command":"true"}"#);
    assert_eq!(with_status(&answers, 200).len(), 10, "an admin has no rate");
}

#[test]
fn an_owner_may_have_another_plan() {
    let server = Server::start();
    let ann = key(&server, "ann", "sandbox");
    let plans = json!({"atoll": {"plans": {"tiny": {"max_per_user": 1}}, "owners": {"ann": "tiny"}}});
    assert_eq!(server.ask("PATCH", SETTINGS, &plans.to_string()).status, 200);
    created(&server, &ann, r#"{"disk_mb":16}"#);
    let details = refused(&server.ask_as(&ann, "POST", ROOT, "{}"), 429, "limit_exceeded");
    assert_eq!((&details["plan"], &details["allowed"]), (&json!("tiny"), &json!(1)));
    let bob = key(&server, "bob", "sandbox");
    (0..2).for_each(|_| drop(created(&server, &bob, r#"{"disk_mb":16}"#)));
}
