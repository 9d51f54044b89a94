//! What a create gets from the pool: a sandbox like any other, and of its owner alone.

use super::{KEY, ROOT, Server, World, eventually, keeping, of, sandboxes};
use serde_json::{Value, json};
use std::{collections::BTreeSet, thread};

/// Fields that differ between any two sandboxes.
const OWN: [&str; 7] =
    ["id", "container_id", "volume_name", "created_at", "last_activity_at", "updated_at", "session_key"];

fn common(server: &Server, path: &str) -> Value {
    let mut sandbox = server.ask("GET", path, "").json();
    let fields = sandbox.as_object_mut().unwrap();
    fields.retain(|name, _| !OWN.contains(&name.as_str()));
    sandbox
}

/// What is inside, as far as it does not change from one moment to the next.
const INSIDE: &str = "env | sort; cat /proc/self/limits; id; hostname; nproc; umask; \
     stat -c '%n %u %g %a' / /workspace /home/user /tmp /etc/passwd; ls -la /workspace /home/user | wc -l; \
     sed 's/^[0-9]* [0-9]* [0-9:]* //; s/ master:[0-9]*//; s/[ug]id=[0-9]*//g; s/subvolid=[0-9]*//; s/atoll[^ ,]*//g; s/qgroups.[0-9_]*//; s/[0-9a-f-]\\{32,36\\}//g' \
     /proc/self/mountinfo | sort; cat /proc/1/comm; set -- /proc/[0-9]*; echo $#; grep -c . /proc/net/tcp; df -h /dev/shm; \
     head -c 90M /dev/zero >f 2>&1; stat -c %s f; rm f";

fn limits(server: &Server, path: &str) -> Value {
    let now = server.ask("GET", &format!("{path}/metrics"), "").json()["now"].clone();
    ["memory_limit_bytes", "disk_limit_bytes", "processes_limit", "cpu_limit_cores"]
        .map(|field| now[field].clone())
        .into()
}

#[test]
fn a_claimed_sandbox_is_as_one_that_was_made() {
    let server = keeping(2, &[]);
    let asked = [
        json!({}),
        json!({"memory_mb": 300, "cpu_cores": 0.5, "disk_mb": 64, "processes": 77, "idle_timeout_seconds": 99,
            "env_vars": {"A": "plain", "HTTP_PROXY": "http://proxy.example"}, "secrets": {"S": "hidden"},
            "labels": {"team": "one"}}),
    ];
    let claimed = asked.clone().map(|body| server.create(&body.to_string()));
    assert_eq!((of(&server, "hits"), of(&server, "misses")), (2, 0));
    assert_eq!(server.ask("POST", "/api/v1/pool/drain", r#"{"stop":true}"#).status, 200);
    let made = asked.map(|body| server.create(&body.to_string()));
    assert_eq!((of(&server, "hits"), of(&server, "ready")), (2, 0));
    for (one, other) in claimed.iter().zip(&made) {
        assert_eq!(common(&server, one), common(&server, other));
        assert_eq!(limits(&server, one), limits(&server, other));
        assert_eq!(server.says(one, INSIDE), server.says(other, INSIDE));
        let kinds = |path: &str| {
            let told =
                server.ask("GET", &format!("/api/v1/events?sandbox_id={}", &path[ROOT.len() + 1..]), "");
            let events = told.json();
            let items = events["events"].as_array().or_else(|| events["items"].as_array()).cloned();
            items.unwrap().iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(one), kinds(other));
        let activity = |path: &str| {
            server.ask("GET", &format!("{path}/activity"), "").json()["items"][0]["kind"].clone()
        };
        assert_eq!(activity(one), activity(other));
    }
    assert!(server.says(&claimed[1], "echo $A $S $HTTP_PROXY").starts_with("plain hidden http://proxy"));
    // Its volume is its own for good.
    server.says(&claimed[0], "echo kept >/workspace/x");
    assert_eq!(server.ask("POST", &format!("{}/stop", claimed[0]), "").status, 200);
    assert_eq!(server.ask("POST", &format!("{}/resume", claimed[0]), "").status, 200);
    assert_eq!(server.says(&claimed[0], "cat x"), "kept");
    for path in claimed.iter().chain(&made) {
        assert_eq!(server.ask("DELETE", path, "").status, 204);
    }
    assert!(World::of(&server).is_empty(), "{:?}", World::of(&server));
}

#[test]
fn what_one_may_reach_is_set_by_the_claim() {
    let server = keeping(2, &[]);
    let listed = json!({"egress": {"mode": "allowlist", "allow": ["only.example"]}});
    let [closed, open] =
        [json!({"network_enabled": false}), listed].map(|body| server.create(&body.to_string()));
    assert_eq!(of(&server, "hits"), 2);
    let refused = "python3 -c 'import socket; s=socket.create_connection((\"127.0.0.1\",3128),5); \
        s.sendall(b\"CONNECT nowhere.example:443 HTTP/1.1\\r\\n\\r\\n\"); print(s.recv(200).split()[1].decode())'";
    for path in [closed, open] {
        // The proxy answers on the egress socket, and allows this sandbox no such host.
        assert_eq!(server.says(&path, refused), "403", "{path}");
    }
}

#[test]
fn each_is_handed_out_once_however_many_ask_at_once() {
    let server = keeping(5, &[]);
    let at_once = thread::scope(|scope| {
        let ask = || server.ask_as(KEY, "POST", ROOT, r#"{"disk_mb":16}"#);
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(at_once.iter().all(|made| made.status == 201), "{at_once:?}");
    let all = sandboxes(&server);
    for field in ["container_id", "volume_name"] {
        let different: BTreeSet<&str> = all.iter().map(|one| one[field].as_str().unwrap()).collect();
        assert_eq!(different.len(), 20, "{field}");
    }
    let (hits, misses) = (of(&server, "hits"), of(&server, "misses"));
    assert!(hits >= 5 && hits + misses == 20, "{hits} and {misses}");
    for one in &all {
        let path = format!("{ROOT}/{}", one["id"].as_str().unwrap());
        let said = server.says(&path, "ls -A /workspace /tmp | tr -d '\\n'; echo mine >/workspace/x");
        assert_eq!(said, "/tmp:/workspace:");
    }
    super::nothing_else_is_there(&server, 5);
}

#[test]
fn with_a_session_key_there_is_one() {
    let server = keeping(3, &[]);
    let body = r#"{"session_key":"s","disk_mb":16}"#;
    let paths: BTreeSet<String> = thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| server.create(body))).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!((paths.len(), sandboxes(&server).len()), (1, 1));
    assert_eq!(of(&server, "hits"), 1);
    super::nothing_else_is_there(&server, 3);
}

#[test]
fn the_target_follows_demand_within_its_bounds() {
    let more = ["--set", "pool.max=4"];
    let server = keeping(1, &more);
    for _ in 0..6 {
        server.create(r#"{"disk_mb":16}"#);
    }
    assert_eq!(of(&server, "target"), 4);
    eventually("as many as are asked for", || of(&server, "ready") == 4);
    super::nothing_else_is_there(&server, 4);
}
