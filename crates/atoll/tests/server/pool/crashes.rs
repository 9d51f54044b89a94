//! Whatever ends the server, nothing of its pool is left, and no sandbox is half a sandbox.

use super::{KEY, ROOT, World, eventually, keeping, nothing_else_is_there, sandboxes};
use crate::server::http;
use serde_json::json;
use std::{process::Command, thread, time::Duration};

#[test]
fn a_killed_server_leaves_nothing_of_its_pool() {
    let mut server = keeping(3, &[]);
    let kept = server.create(r#"{"disk_mb":16}"#);
    nothing_else_is_there(&server, 3);
    let before = World::of(&server).without(&sandboxes(&server));
    server.kill();
    server.restart();
    nothing_else_is_there(&server, 3);
    let after = World::of(&server);
    assert!(after.containers.is_disjoint(&before.containers) && after.volumes.is_disjoint(&before.volumes));
    assert_eq!(server.says(&kept, "echo here"), "here");
    // One that was claimed and then stopped keeps its volume, whatever is remembered of the pool.
    let stopped = server.create(r#"{"disk_mb":16}"#);
    server.says(&stopped, "echo kept >x");
    server.ask("POST", &format!("{stopped}/stop"), "");
    server.kill();
    server.restart();
    assert_eq!(server.ask("POST", &format!("{stopped}/resume"), "").status, 200);
    assert_eq!(server.says(&stopped, "cat x"), "kept");
}

#[test]
fn killed_in_the_middle_of_claims_it_leaves_no_half_sandbox() {
    let mut server = keeping(3, &[]);
    for round in 0..10u64 {
        let address = server.address;
        let busy = thread::spawn(move || {
            for n in 0..10 {
                let authorization = format!("Bearer {KEY}");
                let headers = [("Authorization", authorization.as_str())];
                let body = json!({"disk_mb": 20, "memory_mb": 100, "env_vars": {"N": n.to_string()},
                    "labels": {"n": n.to_string()}});
                let _ = http::request(address, "POST", ROOT, &headers, body.to_string().as_bytes());
            }
        });
        thread::sleep(Duration::from_millis(2 + round * 9));
        server.kill();
        busy.join().unwrap();
        server.restart();
        for sandbox in sandboxes(&server) {
            let path = format!("{ROOT}/{}", sandbox["id"].as_str().unwrap());
            match sandbox["status"].as_str().unwrap() {
                "running" => {}
                "stopped" | "dead" => {
                    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
                }
                other => panic!("{other}"),
            }
            assert_eq!(server.says(&path, "echo $N"), sandbox["labels"]["n"].as_str().unwrap());
            let now = server.ask("GET", &format!("{path}/metrics"), "").json()["now"].clone();
            let limits = ["memory_limit_bytes", "disk_limit_bytes"].map(|field| now[field].as_u64().unwrap());
            assert_eq!(limits, [100 << 20, 20 << 20], "{sandbox}");
            assert_eq!(server.ask("DELETE", &path, "").status, 204);
        }
        nothing_else_is_there(&server, 3);
    }
}

#[test]
fn a_server_that_ends_in_peace_takes_its_pool_along() {
    let mut server = keeping(3, &[]);
    let kept = server.create(r#"{"disk_mb":16}"#);
    let sandboxes = sandboxes(&server);
    let told = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(told.success() && server.child.wait().unwrap().success());
    eventually("the end of the pool", || World::of(&server).without(&sandboxes).is_empty());
    server.restart();
    assert_eq!(server.says(&kept, "echo here"), "here");
    nothing_else_is_there(&server, 3);
}
