//! What ends by itself: lifetimes, records, keys, what belongs to nobody, and sandboxes with their server.

use super::{
    fixture::Server,
    lifecycle_idle::{audited, events, looking, status},
};
use crate::engine::fixture::{eventually, spec};
use atoll_launch_proto::Layout;
use atoll_provider::{ContainerSpec, Provider};
use atoll_provider_native::{LauncherClient, NativeProvider};
use atoll_types::VolumeId;
use std::{process::Command, sync::Arc};

/// Little of the machine's disk.
const SMALL: &str = r#"{"disk_mb":64}"#;

#[test]
fn at_the_end_of_its_life_it_goes_and_its_owner_was_told() {
    let (server, _file) = looking(&["lifecycle.max_lifetime_seconds=3", "lifecycle.expiring_seconds=2"]);
    let (running, stopped) = (server.create("{}"), server.create("{}"));
    server.ask("POST", &format!("{stopped}/stop"), "");
    for path in [&running, &stopped] {
        eventually("its end", || status(&server, path) == "destroyed");
        let told = events(&server, path);
        let at = |kind: &str| {
            told.iter().position(|(k, _)| k == kind).unwrap_or_else(|| panic!("{kind}: {told:?}"))
        };
        assert!(at("expiring") < at("destroyed"), "{told:?}");
        assert_eq!(told[at("destroyed")].1, "its lifetime of 3 seconds is over");
        assert_eq!(told.iter().filter(|(kind, _)| kind == "expiring").count(), 1, "{told:?}");
        let done = audited(&server, path);
        assert_eq!(done, [("sandbox.destroy".to_owned(), "its lifetime of 3 seconds is over".to_owned())]);
    }
}

#[test]
fn a_lifetime_that_is_set_later_is_told_first() {
    let (mut server, _file) = looking(&["lifecycle.expiring_seconds=1"]);
    let path = server.create("{}");
    let body = r#"{"atoll":{"lifecycle":{"max_lifetime_seconds":1}}}"#;
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", body).status, 200);
    eventually("the notice", || events(&server, &path).iter().any(|(kind, _)| kind == "expiring"));
    server.kill();
    server.restart();
    eventually("its end", || status(&server, &path) == "destroyed");
    assert_eq!(events(&server, &path).iter().filter(|(kind, _)| kind == "expiring").count(), 1);
}

#[test]
fn a_sandbox_may_ask_for_a_life_of_its_own() {
    let (mut server, _file) = looking(&["lifecycle.expiring_seconds=1", "lifecycle.max_lifetime_seconds=60"]);
    let asked = |seconds: u64| {
        server.ask("POST", "/api/v1/sandboxes", &format!(r#"{{"max_lifetime_seconds":{seconds}}}"#))
    };
    // What is longer than anything may live is refused with both figures, and what is no lifetime too.
    let long = asked(61);
    let error = long.json()["error"].clone();
    assert_eq!((long.status, error["code"].as_str()), (403, Some("permission_denied")), "{long:?}");
    let facts = serde_json::json!(["field", "asked", "allowed"].map(|name| &error["details"][name]));
    assert_eq!(facts, serde_json::json!(["max_lifetime_seconds", 61, 60]));
    for seconds in [0, 31_536_001] {
        let odd = asked(seconds);
        assert_eq!(
            (odd.status, odd.json()["detail"][0]["loc"][1].as_str()),
            (422, Some("max_lifetime_seconds"))
        );
    }
    let short = server.create(r#"{"max_lifetime_seconds":3}"#);
    let other = server.create("{}");
    server.ask("POST", &format!("{short}/stop"), "");
    server.kill();
    server.restart();
    assert_eq!(server.ask("GET", &short, "").json()["max_lifetime_seconds"], 3);
    assert_eq!(server.ask("GET", &other, "").json()["max_lifetime_seconds"], serde_json::Value::Null);
    eventually("its end", || status(&server, &short) == "destroyed");
    let told = events(&server, &short);
    let at =
        |kind: &str| told.iter().position(|(k, _)| k == kind).unwrap_or_else(|| panic!("{kind}: {told:?}"));
    assert!(at("expiring") < at("destroyed"), "{told:?}");
    assert_eq!(told[at("destroyed")].1, "its lifetime of 3 seconds is over");
    assert_eq!(status(&server, &other), "running");
}

#[test]
fn a_short_life_ends_in_time_whenever_the_next_pass_is() {
    let server = Server::start_with(&["--set", "lifecycle.interval_seconds=3600"]);
    let (first, second) =
        (server.create(r#"{"max_lifetime_seconds":2}"#), server.create(r#"{"max_lifetime_seconds":1}"#));
    for path in [&first, &second] {
        eventually("its end", || status(&server, path) == "destroyed");
        let kinds: Vec<String> = events(&server, path).into_iter().map(|(kind, _)| kind).collect();
        let at = |kind: &str| {
            kinds.iter().position(|it| it == kind).unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
        };
        assert!(at("expiring") < at("destroyed"), "{kinds:?}");
    }
}

#[test]
fn the_command_line_asks_for_a_life() {
    let (server, _file) = looking(&["lifecycle.expiring_seconds=0"]);
    let atoll = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", format!("http://{}", server.address))
            .env("ATOLL_API_KEY", super::fixture::KEY)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    let id = atoll(&["create", "--max-lifetime", "1h"]);
    let shown: serde_json::Value = serde_json::from_str(&atoll(&["inspect", "--json", &id])).unwrap();
    assert_eq!(shown["max_lifetime_seconds"], 3600);
    let id = atoll(&["create", "--max-lifetime", "1s"]);
    eventually("its end", || status(&server, &format!("/api/v1/sandboxes/{id}")) == "destroyed");
}

#[test]
fn records_of_the_destroyed_go_and_what_was_done_stays() {
    let (server, _file) = looking(&["lifecycle.destroyed_retention_seconds=1"]);
    let (path, kept) = (server.create("{}"), server.create("{}"));
    assert_eq!(server.says(&path, "echo on"), "on");
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    eventually("its going", || server.ask("GET", &path, "").status == 404);
    assert_eq!(status(&server, &kept), "running");
    let id = path.rsplit('/').next().unwrap().replace('-', "");
    let trail = server.ask("GET", "/api/v1/audit?limit=500", "").json().to_string().replace('-', "");
    assert!(trail.contains(&id), "the trail forgot it");
    let verdict = server.ask("GET", "/api/v1/audit/verify", "").json();
    assert_eq!(verdict["sound"], true, "{verdict}");
}

#[test]
fn keys_that_are_over_are_closed_and_then_forgotten() {
    let (server, _file) = looking(&[]);
    let short = r#"{"name":"short","expires_in_seconds":1}"#;
    let id = server.ask("POST", "/api/v1/keys", short).json()["id"].clone();
    let long = server.ask("POST", "/api/v1/keys", r#"{"name":"long","expires_in_seconds":9000}"#).json();
    let listed = || {
        let all = server.ask("GET", "/api/v1/keys", "").json();
        let find = |key: &&serde_json::Value| key["id"] == id;
        all["items"].as_array().unwrap().iter().find(find).cloned()
    };
    eventually("its closing", || listed().is_some_and(|key| !key["revoked_at"].is_null()));
    assert_eq!(listed().unwrap()["revoked_at"], listed().unwrap()["expires_at"]);
    let body = r#"{"atoll":{"lifecycle":{"key_retention_seconds":1}}}"#;
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", body).status, 200);
    eventually("its going", || listed().is_none());
    let key = long["key"].as_str().unwrap();
    assert_eq!(server.ask_as(key, "GET", "/api/v1/sandboxes", "").status, 200);
    let trail = server.ask("GET", "/api/v1/audit?limit=500", "").json().to_string();
    assert!(trail.contains("it has expired") && trail.contains("key.purge"), "{trail}");
}

#[test]
fn orphans_are_removed_while_the_server_runs() {
    let (server, _file) = looking(&["lifecycle.orphan_seconds=1"]);
    let (path, stopped) = (server.create(SMALL), server.create(SMALL));
    server.exec(&stopped, "echo kept > /workspace/x");
    server.ask("POST", &format!("{stopped}/stop"), "");
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let volume = VolumeId::random();
    let mut limits = spec("default").limits;
    limits.disk_bytes = 64 << 20;
    let foreign = ContainerSpec { limits, ..spec("default") };
    let lost = ContainerSpec { volume: Some(volume), limits, ..spec("default") };
    let (lost_id, foreign_id) = (lost.id, foreign.id);
    // The server may find it lost before its maker has greeted it; the trail says below whether it was there.
    let _ = runtime.block_on(provider.create(lost));
    runtime.block_on(provider.create(foreign)).unwrap();
    let there = || {
        let containers = runtime.block_on(provider.list()).unwrap();
        let volumes = runtime.block_on(provider.volumes().unwrap().list_volumes()).unwrap();
        (containers.into_iter().map(|l| l.id).collect::<Vec<_>>(), volumes)
    };
    // As many as the server likes to make meanwhile: none of these is taken for lost.
    let more: Vec<String> = (0..10).map(|_| server.create(SMALL)).collect();
    eventually("their going", || {
        let (containers, volumes) = there();
        !containers.contains(&lost_id) && !volumes.contains(&volume)
    });
    assert!(there().0.contains(&foreign_id), "what has no volume is somebody else's");
    for path in more.iter().chain([&path]) {
        assert_eq!(server.says(path, "echo on"), "on");
    }
    assert_eq!(server.ask("POST", &format!("{stopped}/resume"), "").status, 200);
    assert_eq!(server.says(&stopped, "cat /workspace/x"), "kept");
    let trail = server.ask("GET", "/api/v1/audit?limit=500", "").json().to_string();
    assert!(trail.contains("orphan.container") && trail.contains("orphan.volume"), "{trail}");
    runtime.block_on(provider.destroy(foreign_id)).unwrap();
}

/// Tells the server to end, and waits until it did.
fn end(server: &mut Server) {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn sandboxes_end_with_the_server_where_that_is_set() {
    let (mut server, _file) = looking(&[]);
    let paths = [server.create("{}"), server.create("{}")];
    server.exec(&paths[0], "echo kept > /workspace/x");
    server.ask("POST", &format!("{}/pause", paths[1]), "");
    end(&mut server);
    server.restart();
    assert_eq!(paths.each_ref().map(|path| status(&server, path)), ["running", "paused"]);
    let body = r#"{"atoll":{"lifecycle":{"on_shutdown":"stop"}}}"#;
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", body).status, 200);
    end(&mut server);
    server.restart();
    for path in &paths {
        assert_eq!(status(&server, path), "stopped");
        let told = events(&server, path);
        assert!(told.contains(&("stopped".to_owned(), "the server ended".to_owned())), "{told:?}");
        let done = audited(&server, path);
        assert_eq!(done, [("sandbox.stop".to_owned(), "the server ended".to_owned())]);
    }
    assert_eq!(server.ask("POST", &format!("{}/resume", paths[0]), "").status, 200);
    assert_eq!(server.says(&paths[0], "cat /workspace/x"), "kept");
}
