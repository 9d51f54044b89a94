//! What an admin sees of the pool and does to it.

use super::{KEY, POOL, ROOT, Server, World, eventually, keeping, key, nothing_else_is_there, of};
use serde_json::{Value, json};
use std::process::Command;

const SUMMARY: &str = "/api/v1/settings/sandbox/pool-summary";

#[test]
fn the_pool_is_shown_drained_and_resized() {
    let mut server = keeping(2, &[]);
    let shown = server.ask("GET", POOL, "").json();
    assert_eq!(shown["enabled"], true);
    let mut first = shown["keys"][0].clone();
    assert!(
        first["oldest_age_seconds"].as_f64().unwrap() > 0.0 && first["refill_seconds"].as_f64().is_some()
    );
    for changing in ["oldest_age_seconds", "refill_seconds"] {
        first.as_object_mut().unwrap().remove(changing);
    }
    let wanted = json!({"image": "host", "profile": "default", "ready": 2, "starting": 0, "target": 2,
        "min": 2, "max": 2, "hits": 0, "misses": 0, "refills": 2, "failures": 0, "last_failure": null, "kernels": 0});
    assert_eq!(first, wanted);
    let wanted = json!({"total_images": 1, "images_with_pool": 1, "total_idle": 2, "total_min_target": 2,
        "total_max_target": 2, "provider": "native", "warm_pool_enabled": true,
        "per_image": [{"image_id": "host", "image_name": "host", "display_name": "host", "warm_pool_min": 2,
            "warm_pool_max": 2, "idle_count": 2}]});
    assert_eq!(server.ask("GET", SUMMARY, "").json(), wanted);

    let before = World::of(&server);
    let drained = server.ask("POST", "/api/v1/pool/drain", "");
    assert_eq!((drained.status, drained.json()), (200, json!({"drained": 2})));
    assert!(World::of(&server).containers.is_disjoint(&before.containers), "they are gone with the answer");
    nothing_else_is_there(&server, 2);

    let resized = server.ask("PATCH", POOL, r#"{"images":{"host":{"min":4,"max":5}}}"#);
    assert_eq!((resized.status, resized.json()["keys"][0]["max"].clone()), (200, 5.into()), "{resized:?}");
    nothing_else_is_there(&server, 4);
    assert_eq!(server.ask("PATCH", POOL, r#"{"images":{"host":{"max":4,"min":1}}}"#).status, 200);
    server.kill();
    server.restart();
    assert_eq!((of(&server, "min"), of(&server, "max")), (1, 4), "it outlives the server");
    assert_eq!(server.ask("PATCH", POOL, r#"{"images":{"host":null}}"#).status, 200);
    assert_eq!((of(&server, "min"), of(&server, "max")), (2, 2));
    for (body, field) in [
        (r#"{"images":{"none":{"min":1}}}"#, "images"),
        (r#"{"images":{"host":{"min":9}}}"#, "images"),
        (r#"{"images":{"host":{"max":1001}}}"#, "images"),
    ] {
        let refused = server.ask("PATCH", POOL, body);
        let named = refused.json()["detail"][0]["loc"][1].clone();
        assert_eq!((refused.status, named), (422, field.into()), "{body}: {refused:?}");
    }
    let rows = server.ask("GET", "/api/v1/audit?kind=pool.resize", "").json();
    assert_eq!(rows["entries"].as_array().unwrap().len(), 6, "{rows}");
}

#[test]
fn switched_off_it_keeps_nothing_and_sandboxes_are_made_as_ever() {
    let server = Server::start();
    assert_eq!((key(&server)["target"].clone(), of(&server, "max")), (0.into(), 0));
    server.create(r#"{"disk_mb":16}"#);
    assert_eq!((of(&server, "hits"), of(&server, "ready")), (0, 0));
    let on = server.ask("PATCH", "/api/v1/settings/sandbox", r#"{"warm_pool_enabled":true}"#);
    assert_eq!((on.status, on.json()["warm_pool_enabled"].clone()), (200, true.into()));
    eventually("a full pool", || of(&server, "ready") == of(&server, "target") && of(&server, "ready") >= 2);
    let stopped = server.ask("POST", "/api/v1/pool/drain", r#"{"stop":true}"#);
    assert_eq!(stopped.status, 200);
    assert_eq!(server.ask("GET", "/api/v1/settings/sandbox", "").json()["warm_pool_enabled"], false);
    nothing_else_is_there(&server, 0);
}

#[test]
fn it_is_for_admins_alone() {
    let server = Server::start();
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"k","owner":"ann"}"#).json();
    let user = made["key"].as_str().unwrap();
    for (method, path, body) in
        [("GET", POOL, ""), ("GET", SUMMARY, ""), ("PATCH", POOL, "{}"), ("POST", "/api/v1/pool/drain", "{}")]
    {
        assert_eq!(server.ask_as(user, method, path, body).status, 403, "{method} {path}");
    }
}

#[test]
fn what_it_does_is_counted() {
    let server = keeping(1, &[]);
    server.create(r#"{"disk_mb":16}"#);
    eventually("a full pool", || of(&server, "ready") == 1);
    let page = server.ask("GET", "/metrics", "");
    let page = String::from_utf8(page.body).unwrap();
    let figure = |name: &str| -> f64 {
        let line =
            page.lines().find(|line| line.starts_with(&format!("atoll_pool_{name}{{image=\"host\"}} ")));
        line.unwrap_or_else(|| panic!("{name} in {page}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let counted = ["hits_total", "misses_total", "ready", "target", "refill_seconds_count", "failures_total"];
    assert_eq!(counted.map(figure), [1.0, 0.0, 1.0, 1.0, 2.0, 0.0]);
    assert!(figure("refill_seconds_sum") > 0.0 && figure("oldest_seconds") >= 0.0);
    // A container of the pool is nobody's: it is no sandbox, and what it uses is no sandbox's.
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 1);
}

#[test]
fn the_command_line_shows_drains_and_resizes() {
    let server = keeping(1, &[]);
    let url = format!("http://{}", server.address);
    let atoll = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", &url)
            .env("ATOLL_API_KEY", KEY)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let shown = atoll(&["pool", "show"]);
    assert!(shown.contains("host") && shown.contains("1-1"), "{shown}");
    assert_eq!(atoll(&["pool", "drain"]), "1 destroyed\n");
    let resized: Value =
        serde_json::from_str(&atoll(&["pool", "resize", "host", "--min", "0", "--max", "3", "--json"]))
            .unwrap();
    assert_eq!((&resized["keys"][0]["min"], &resized["keys"][0]["max"]), (&json!(0), &json!(3)));
    assert!(atoll(&["pool", "resize", "host", "--reset"]).contains("1-1"));
}
