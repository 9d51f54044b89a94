//! What died or is out of date is replaced before anybody gets it, and the pool yields to sandboxes.

use super::{Server, World, eventually, keeping, key, of, record, sandboxes};
use serde_json::Value;
use std::{fs, process::Command, thread};

fn pid(server: &Server, container: &str) -> String {
    let record: Value = serde_json::from_slice(&fs::read(record(server, container)).unwrap()).unwrap();
    record["pid"].to_string()
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

#[test]
fn one_that_died_is_not_handed_out() {
    let server = keeping(2, &[]);
    for round in 0..4 {
        let before = World::of(&server).without(&sandboxes(&server));
        before.containers.iter().for_each(|container| kill(&pid(&server, container)));
        // At once, and when it may be known already.
        if round % 2 == 1 {
            eventually("the news", || World::of(&server).containers.is_disjoint(&before.containers));
        }
        let path = server.create(r#"{"disk_mb":16,"env_vars":{"A":"b"}}"#);
        assert_eq!(server.says(&path, "echo $A"), "b");
        let container = server.ask("GET", &path, "").json()["container_id"].as_str().unwrap().to_owned();
        assert!(!before.containers.contains(&container));
        super::nothing_else_is_there(&server, 2);
    }
}

#[test]
fn one_of_an_older_image_is_not_handed_out() {
    let server = keeping(2, &[]);
    let before = World::of(&server);
    for container in &before.containers {
        let path = record(&server, container);
        let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["image"] = "host-of-yesterday".into();
        fs::write(path, record.to_string()).unwrap();
    }
    let path = server.create(r#"{"disk_mb":16,"env_vars":{"A":"b"}}"#);
    assert_eq!(server.says(&path, "echo $A"), "b");
    super::nothing_else_is_there(&server, 2);
    assert!(World::of(&server).containers.is_disjoint(&before.containers));
}

#[test]
fn a_launcher_that_was_restarted_changes_nothing() {
    let server = keeping(2, &[]);
    let before = World::of(&server);
    let asked = format!("atoll-launch.*{}", server.data().display());
    let find = |more: &[&str]| {
        let found = Command::new("pgrep").args(more).args(["-f", &asked]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let monitor = find(&["-o"]);
    kill(&find(&["-P", &monitor]));
    eventually("a launcher", || server.ask("GET", "/health", "").status == 200);
    let path = server.create(r#"{"disk_mb":16}"#);
    let container = server.ask("GET", &path, "").json()["container_id"].as_str().unwrap().to_owned();
    assert!(before.containers.contains(&container) || of(&server, "misses") == 1);
    assert_eq!(server.says(&path, "echo here"), "here");
}

/// What the machine gives in all is what one create asks for.
#[test]
fn the_pool_gives_way_to_a_sandbox_that_does_not_fit_beside_it() {
    let there = thread::available_parallelism().unwrap().get() as f64;
    let ratio = format!("admission.cpu_ratio={}", 3.0 / there);
    let server = keeping(2, &["--set", &ratio, "--set", "admission.wait_seconds=0"]);
    let path = server.create(r#"{"cpu_cores":3,"disk_mb":16}"#);
    assert_eq!(server.says(&path, "echo here"), "here");
    assert_eq!((of(&server, "ready"), of(&server, "misses")), (0, 1));
    eventually("a reason", || {
        key(&server)["last_failure"]["reason"].as_str().is_some_and(|r| r.contains("room"))
    });
    // Nothing is left over to give, and that is said at once.
    assert_eq!(server.ask("POST", super::ROOT, "{}").status, 429);
    server.ask("DELETE", &path, "");
    super::nothing_else_is_there(&server, 2);
    // Three of one core each: two claims, and one more beside them while the pool has nothing.
    let three: Vec<String> = (0..3).map(|_| server.create(r#"{"cpu_cores":1,"disk_mb":16}"#)).collect();
    three.iter().for_each(|path| assert_eq!(server.says(path, "echo here"), "here"));
}
