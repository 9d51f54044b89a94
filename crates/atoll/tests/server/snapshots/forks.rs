//! Forks: sandboxes of their own, within tier, plan and disk.

use super::{both, keep, refused};
use crate::{engine::fixture::eventually, server::fixture::Server};
use atoll_launch_proto::Layout;
use serde_json::{Value, json};
use std::{fs, process::Command};

fn fork(server: &Server, sandbox: &str, body: &Value) -> String {
    let made = server.ask("POST", &format!("{sandbox}/fork"), &body.to_string());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    format!("/api/v1/sandboxes/{}", made.json()["id"].as_str().unwrap())
}

#[test]
fn a_fork_begins_with_the_files_and_goes_its_own_way() {
    for server in both(&["--set", "default_max_per_user=10"]) {
        let body = r#"{"env_vars":{"A":"1"},"secrets":{"S":"hidden"},"labels":{"team":"a"},"memory_mb":256,"disk_mb":64}"#;
        let sandbox = server.create(body);
        server.exec(&sandbox, "echo one > file; echo h > ~/h");
        let first = keep(&server, &sandbox, "first");
        server.exec(&sandbox, "echo two > file; (setsid sleep 1000 >/dev/null 2>&1 &)");
        let id = first.rsplit('/').next().unwrap();
        let old =
            fork(&server, &sandbox, &json!({ "snapshot": id, "memory_mb": 128, "labels": { "x": "y" } }));
        let live = fork(&server, &sandbox, &json!({}));
        let told = server.ask("GET", "/api/v1/events?kind=forked", "").json();
        let made = |event: &Value| format!("/api/v1/sandboxes/{}", event["data"]["fork"].as_str().unwrap());
        let told: Vec<String> = told["events"].as_array().unwrap().iter().map(made).collect();
        assert_eq!(told, [old.clone(), live.clone()]);
        assert_eq!(server.says(&old, "cat file ~/h; echo $A $S"), "one\nh\n1 hidden");
        assert_eq!(server.says(&live, "cat file; echo $A $S; pgrep -c sleep"), "two\n1 hidden\n0");
        let shown = server.ask("GET", &old, "").json();
        assert_eq!(
            (&shown["memory_mb"], &shown["disk_mb"], &shown["labels"], &shown["status"]),
            (&json!(128), &json!(64), &json!({ "x": "y" }), &json!("running"))
        );
        assert_eq!(server.ask("GET", &live, "").json()["labels"], json!({ "team": "a" }));
        server.exec(&old, "echo fork > file; echo more > more");
        server.exec(&sandbox, "echo three > file");
        assert_eq!(server.says(&sandbox, "cat file; ls"), "three\nfile");
        assert_eq!(server.says(&live, "cat file"), "two");
        // It outlives what it was made of.
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        assert_eq!(server.says(&old, "cat file more"), "fork\nmore");
        for one in [&old, &live] {
            assert_eq!(server.ask("POST", &format!("{one}/stop"), "").status, 200);
            assert_eq!(server.ask("POST", &format!("{one}/resume"), "").status, 200);
        }
        assert_eq!(server.says(&live, "cat file"), "two");
        assert_eq!(refused(&server, "POST", &format!("{sandbox}/fork"), "{}", 409), "not_running");
    }
}

#[test]
fn tier_plan_and_disk_hold_for_forks() {
    let server = Server::start_with(&["--set", "plan.sandboxes=2", "--set", "plan.disk_mb=200"]);
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"a","owner":"ann","scope":"user"}"#).json();
    let ann = made["key"].as_str().unwrap();
    let ask = |path: &str, body: &str| server.ask_as(ann, "POST", path, body);
    let sandbox = ask("/api/v1/sandboxes", r#"{"disk_mb":64}"#).json();
    let sandbox = format!("/api/v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
    let fork = format!("{sandbox}/fork");
    let exec = json!({ "command": "head -c 30000000 /dev/urandom > big; sync" }).to_string();
    assert_eq!(ask(&format!("{sandbox}/exec"), &exec).status, 200);
    let too_much = ask(&fork, r#"{"memory_mb":1000000}"#);
    assert_eq!(too_much.status, 403, "{too_much:?}");
    let too_large = ask(&fork, r#"{"disk_mb":150}"#);
    assert_eq!(
        (too_large.status, too_large.json()["error"]["details"]["limit"].clone()),
        (429, json!("disk_mb"))
    );
    let too_small = ask(&fork, r#"{"disk_mb":20}"#);
    assert_eq!(
        (too_small.status, too_small.json()["error"]["code"].clone()),
        (409, json!("conflict")),
        "{too_small:?}"
    );
    let text = String::from_utf8_lossy(&too_small.body).into_owned();
    assert!(text.contains("disk_mb") && text.contains("MiB is the least"), "{text}");
    let wrong = ask(&fork, r#"{"image":"host"}"#);
    assert_eq!(wrong.status, 422);
    assert_eq!(ask(&fork, "{}").status, 201);
    let one_more = ask(&fork, "{}");
    assert_eq!(
        (one_more.status, one_more.json()["error"]["details"]["limit"].clone()),
        (429, json!("sandboxes"))
    );
    // A fork that was refused holds nothing of the plan.
    let all = server.ask_as(ann, "GET", "/api/v1/sandboxes", "").json();
    assert_eq!(all["total"], 2);
    let fork_id = all["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
    let made: Vec<&str> = fork_id.filter(|id| !sandbox.ends_with(id)).collect();
    assert_eq!(server.ask_as(ann, "DELETE", &format!("/api/v1/sandboxes/{}", made[0]), "").status, 204);
    assert_eq!(ask(&fork, "{}").status, 201);
}

/// What one fork may hold, in mebibytes.
const DISK: usize = 48;

/// `make test` has 40 forks; `make forks` 200, set by `ATOLL_FORKS`.
#[test]
fn many_forks_come_and_go_and_quotas_are_true() {
    let count: usize = std::env::var("ATOLL_FORKS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let plan = [format!("plan.sandboxes={}", count + 1), format!("plan.disk_mb={}", (count + 1) * DISK)];
    let server = Server::start_with(&["--set", &plan[0], "--set", &plan[1]]);
    let pool = Layout::new(&server.data().canonicalize().unwrap()).run().join("pool");
    let used = || {
        let synced = Command::new("btrfs").args(["filesystem", "sync"]).arg(&pool).status().unwrap();
        assert!(synced.success());
        let disk = rustix::fs::statvfs(&pool).unwrap();
        ((disk.f_blocks - disk.f_bfree) * disk.f_frsize) >> 20
    };
    let volumes = || fs::read_dir(pool.join("volumes")).unwrap().count();
    let ann = server.key_of("ann", "user");
    let ask = |method: &str, path: &str, body: &Value| server.ask_as(&ann, method, path, &body.to_string());
    let exec = |sandbox: &str, line: &str| {
        let answer = ask("POST", &format!("{sandbox}/exec"), &json!({ "command": line }));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let new = |answer: crate::server::http::Answer| {
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        format!("/api/v1/sandboxes/{}", answer.json()["id"].as_str().unwrap())
    };
    let source = new(ask("POST", "/api/v1/sandboxes", &json!({ "disk_mb": DISK })));
    exec(&source, "echo one > file; head -c 10000000 /dev/urandom > big; sync");
    let snapshot = ask("POST", &format!("{source}/snapshots"), &json!({})).json()["id"].clone();
    exec(&source, "echo two > file");
    let (before, trees) = (used(), volumes());
    let fork = || ask("POST", &format!("{source}/fork"), &json!({ "snapshot": snapshot }));
    let forks: Vec<String> = (0..count)
        .map(|_| {
            let made = new(fork());
            let said = exec(&made, "cat file; head -c 100000 /dev/urandom > own; wc -c < big");
            assert_eq!(said["stdout"], "one\n10000000\n");
            assert_eq!(ask("POST", &format!("{made}/stop"), &json!({})).status, 200);
            made
        })
        .collect();
    let full = fork();
    assert_eq!((full.status, &full.json()["error"]["details"]["limit"]), (429, &json!("sandboxes")));
    // They share what they did not write.
    let taken = used() - before;
    assert!(taken < 2 * count as u64 + 20, "{count} forks take {taken} MiB");
    // What a fork shares counts in it.
    let last = &forks[count - 1];
    assert_eq!(ask("POST", &format!("{last}/resume"), &json!({})).status, 200);
    exec(last, "head -c 60000000 /dev/urandom > more; sync");
    let written: u64 = exec(last, "wc -c < more")["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!((20_000_000..=40_500_000).contains(&written), "{written} of {DISK} MiB less 10 MB");
    for fork in &forks {
        assert_eq!(ask("DELETE", fork, &json!({})).status, 204);
    }
    // The plan, the storage and the pool are what they were.
    let plans =
        json!({ "atoll": { "plans": { "small": { "disk_mb": DISK + 10 } }, "owners": { "ann": "small" } } });
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", &plans.to_string()).status, 200);
    let refusal = ask("POST", "/api/v1/sandboxes", &json!({ "disk_mb": 11 })).json();
    assert_eq!(refusal["error"]["details"]["used"], DISK, "{refusal}");
    eventually("no volume of them", || volumes() == trees);
    eventually("room", || used() <= before + 4);
    let groups = Command::new("btrfs").args(["qgroup", "show"]).arg(&pool).output().unwrap();
    let groups = String::from_utf8(groups.stdout).unwrap();
    assert!(groups.lines().count() < 30, "{groups}");
    assert_eq!(exec(&source, "cat file")["stdout"], "two\n");
}

/// Whether commands of another sandbox began and ended while a request was being carried out.
fn others_went_on(server: &Server, other: &str, path: &str, body: &str) -> bool {
    let (commands, answer) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| server.ask("POST", path, body));
        let mut commands = 0;
        loop {
            assert_eq!(server.exec(other, "true")["exit_code"], 0);
            if asking.is_finished() {
                return (commands, asking.join().unwrap());
            }
            commands += 1;
        }
    });
    assert!(answer.status / 100 == 2, "{answer:?}");
    if path.ends_with("/fork") {
        let made = format!("/api/v1/sandboxes/{}", answer.json()["id"].as_str().unwrap());
        assert_eq!(server.ask("DELETE", &made, "").status, 204);
    }
    // The first may have been there before the request was.
    commands > 1
}

#[test]
fn others_go_on_while_a_large_sandbox_is_copied() {
    for server in super::both(&[]) {
        others_go_on(&server);
    }
}

fn others_go_on(server: &Server) {
    let large = server.create(r#"{"disk_mb":1000}"#);
    let other = server.create("{}");
    // Where files share their blocks, it is their number that takes time.
    let fill = "mkdir many; cd many; for i in $(seq 2000); do echo $i > $i; done; head -c 40000000 /dev/urandom > big";
    assert_eq!(server.exec(&large, fill)["exit_code"], 0);
    let snapshot = super::keep(server, &large, "large");
    for (path, body) in
        [(format!("{large}/fork"), "{}"), (format!("{snapshot}/rollback"), r#"{"keep_before":false}"#)]
    {
        // A copy may be as quick as a command, but not each time.
        assert!((0..5).any(|_| others_went_on(server, &other, &path, body)), "{path}");
    }
    // So many files are removed before the server is told to end.
    assert_eq!(server.ask("DELETE", &large, "").status, 204);
}
