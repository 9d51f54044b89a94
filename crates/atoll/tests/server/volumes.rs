//! Volumes of owners and path rules, through the API: shared, counted, kept, and repaired after a crash.

use super::{
    fixture::{KEY, Server},
    image_imports,
};
use crate::engine::fixture::eventually;
use atoll_launch_proto::Layout;
use atoll_provider::{Provider, Volumes};
use atoll_provider_native::{LauncherClient, NativeProvider};
use atoll_store::Volumes as StoredVolumes;
use atoll_store_sqlite::SqliteStore;
use serde_json::{Value, json};
use std::{sync::Arc, thread, time::Duration};

fn key(server: &Server, owner: &str, tier: &str) -> String {
    let body = json!({"name": "k", "owner": owner, "tier": tier}).to_string();
    server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
}

fn volume(server: &Server, name: &str, disk_mb: u64) {
    let made = server.ask("POST", "/api/v1/volumes", &json!({"name": name, "disk_mb": disk_mb}).to_string());
    assert_eq!(made.status, 201, "{made:?}");
}

fn names(server: &Server) -> Vec<String> {
    let all = server.ask("GET", "/api/v1/volumes", "").json();
    all["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// How many volumes the launcher has, of sandboxes or not.
fn trees(server: &Server) -> usize {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(provider.volumes().unwrap().list_volumes()).unwrap().len()
}

#[test]
fn two_sandboxes_share_a_volume_that_outlives_them() {
    shared_and_kept(Server::start());
}

#[test]
fn two_sandboxes_share_a_volume_that_outlives_them_on_plain_folders() {
    shared_and_kept(Server::start_on_folders(&[]));
}

fn shared_and_kept(mut server: Server) {
    volume(&server, "data", 64);
    let again = server.ask("POST", "/api/v1/volumes", r#"{"name":"data"}"#);
    assert_eq!(
        (again.status, again.json()["error"]["code"].as_str()),
        (409, Some("already_exists")),
        "{again:?}"
    );
    let writer = server.create(r#"{"disk_mb":64,"volumes":[{"name":"data","path":"/mnt/data"}]}"#);
    let reader = server
        .create(r#"{"disk_mb":64,"volumes":[{"name":"data","path":"/srv/shared/data","read_only":true}]}"#);
    server.exec(&writer, "echo one > /mnt/data/f");
    assert_eq!(
        server.says(&reader, "cat /srv/shared/data/f; touch /srv/shared/data/x 2>/dev/null || echo no"),
        "one\nno"
    );
    let shown = server.ask("GET", &reader, "").json();
    assert_eq!(shown["volumes"], json!([{"name":"data","path":"/srv/shared/data","read_only":true}]));
    let one = server.ask("GET", "/api/v1/volumes/data", "").json();
    assert_eq!(
        (one["disk_mb"].as_u64(), one["attached_to"].as_array().unwrap().len()),
        (Some(64), 2),
        "{one}"
    );
    // Plain folders are not counted, and no one is told that they are empty.
    assert_eq!(one["used_bytes"].is_null(), server.data().join("storage/dir").exists(), "{one}");
    assert!(one.as_object().unwrap().contains_key("used_bytes"), "{one}");
    // Stopped sandboxes have it too.
    server.ask("POST", &format!("{writer}/stop"), "");
    let refused = server.ask("DELETE", "/api/v1/volumes/data", "");
    assert_eq!(
        (refused.status, refused.json()["error"]["details"]["attached_to"].as_array().unwrap().len()),
        (409, 2)
    );
    assert_eq!(server.ask("PATCH", "/api/v1/volumes/data", r#"{"disk_mb":80}"#).status, 200);
    // Neither the end of the server nor that of a container touches it.
    server.kill();
    server.restart();
    assert_eq!(server.says(&reader, "cat /srv/shared/data/f"), "one");
    assert_eq!(server.ask("POST", &format!("{writer}/resume"), "").status, 200);
    assert_eq!(server.says(&writer, "echo two >> /mnt/data/f; cat /mnt/data/f"), "one\ntwo");
    for path in [&writer, &reader] {
        assert_eq!(server.ask("DELETE", path, "").status, 204);
    }
    let third = server.create(r#"{"disk_mb":64,"volumes":[{"name":"data","path":"/mnt/data"}]}"#);
    assert_eq!(server.says(&third, "cat /mnt/data/f"), "one\ntwo");
    assert_eq!(server.ask("DELETE", &third, "").status, 204);
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/data", "").status, 204);
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/data", "").status, 404);
    assert_eq!((names(&server), trees(&server)), (vec![], 0));
    let kinds = server.ask("GET", "/api/v1/events?limit=1000", "").json();
    let kinds = kinds["events"].as_array().unwrap().iter().filter_map(|event| event["kind"].as_str());
    let kinds: Vec<&str> = kinds.filter(|kind| kind.starts_with("volume.")).collect();
    assert_eq!(kinds, ["volume.created", "volume.resized", "volume.deleted"]);
}

#[test]
fn volumes_change_while_a_sandbox_is_stopped() {
    changed_while_stopped(&Server::start());
}

#[test]
fn volumes_change_while_a_sandbox_is_stopped_on_plain_folders() {
    changed_while_stopped(&Server::start_on_folders(&[]));
}

fn changed_while_stopped(server: &Server) {
    volume(server, "first", 32);
    volume(server, "second", 32);
    let path = server.create(r#"{"disk_mb":64,"volumes":[{"name":"first","path":"/mnt/first"}]}"#);
    server.exec(&path, "echo 1 > /mnt/first/f");
    let change = r#"{"volumes":[{"name":"second","path":"/mnt/second"}]}"#;
    assert_eq!(server.ask("PATCH", &path, change).status, 409, "while it runs");
    server.ask("POST", &format!("{path}/stop"), "");
    // A file request holds the volumes of before, for a moment.
    assert_eq!(server.ask("GET", &format!("{path}/fs/stat?path=/mnt/first/f"), "").status, 200);
    let changed = server.ask("PATCH", &path, change);
    assert_eq!(
        (changed.status, &changed.json()["volumes"][0]["name"]),
        (200, &json!("second")),
        "{changed:?}"
    );
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/first", "").status, 204, "it is attached no more");
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/second", "").status, 409);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "ls /mnt"), "second");
    server.ask("POST", &format!("{path}/stop"), "");
    // The sandbox that is asked for is there, and one of the same fields is not made either.
    let unknown = r#"{"volumes":[{"name":"first","path":"/mnt/x"}]}"#;
    for (method, path) in [("PATCH", path.as_str()), ("POST", "/api/v1/sandboxes")] {
        let gone = server.ask(method, path, unknown);
        let loc = || gone.json()["detail"][0]["loc"].clone();
        assert_eq!((gone.status, loc()), (422, json!(["body", "volumes"])), "{method}: {gone:?}");
    }
    assert_eq!(server.ask("PATCH", &path, r#"{"volumes":[]}"#).status, 200);
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/second", "").status, 204);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
}

#[test]
fn a_tenants_storage_stays_when_the_other_volumes_change() {
    let server = Server::start();
    volume(&server, "data", 32);
    let path = server.create(r#"{"disk_mb":64,"tenant_id":"t"}"#);
    server.exec(&path, "echo kept > /mnt/user-data/f");
    let tenant = server.ask("GET", &path, "").json()["volumes"][0].clone();
    server.ask("POST", &format!("{path}/stop"), "");
    for (change, expected) in [
        (json!([{"name":"data","path":"/mnt/data"}]), vec![json!("/mnt/data"), json!("/mnt/user-data")]),
        (json!([]), vec![json!("/mnt/user-data")]),
        // Who names it decides how it is attached.
        (json!([{"name":tenant["name"],"path":"/mnt/elsewhere"}]), vec![json!("/mnt/elsewhere")]),
        (json!([{"name":tenant["name"],"path":"/mnt/user-data"}]), vec![json!("/mnt/user-data")]),
    ] {
        let changed = server.ask("PATCH", &path, &json!({"volumes": change}).to_string());
        assert_eq!(changed.status, 200, "{changed:?}");
        let changed = changed.json();
        let paths: Vec<&Value> =
            changed["volumes"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
        assert_eq!(paths, expected.iter().collect::<Vec<_>>(), "{change}");
    }
    let told = server.ask("GET", "/api/v1/events?after=0&kind=volumes_changed", "").json();
    assert_eq!(told["events"].as_array().unwrap().len(), 4, "{told}");
    // By the command line too.
    let id = path.rsplit('/').next().unwrap();
    let change = ["update", id, "--volume", "data:/mnt/data:ro", "--auto-snapshot", "before_exec", "--json"];
    let (code, out, error) = server.atoll(&change);
    assert_eq!(code, Some(0), "{error}");
    let changed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(changed["auto_snapshot"], "before_exec");
    assert_eq!(changed["volumes"][0], json!({"name":"data","path":"/mnt/data","read_only":true}));
    let taken = server.ask("PATCH", &path, r#"{"volumes":[{"name":"data","path":"/mnt/user-data"}]}"#);
    assert_eq!(taken.status, 422, "{taken:?}");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat /mnt/user-data/f"), "kept");
}

#[test]
fn an_owners_volumes_are_hidden_from_others() {
    let server = Server::start();
    let (ann, bob) = (key(&server, "ann", "elevated"), key(&server, "bob", "elevated"));
    let made = server.ask_as(&ann, "POST", "/api/v1/volumes", r#"{"name":"data","disk_mb":32}"#);
    assert_eq!(made.status, 201, "{made:?}");
    for (method, path, body) in [
        ("GET", "/api/v1/volumes/data", ""),
        ("GET", "/api/v1/volumes/data?owner=ann", ""),
        ("PATCH", "/api/v1/volumes/data?owner=ann", r#"{"disk_mb":64}"#),
        ("DELETE", "/api/v1/volumes/data?owner=ann", ""),
        ("GET", "/api/v1/volumes?owner=ann", ""),
    ] {
        let answer = server.ask_as(&bob, method, path, body);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    let attach = r#"{"volumes":[{"name":"data","path":"/mnt/data"}]}"#;
    assert_eq!(server.ask_as(&bob, "POST", "/api/v1/sandboxes", attach).status, 422);
    assert_eq!(server.ask_as(&bob, "GET", "/api/v1/volumes", "").json()["items"], json!([]));
    // The same name and the same tenant are each owner's own.
    let own = server.ask_as(&bob, "POST", "/api/v1/volumes", r#"{"name":"data","disk_mb":32}"#);
    assert_eq!(own.status, 201, "{own:?}");
    let tenant = |key: &str, text: &str| {
        let made = server.ask_as(key, "POST", "/api/v1/sandboxes", r#"{"disk_mb":64,"tenant_id":"t"}"#);
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/api/v1/sandboxes/{}", made.json()["id"].as_str().unwrap());
        let said = server.says(&path, &format!("cd /mnt/user-data/outputs && cat f; echo {text} >> f"));
        assert_eq!(server.ask_as(key, "DELETE", &path, "").status, 204);
        said
    };
    assert_eq!((tenant(&ann, "ann").as_str(), tenant(&bob, "bob").as_str()), ("", ""));
    assert_eq!((tenant(&ann, "x").as_str(), tenant(&bob, "y").as_str()), ("ann", "bob"));
    let all = server.ask_as(&ann, "GET", "/api/v1/volumes", "").json();
    let tenants: Vec<&Value> = all["items"].as_array().unwrap().iter().map(|one| &one["tenant_id"]).collect();
    assert_eq!(tenants, [&Value::Null, &json!("t")], "{all}");
    assert_eq!(server.ask("GET", "/api/v1/volumes", "").json()["total"], 4, "an admin sees all");
    let page = server.ask("GET", "/api/v1/volumes?page=2&page_size=3", "").json();
    assert_eq!((page["items"].as_array().unwrap().len(), &page["total"]), (1, &json!(4)), "{page}");
    assert_eq!(server.ask("GET", "/api/v1/volumes?page_size=0", "").status, 422);
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/data?owner=ann", "").status, 204);
}

#[test]
fn volumes_count_towards_tier_plan_and_machine() {
    let server = Server::start();
    let settings =
        json!({"atoll": {"plans": {"small": {"volumes": 2, "disk_mb": 300}}, "owners": {"ann": "small"}}});
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", &settings.to_string()).status, 200);
    let ann = key(&server, "ann", "sandbox");
    let ask = |method: &str, path: &str, body: Value| server.ask_as(&ann, method, path, &body.to_string());
    let make = |name: &str, mb: u64| ask("POST", "/api/v1/volumes", json!({"name": name, "disk_mb": mb}));
    let limit = |answer: &super::http::Answer| {
        (answer.status, answer.json()["error"]["details"]["limit"].as_str().map(str::to_owned))
    };
    let above = make("a", 513);
    assert_eq!((above.status, above.json()["error"]["details"]["tier"].as_str()), (403, Some("sandbox")));
    assert_eq!(make("a", 100).status, 201);
    assert_eq!(limit(&make("b", 201)), (429, Some("disk_mb".into())));
    assert_eq!(make("b", 100).status, 201);
    assert_eq!(limit(&make("c", 10)), (429, Some("volumes".into())));
    // The disks of sandboxes and volumes are one sum.
    assert_eq!(
        limit(&ask("POST", "/api/v1/sandboxes", json!({"disk_mb": 101}))),
        (429, Some("disk_mb".into()))
    );
    assert_eq!(
        limit(&ask("PATCH", "/api/v1/volumes/b", json!({"disk_mb": 201}))),
        (429, Some("disk_mb".into()))
    );
    assert_eq!(ask("PATCH", "/api/v1/volumes/b", json!({"disk_mb": 50})).json()["disk_mb"], 50);
    assert_eq!(ask("DELETE", "/api/v1/volumes/a", Value::Null).status, 204);
    assert_eq!(make("c", 250).status, 201);
    assert_eq!(ask("POST", "/api/v1/volumes", json!({"name": "d", "disk_mb": 0})).status, 422);
    // The machine's ledger, which an admin does not pass either.
    let server = Server::start_with(&["--set", "admission.disk_ratio=0.01"]);
    let refused = server.ask("POST", "/api/v1/volumes", r#"{"name":"a","disk_mb":1000000000}"#);
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["resource"]),
        (403, &json!("disk_mb")),
        "{refused:?}"
    );
    assert_eq!(trees(&server), 0);
}

#[test]
fn what_a_killed_server_left_half_done_is_done_at_the_next_start() {
    for server in super::snapshots::both(&[]) {
        half_done_is_done(server);
    }
}

fn half_done_is_done(mut server: Server) {
    volume(&server, "unmade", 32);
    volume(&server, "undeleted", 32);
    volume(&server, "kept", 32);
    assert_eq!(trees(&server), 3);
    server.kill();
    // As it is between the record and the volume, and between the mark and the end.
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&server.data().join("server/atoll.db")).await.unwrap();
        let all = store.volumes(None).await.unwrap();
        let id = |name: &str| all.iter().find(|one| one.name.as_str() == name).unwrap().id;
        Volumes::remove_volume(&provider, id("unmade")).await.unwrap();
        assert_eq!(store.begin_delete_volume(id("undeleted")).await.unwrap(), vec![]);
        store.close().await;
    });
    server.restart();
    assert_eq!((names(&server), trees(&server)), (vec!["kept".to_owned(), "unmade".to_owned()], 2));
    let path = server.create(r#"{"disk_mb":64,"volumes":[{"name":"unmade","path":"/mnt/data"}]}"#);
    assert_eq!(server.says(&path, "echo x > /mnt/data/x; cat /mnt/data/x"), "x");
}

#[test]
fn a_server_killed_while_volumes_come_and_go_leaves_none_behind() {
    for server in super::snapshots::both(&[]) {
        none_is_left_behind(server);
    }
}

fn none_is_left_behind(mut server: Server) {
    for round in 0..4 {
        thread::scope(|scope| {
            let address = server.address;
            for worker in 0..3 {
                scope.spawn(move || {
                    let authorization = format!("Bearer {KEY}");
                    let ask = |method: &str, path: &str, body: String| {
                        super::http::request(
                            address,
                            method,
                            path,
                            &[("Authorization", &authorization)],
                            body.as_bytes(),
                        )
                    };
                    for number in 0.. {
                        let name = format!("v{round}-{worker}-{number}");
                        let body = json!({"name": name, "disk_mb": 16}).to_string();
                        let made = ask("POST", "/api/v1/volumes", body);
                        let gone = ask("DELETE", &format!("/api/v1/volumes/{name}"), String::new());
                        if made.is_err() || gone.is_err() {
                            return;
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(300 + 70 * round));
            server.kill();
        });
        server.restart();
        // What is recorded is there, and what is there is recorded.
        eventually("a repaired server", || trees(&server) == names(&server).len());
    }
    for name in names(&server) {
        assert_eq!(server.ask("DELETE", &format!("/api/v1/volumes/{name}"), "").status, 204);
    }
    assert_eq!(trees(&server), 0);
}

#[test]
fn path_rules_are_asked_for_in_a_create() {
    path_rules(&Server::start_with(&["--set", "warm_pool_enabled=true", "--set", "pool.min=1"]));
}

#[test]
fn path_rules_are_asked_for_in_a_create_on_plain_folders() {
    path_rules(&Server::start_on_folders(&["--set", "warm_pool_enabled=true", "--set", "pool.min=1"]));
}

fn path_rules(server: &Server) {
    let pool = || server.ask("GET", "/api/v1/pool", "").json()["keys"][0].clone();
    eventually("a full pool", || pool()["ready"] == 1);
    let path = server.create(
        r#"{"disk_mb":64,"filesystem":{"read_only":["/workspace/data"],"read_write":["/workspace/output"],
            "blocked":["/etc","/root"]}}"#,
    );
    // A container of the pool has no rules, so it is for another sandbox.
    assert_eq!(pool()["hits"], 0);
    assert!(pool()["ready"].as_u64().unwrap() >= 1, "{}", pool());
    let seen =
        "touch data/x 2>/dev/null || echo no; touch output/x && echo yes; ls /etc 2>/dev/null || echo no";
    assert_eq!(server.says(&path, seen), "no\nyes\nno");
    // The owner's file requests still write what commands may only read, running or stopped.
    assert_eq!(server.ask("PUT", &format!("{path}/files/data/f"), "1").status, 204);
    assert_eq!(server.ask("POST", &format!("{path}/fs/mkdir"), r#"{"path":"data/d"}"#).status / 100, 2);
    assert_eq!(server.says(&path, "cat data/f; echo; ls data"), "1\nd\nf");
    let mut archive = tar::Builder::new(Vec::new());
    image_imports::entry(&mut archive, "in/", tar::EntryType::Directory, 0o755, b"", "");
    image_imports::entry(
        &mut archive,
        "in/run",
        tar::EntryType::Regular,
        0o755,
        b"#!/bin/sh\necho ran\n",
        "",
    );
    let archive = archive.into_inner().unwrap();
    let put = server.send("PUT", &format!("{path}/fs/tar?path=data/from"), &archive);
    assert_eq!(put.status / 100, 2, "{}", String::from_utf8_lossy(&put.body));
    assert_eq!(server.says(&path, "data/from/in/run; touch data/from/x 2>/dev/null || echo no"), "ran\nno");
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(server.ask("PUT", &format!("{path}/files/data/g"), "2").status, 204);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, &format!("cat data/g; echo; {seen}")), "2\nno\nyes\nno");
    let shown = server.ask("GET", &path, "").json();
    assert_eq!(shown["filesystem"]["blocked"], json!(["/etc", "/root"]));
    // One session key is one sandbox, with one set of rules.
    let keyed = r#"{"session_key":"k","disk_mb":64,"filesystem":{"read_only":["/workspace/data"]}}"#;
    server.create(keyed);
    server.create(keyed);
    let other = server.ask("POST", "/api/v1/sandboxes", &keyed.replace("read_only", "blocked"));
    assert_eq!(other.status, 409, "{other:?}");
    // One that is stopped is not started for that.
    let kept = server.create(keyed);
    assert_eq!(server.ask("POST", &format!("{kept}/stop"), "").status, 200);
    let other = server.ask("POST", "/api/v1/sandboxes", &keyed.replace("read_only", "blocked"));
    assert_eq!((other.status, &server.ask("GET", &kept, "").json()["status"]), (409, &json!("stopped")));
    for (body, field) in [
        (r#"{"filesystem":{"read_only":["/proc"]}}"#, "filesystem"),
        (r#"{"filesystem":{"blocked":["/workspace"]}}"#, "filesystem"),
        (r#"{"filesystem":{"read_write":["a/../b"]}}"#, "filesystem"),
        (r#"{"filesystem":{"read_write":["/usr/lib"]}}"#, "filesystem"),
        (r#"{"filesystem":{"hidden":[]}}"#, "filesystem"),
        (r#"{"profile":"tools","filesystem":{"read_only":["/workspace/x"]}}"#, "filesystem"),
        (r#"{"volumes":[{"name":"A","path":"/x"}]}"#, "volumes"),
        (r#"{"volumes":[["a","/x",true]]}"#, "volumes"),
        (r#"{"filesystem":[["/x"],[],[]]}"#, "filesystem"),
        (r#"{"tenant_id":""}"#, "tenant_id"),
    ] {
        let refused = server.ask("POST", "/api/v1/sandboxes", body);
        assert_eq!(refused.status, 422, "{body}: {refused:?}");
        assert!(refused.json()["detail"][0]["loc"].to_string().contains(field), "{body}: {refused:?}");
    }
}

#[test]
fn a_refused_create_makes_no_storage_for_its_tenant() {
    let server = Server::start();
    volume(&server, "mine", 64);
    let body = r#"{"tenant_id":"t","volumes":[{"name":"mine","path":"/mnt/user-data"}]}"#;
    let refused = server.ask("POST", "/api/v1/sandboxes", body);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(names(&server), ["mine"]);
}

#[test]
fn a_volume_that_is_deleted_while_it_is_made_leaves_nothing() {
    let server = Server::start();
    for round in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| volume(&server, "data", 16));
            eventually("its deletion", || server.ask("DELETE", "/api/v1/volumes/data", "").status == 204);
        });
        assert_eq!((names(&server).len(), trees(&server)), (0, 0), "round {round}");
    }
}

#[test]
fn resizes_and_a_delete_of_one_volume_take_turns() {
    let server = Server::start();
    for round in 0..5 {
        volume(&server, "data", 64);
        thread::scope(|scope| {
            for megabytes in [80, 96, 112] {
                let server = &server;
                scope.spawn(move || {
                    let body = json!({"disk_mb": megabytes}).to_string();
                    let resized = server.ask("PATCH", "/api/v1/volumes/data", &body);
                    assert!([200, 404].contains(&resized.status), "{resized:?}");
                });
            }
            scope.spawn(|| {
                let deleted = server.ask("DELETE", "/api/v1/volumes/data", "");
                assert_eq!(deleted.status, 204, "{deleted:?}");
            });
        });
        // A resize that came last would have made the volume again, without a record.
        assert_eq!((names(&server).len(), trees(&server)), (0, 0), "round {round}");
    }
}
