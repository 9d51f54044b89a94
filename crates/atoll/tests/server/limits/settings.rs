//! The settings of the whole server.

use super::{KEY, ROOT, SETTINGS, Server, created, key, refused};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, process::Command};

fn settings(server: &Server) -> Value {
    let answer = server.ask("GET", SETTINGS, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn the_fields_of_the_reference_api_are_there_and_ours_beside_them() {
    let server = Server::start();
    let mut shown = settings(&server);
    let own = shown.as_object_mut().unwrap().remove("atoll").unwrap();
    assert_eq!(
        shown,
        json!({"provider_type": "native", "warm_pool_enabled": false, "default_max_per_user": 3,
            "idle_timeout_seconds": 1800, "stopped_retention_seconds": 604_800,
            "config_fallback_image": "host", "db_default_image": null, "env_allowlist": [],
            "db_active_images": null, "k8s_namespace": null})
    );
    let wanted = json!({"max": 30, "max_per_thread": 3, "max_threads": 10, "collect_seconds": 60,
        "orphan_seconds": 300, "idle_seconds": 1800, "max_lifetime_seconds": 7200,
        "thread_retention_seconds": 604_800, "memory_mb": 2048, "cpu_cores": 2.0, "processes": 512,
        "disk_mb": 1024, "uploads_mb": 512, "network_enabled": true});
    assert_eq!(own["tool_sessions"], wanted);
    let wanted = json!({"cpu_cores": 0.25, "memory_mb": 128, "disk_mb": 512, "processes": 64,
        "timeout_seconds": 60, "network": "none", "profiles": ["default", "tools"]});
    assert_eq!(own["tiers"]["sandbox"], wanted);
    let sources: BTreeSet<&str> =
        own["sources"].as_object().unwrap().values().map(|source| source.as_str().unwrap()).collect();
    assert_eq!(sources, ["default", "environment"].into(), "the fixture switches the pool off");
    // What GET shows can be sent back.
    let same = server.ask("PATCH", SETTINGS, &shown.to_string());
    assert_eq!(same.status, 200, "{same:?}");
    let user = key(&server, "ann", "unrestricted");
    for (method, body) in [("GET", ""), ("PATCH", r#"{"default_max_per_user":9}"#)] {
        refused(&server.ask_as(&user, method, SETTINGS, body), 403, "permission_denied");
    }
    assert_eq!(settings(&server)["default_max_per_user"], 3);
}

#[test]
fn a_change_applies_at_once_outlives_the_server_and_is_told() {
    let mut server = Server::start_with(&["--set", "default_max_per_user=2"]);
    let ann = key(&server, "ann", "sandbox");
    (0..2).for_each(|_| drop(created(&server, &ann, r#"{"disk_mb":16}"#)));
    assert_eq!(server.ask_as(&ann, "POST", ROOT, "{}").status, 429);
    let changes = r#"{"default_max_per_user":3,"idle_timeout_seconds":77,"atoll":{"plan":{"sandboxes":50}}}"#;
    let changed = server.ask("PATCH", SETTINGS, changes);
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.json(), settings(&server));
    let third = created(&server, &ann, r#"{"disk_mb":16}"#);
    assert_eq!(server.ask("GET", &third, "").json()["idle_timeout_seconds"], 77);
    assert_eq!(server.ask_as(&ann, "POST", ROOT, "{}").status, 429);
    let told = server.ask("GET", "/api/v1/audit?kind=settings.patch", "").json()["entries"][0].clone();
    assert_eq!(told["extra"]["default_max_per_user"], "2 -> 3", "{told}");
    assert_eq!(told["extra"]["plan.sandboxes"], "100 -> 50");
    server.kill();
    server.restart();
    let after = settings(&server);
    assert_eq!(after, changed.json());
    let source = |settings: &Value, name: &str| settings["atoll"]["sources"][name].clone();
    assert_eq!(source(&after, "default_max_per_user"), "stored");
    assert_eq!(source(&after, "stopped_retention_seconds"), "default");
    // Null takes a change back: what was set before it holds again.
    let back = server.ask("PATCH", SETTINGS, r#"{"default_max_per_user":null}"#).json();
    assert_eq!(
        (&back["default_max_per_user"], source(&back, "default_max_per_user")),
        (&json!(2), "flag".into())
    );
}

#[test]
fn a_wrong_change_changes_nothing() {
    let server = Server::start();
    let before = settings(&server);
    for (body, field) in [
        (json!({"default_max_per_user": -1}), "default_max_per_user"),
        (json!({"default_max_per_user": "many"}), "default_max_per_user"),
        (json!({"idle_timeout_seconds": 9}), "idle_timeout_seconds"),
        (json!({"stopped_retention_seconds": 1e12}), "stopped_retention_seconds"),
        (json!({"db_default_image": "no/such:image"}), "db_default_image"),
        (json!({"no_such": 1}), "no_such"),
        (json!({"warm_pool_enabled": 1}), "warm_pool_enabled"),
        (json!({"atoll": {"pool": {"min": 9}}}), "atoll.pool.min"),
        (json!({"atoll": {"pool": {"images": {"host": {"min": 2, "max": 1}}}}}), "atoll.pool.images"),
        (json!({"atoll": {"pool": {"images": {"none": {"min": 1, "max": 1}}}}}), "atoll.pool.images"),
        (json!({"provider_type": "docker"}), "provider_type"),
        (json!({"config_fallback_image": "x"}), "config_fallback_image"),
        (json!({"env_allowlist": ["A=B"]}), "env_allowlist"),
        (json!({"env_allowlist": "PATH"}), "env_allowlist"),
        (json!({"db_active_images": ["nosuch"]}), "db_active_images"),
        (json!({"db_active_images": "host"}), "db_active_images"),
        (
            json!({"atoll": {"images": {"unused_retention_seconds": 0}}}),
            "atoll.images.unused_retention_seconds",
        ),
        (
            json!({"atoll": {"images": {"pull_on_use_registries": ["no host"]}}}),
            "atoll.images.pull_on_use_registries",
        ),
        (json!({"k8s_namespace": "x"}), "k8s_namespace"),
        (json!({"atoll": {"admission": {"wait_seconds": 601}}}), "atoll.admission.wait_seconds"),
        (json!({"atoll": {"admission": {"no_such": 1}}}), "atoll.admission.no_such"),
        (json!({"atoll": {"tool_sessions": {"max": 0}}}), "atoll.tool_sessions.max"),
        (json!({"atoll": {"tiers": {}}}), "atoll.tiers"),
        (json!({"atoll": {"owners": {"ann": "nosuch"}}}), "atoll.owners"),
        (json!({"atoll": 1}), "atoll"),
    ] {
        let mut body = body;
        // Beside something that could be.
        body.as_object_mut().unwrap().entry("idle_timeout_seconds").or_insert(json!(60));
        let answer = server.ask("PATCH", SETTINGS, &body.to_string());
        let told = answer.json()["detail"][0].clone();
        let loc: Vec<&str> = told["loc"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!((answer.status, loc[1..].join(".").as_str()), (422, field), "{answer:?}");
        assert_eq!(settings(&server), before, "{body}");
    }
    assert_eq!(server.ask("PATCH", SETTINGS, "[]").status, 422);
}

#[test]
fn what_is_wrong_before_the_start_is_named_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |flags: &[&str], variable: (&str, &str)| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(flags)
            .env(variable.0, variable.1)
            .output()
            .unwrap();
        (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
    };
    for (flags, variable, named) in [
        (&[][..], ("ATOLL_SETTINGS_PLAN_DISK_MB", "much"), "ATOLL_SETTINGS_PLAN_DISK_MB"),
        (&["--set", "plan.disk_mb=-1"], ("X", "x"), "plan.disk_mb"),
        (&["--set", "no.such=1"], ("X", "x"), "no.such"),
    ] {
        let (started, said) = serve(flags, variable);
        assert!(!started && said.contains(named), "{said}");
    }
    assert!(!folder.path().join("data").exists());
}

#[test]
fn variables_that_are_not_on_the_list_are_refused_by_field() {
    let server = Server::start_with(&["--set", r#"env_allowlist=["A","TOKEN"]"#]);
    for (field, body) in
        [("env_vars", json!({"env_vars": {"A": "1", "B": "2"}})), ("secrets", json!({"secrets": {"B": "2"}}))]
    {
        let refused = server.ask("POST", ROOT, &body.to_string());
        assert_eq!(
            (refused.status, &refused.json()["detail"][0]["loc"][1]),
            (422, &json!(field)),
            "{refused:?}"
        );
        assert!(refused.json()["detail"][0]["msg"].as_str().unwrap().contains(" B "));
    }
    let sandbox = server.create(r#"{"env_vars":{"A":"1"},"secrets":{"TOKEN":"t"}}"#);
    assert_eq!(server.says(&sandbox, "echo $A"), "1");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    assert_eq!(server.ask("PATCH", &sandbox, r#"{"env_vars":{"B":"1"}}"#).status, 422);
    assert_eq!(server.ask("PATCH", SETTINGS, r#"{"env_allowlist":[]}"#).status, 200);
    assert_eq!(
        server.ask("PATCH", &sandbox, r#"{"env_vars":{"B":"1"}}"#).status,
        200,
        "an empty list is all"
    );
}

#[test]
fn the_usual_image_can_be_set() {
    let server = Server::start();
    let name = "mcpgateway/sandbox-python:3.12";
    let body = json!({"db_default_image": name}).to_string();
    assert_eq!(server.ask("PATCH", SETTINGS, &body).status, 200);
    let sandbox = server.create(r#"{"disk_mb":16}"#);
    assert_eq!(server.ask("GET", &sandbox, "").json()["image"], name);
}

#[test]
fn the_command_line_shows_and_sets() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("atoll.toml");
    fs::write(&config, "[settings]\nidle_timeout_seconds = 120\n[settings.admission]\nwait_seconds = 1\n")
        .unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65530), None).unwrap();
    let server =
        Server::start_with(&["--config", config.to_str().unwrap(), "--set", "admission.wait_seconds=2"]);
    let atoll = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", format!("http://{}", server.address))
            .env("ATOLL_API_KEY", KEY)
            .output()
            .unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8(said).unwrap())
    };
    let line = |said: &str, name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let (code, said) = atoll(&["settings", "show"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(line(&said, "idle_timeout_seconds"), ["120", "file"]);
    assert_eq!(line(&said, "admission.wait_seconds"), ["2", "flag"]);
    assert_eq!(line(&said, "provider_type"), ["native", "fixed"]);
    let (code, said) = atoll(&["settings", "set", "admission.wait_seconds=3", "default_max_per_user=4"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(line(&said, "admission.wait_seconds"), ["3", "stored"]);
    assert_eq!(line(&said, "default_max_per_user"), ["4", "stored"]);
    let (code, said) = atoll(&["settings", "set", "admission.wait_seconds=-3"]);
    assert!(code == Some(1) && said.contains("admission.wait_seconds"), "{code:?} {said}");
}
