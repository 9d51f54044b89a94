//! The APIs at `/api/sandbox` without containers: their errors, their owners and their limits.

use super::{
    KEY, Server,
    http::{self, Answer},
};
use atoll_types::{ErrorCode, SandboxRecord, time::now_ms};
use serde_json::{Value, json};

const ID: &str = "sbx_00000000000000000000000000000000";

fn envelope(answer: &Answer, status: u16) -> Value {
    let body = answer.json();
    assert_eq!(answer.status, status, "{body}");
    let mut fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "docs", "error", "message"], "{body}");
    assert_eq!(body["code"], status, "{body}");
    body
}

#[test]
fn every_error_of_the_runs_api_has_its_envelope() {
    let server = Server::start();
    let reader = server.key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let mut golden = String::new();
    for (key, method, path, body, status) in [
        ("", "POST", "/api/sandbox/create", "{}", 401),
        ("wrong", "GET", "/api/v1/sandbox/create", "", 405),
        ("wrong", "POST", "/api/v1/sandbox/create", "{}", 401),
        (&reader, "POST", "/api/sandbox/create", "{}", 403),
        (KEY, "DELETE", "/api/sandbox/create", "", 405),
        (KEY, "GET", "/api/sandbox", "", 404),
        (KEY, "GET", "/api/sandbox/nosuch", "", 404),
        (KEY, "GET", "/api/sandbox/../v1/x", "", 404),
        (KEY, "GET", "/api/v1/sandbox/nosuch/a/b", "", 404),
        (KEY, "GET", &format!("/api/sandbox/{ID}"), "", 404),
        (KEY, "DELETE", &format!("/api/sandbox/{ID}"), "", 404),
        (KEY, "POST", &format!("/api/sandbox/{ID}/run"), r#"{"code":"1"}"#, 404),
        (KEY, "GET", &format!("/api/sandbox/{ID}/runs/run_1"), "", 404),
        (KEY, "GET", &format!("/api/sandbox/{ID}/runs/{}", ID.replace("sbx", "run")), "", 404),
        (KEY, "POST", "/api/sandbox/create", "{", 422),
        (KEY, "POST", "/api/sandbox/create", r#"{"mode":"vm"}"#, 422),
        (KEY, "POST", "/api/sandbox/create", r#"{"mode":"wasm"}"#, 501),
        (KEY, "POST", "/api/sandbox/create", r#"{"config":{"image":"nosuch"}}"#, 422),
        (KEY, "POST", "/api/sandbox/create", r#"{"config":{"resources":{"timeout":3601}}}"#, 422),
        (KEY, "POST", "/api/sandbox/create", r#"{"config":{"resources":{"memory":"1m"}}}"#, 422),
        (KEY, "POST", "/api/sandbox/create", r#"{"agent_id":"a\u0000b"}"#, 422),
        (KEY, "POST", &format!("/api/sandbox/{ID}/run"), "{}", 422),
        (KEY, "POST", &format!("/api/sandbox/{ID}/run"), r#"{"code":"1","timeout":601}"#, 422),
        (KEY, "POST", &format!("/api/sandbox/{ID}/run"), r#"{"code":"1","async":"yes"}"#, 422),
    ] {
        let headers = [("X-AgentCop-Key", key)];
        let headers = if key.is_empty() { &headers[..0] } else { &headers[..] };
        let answer = http::request(server.address, method, path, headers, body.as_bytes()).unwrap();
        let told = envelope(&answer, status);
        golden +=
            &format!("{method} {path} {body}\n  {} {}\n", told["code"], told["error"].as_str().unwrap());
        golden += &format!("  {}\n", told["message"].as_str().unwrap());
    }
    insta::assert_snapshot!(golden);
}

#[test]
fn a_sandbox_is_its_owners_and_the_plan_counts_it() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let bob = server.key(r#"{"name":"b","owner":"bob","scope":"user"}"#);
    let create = |key: &str| server.ask_as(key, "POST", "/api/sandbox/create", "{}");
    let made = create(&ann);
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let path = format!("/api/sandbox/{}", made.json()["sandbox_id"].as_str().unwrap());
    assert_eq!(server.ask_as(&ann, "GET", &path, "").json()["status"], "ready");
    for (method, tail, body) in
        [("GET", "", ""), ("DELETE", "", ""), ("POST", "/run", r#"{"code":"1"}"#), ("GET", "/runs/run_1", "")]
    {
        envelope(&server.ask_as(&bob, method, &format!("{path}{tail}"), body), 404);
    }
    assert_eq!((create(&ann).status, create(&ann).status), (201, 201));
    let fourth = create(&ann);
    assert_eq!(envelope(&fourth, 429)["error"], "limit_exceeded");
    assert!(fourth.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()));
    assert_eq!(create(&bob).status, 201, "a plan is one owner's");
    assert_eq!(server.ask_as(&ann, "DELETE", &path, "").status, 204);
    assert_eq!(server.ask_as(&ann, "GET", &path, "").json()["status"], "destroyed");
    assert_eq!(create(&ann).status, 201, "a destroyed one does not count");
    // The setting that the plan is.
    server.ask("PATCH", super::SETTINGS, &json!({"default_max_per_user": 4}).to_string());
    assert_eq!(create(&ann).status, 201);
}

#[test]
fn a_repeated_create_makes_one_sandbox() {
    let server = Server::start();
    let create = || {
        let headers = [("Authorization", "Bearer bootstrap-key-of-a-test"), ("Idempotency-Key", "k1")];
        http::request(server.address, "POST", "/api/sandbox/create", &headers, b"{}").unwrap().json()
    };
    assert_eq!(create()["sandbox_id"], create()["sandbox_id"]);
    assert_eq!(server.get(super::ROOT)["total"], 1);
}

#[test]
fn every_error_of_the_containers_api_is_one_text() {
    let server = Server::start();
    let container = ID.replace("sbx", "container");
    let reader = server.key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let mut golden = String::new();
    for (key, method, path, body, status) in [
        ("wrong", "GET", "/config", "", 401),
        (&reader, "PUT", "/config", r#"{"mode":"all"}"#, 403),
        (KEY, "POST", "/config", "{}", 405),
        (KEY, "PUT", "/config", "", 400),
        (KEY, "PUT", "/config", "[]", 400),
        (KEY, "PUT", "/config", r#"{"mode":"on"}"#, 400),
        (KEY, "PUT", "/config", r#"{"odd":1}"#, 400),
        (KEY, "PUT", "/config", r#"{"resource_limits":{"memory_mb":1}}"#, 400),
        (KEY, "PUT", "/config", r#"{"resource_limits":{"cpu_cores":1e999}}"#, 400),
        (KEY, "PUT", "/config", r#"{"network_policy":{"allowed_domains":["http://x"]}}"#, 400),
        (KEY, "GET", "/containers/nosuch", "", 404),
        (KEY, "GET", &format!("/containers/{ID}"), "", 404),
        (KEY, "GET", &format!("/containers/{container}"), "", 404),
        (KEY, "DELETE", &format!("/containers/{container}"), "", 404),
        (KEY, "POST", &format!("/containers/{container}/restart"), "", 404),
        (KEY, "POST", &format!("/containers/{container}/snapshots/x/rollback"), "", 404),
        (KEY, "GET", "/containers/a/b/c/d", "", 404),
        (KEY, "GET", "/audit?limit=501", "", 400),
        (KEY, "GET", "/audit?offset=10001", "", 400),
        (KEY, "GET", "/audit?since=yesterday", "", 400),
        (KEY, "GET", "/audit?odd=1", "", 400),
        (KEY, "GET", "/audit/nosuch/output", "", 404),
        (KEY, "POST", "/audit/cleanup", "{}", 400),
        (KEY, "POST", "/audit/cleanup", r#"{"retention_days":-1}"#, 400),
        (KEY, "POST", "/run", r#"{"code":"1"}"#, 400),
        (KEY, "POST", "/run", &format!(r#"{{"code":"1","sandbox_id":"{container}"}}"#), 404),
        (KEY, "POST", "/templates", "", 400),
        (KEY, "POST", "/templates", "{}", 400),
        (KEY, "POST", "/templates", r#"{"name":"a/b","odd":1}"#, 400),
        (KEY, "POST", "/templates", r#"{"name":"x","id":"a/b"}"#, 400),
        (KEY, "POST", "/templates", r#"{"name":"base"}"#, 409),
        (KEY, "POST", "/templates", r#"{"name":"x","packages":{"pip":["--pre"]}}"#, 400),
        (KEY, "POST", "/templates", r#"{"name":"x","dockerfile":"NO such"}"#, 400),
        (KEY, "POST", "/templates", r#"{"name":"x","dockerfile":"FROM a","env":{"a":"b"}}"#, 400),
        (&reader, "POST", "/templates", r#"{"name":"x"}"#, 403),
        (KEY, "POST", "/templates/nosuch/build", "", 404),
        (KEY, "POST", "/templates/nosuch/pull", "", 404),
        (KEY, "POST", "/templates/base/pull", "", 400),
        (KEY, "DELETE", "/templates/base", "", 409),
        (KEY, "DELETE", "/templates/nosuch", "", 404),
    ] {
        let answer = server.ask_as(key, method, &format!("/api/sandbox{path}"), body);
        let told = answer.json();
        assert_eq!(answer.status, status, "{method} {path} {body}: {told}");
        assert_eq!(told.as_object().unwrap().len(), 1, "{told}");
        golden += &format!("{method} {path} {body}\n  {status} {}\n", told["error"].as_str().unwrap());
    }
    insta::assert_snapshot!(golden);
    let before = server.ask("GET", "/api/sandbox/config", "").json();
    assert_eq!(before["mode"], "selective", "what was refused changed nothing");
}

#[test]
fn a_template_is_its_owners() {
    let mut server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let bob = server.key(r#"{"name":"b","owner":"bob","scope":"user"}"#);
    let body = json!({"name": "My Tools", "image": "base", "setup_commands": ["true"],
        "packages": {"pip": ["six"]}, "env": {"A": "b"}, "description": "d"});
    let made = server.ask_as(&ann, "POST", "/api/sandbox/templates", &body.to_string());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let template = made.json();
    let mut wanted = body.clone();
    for (name, value) in [
        ("id", json!("my-tools")),
        ("dockerfile", Value::Null),
        ("default_resources", Value::Null),
        ("built", json!(false)),
        ("built_at", Value::Null),
        ("size_mb", Value::Null),
        ("is_builtin", json!(false)),
    ] {
        wanted[name] = value;
    }
    assert_eq!(template, wanted);
    let again = server.ask_as(&ann, "POST", "/api/sandbox/templates", &body.to_string());
    assert_eq!(again.status, 409, "{again:?}");
    let plain = json!({"id": "plain", "name": "An image", "image": "registry.example/app:1"});
    assert_eq!(server.ask_as(&bob, "POST", "/api/sandbox/templates", &plain.to_string()).status, 201);
    // What is stored outlives the server.
    server.kill();
    server.restart();
    let own = |key: &str| {
        let all = server.ask_as(key, "GET", "/api/sandbox/templates", "").json();
        let all = all["templates"].as_array().unwrap().clone();
        let own = all.iter().filter(|one| one["is_builtin"] == false).map(|one| one["id"].clone());
        (all.len(), own.collect::<Vec<_>>())
    };
    assert_eq!(own(&ann), (6, vec![json!("my-tools")]));
    assert_eq!(own(&bob), (6, vec![json!("plain")]));
    // Images are everybody's, so an admin makes them; and another owner's template is none.
    let ask = |key: &str, method: &str, path: &str| {
        server.ask_as(key, method, &format!("/api/sandbox/templates/{path}"), "").status
    };
    assert_eq!((ask(&ann, "POST", "my-tools/build"), ask(&bob, "POST", "plain/pull")), (403, 403));
    assert_eq!((ask(&ann, "POST", "base/build"), ask(&ann, "POST", "my-tools/pull")), (403, 400));
    for (method, path) in [("POST", "my-tools/build"), ("POST", "my-tools/pull"), ("DELETE", "my-tools")] {
        assert_eq!(ask(&bob, method, path), 404, "{method} {path}");
        assert_eq!(ask(KEY, method, path), 404, "{method} {path}");
    }
    // An admin makes it who says whose it is; here it fails later, for want of an image to build on.
    assert_eq!(ask(&bob, "POST", "my-tools/build?owner=ann"), 403);
    assert_eq!(ask(&bob, "POST", "my-tools/pull?owner=ann"), 403);
    assert_eq!(ask(KEY, "POST", "my-tools/build?owner=nobody"), 404);
    assert_eq!(ask(KEY, "POST", "my-tools/pull?owner=ann"), 400);
    let built = server.ask("POST", "/api/sandbox/templates/my-tools/build?owner=ann", "").json();
    assert!(!built["error"].as_str().unwrap().contains("no template with this id"), "{built}");
    assert_eq!((ask(&ann, "DELETE", "my-tools"), ask(&ann, "DELETE", "my-tools")), (200, 404));
    assert_eq!((own(&ann), own(&bob).1.len()), ((5, vec![]), 1));
}

#[test]
fn a_lifetime_that_no_create_names_is_as_long_as_the_server_allows() {
    let server = Server::start_with(&["--set", "lifecycle.max_lifetime_seconds=600"]);
    let made = server.ask("POST", "/api/sandbox/create", "{}");
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let id = made.json()["sandbox_id"].as_str().unwrap().replace("sbx_", "");
    assert_eq!(server.get(&format!("{}/{id}", super::ROOT))["max_lifetime_seconds"], 600);
    let named = server.ask("POST", "/api/sandbox/create", r#"{"config":{"resources":{"timeout":601}}}"#);
    assert!(envelope(&named, 403)["message"].as_str().unwrap().contains("600"), "what is named is refused");
}

/// A cleanup lists what it destroys, and another request may resume one of them before its turn.
#[test]
fn what_was_changed_since_it_was_listed_is_not_destroyed() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap().replace('-', "").parse().unwrap();
    server.says(&path, "echo kept > file");
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
    let seen = server.core(async |core| {
        let caller = core.keys.authenticate(KEY).await.unwrap();
        core.sandboxes.get(&caller, id).await.unwrap()
    });
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    let destroy = |seen: &SandboxRecord| {
        server.core(async |core| {
            let caller = core.keys.authenticate(KEY).await.unwrap();
            core.sandboxes.destroy_unchanged(&caller, seen).await
        })
    };
    assert_eq!(destroy(&seen).unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(server.says(&path, "cat file"), "kept");
    let seen = server.core(async |core| {
        let caller = core.keys.authenticate(KEY).await.unwrap();
        core.sandboxes.get(&caller, id).await.unwrap()
    });
    assert_eq!(destroy(&seen), Ok(()));
    assert_eq!(server.get(&path)["status"], "destroyed");
}

#[test]
fn errors_link_to_their_documentation_by_the_servers_public_address() {
    let server = Server::start_configured("[tools]\nserver_url = \"https://atoll.example/\"\n", &[]);
    let told = envelope(&server.ask("GET", "/api/sandbox/nosuch", ""), 404);
    assert_eq!(told["docs"], "https://atoll.example/docs/compatible-apis");
}

#[test]
fn two_changes_of_a_configuration_at_once_are_both_kept() {
    let server = Server::start();
    std::thread::scope(|scope| {
        for body in [
            r#"{"mode":"all"}"#,
            r#"{"scope_mode":"agent"}"#,
            r#"{"workspace_access":"ro"}"#,
            r#"{"resource_limits":{"memory_mb":100}}"#,
            r#"{"network_policy":{"enabled":true}}"#,
        ] {
            let server = &server;
            scope.spawn(move || assert_eq!(server.ask("PUT", "/api/sandbox/config", body).status, 200));
        }
    });
    let config = server.ask("GET", "/api/sandbox/config", "").json();
    let changed = json!([
        config["mode"],
        config["scope_mode"],
        config["workspace_access"],
        config["resource_limits"]["memory_mb"],
        config["network_policy"]["enabled"]
    ]);
    assert_eq!(changed, json!(["all", "agent", "ro", 100, true]));
    assert_eq!(config["resource_limits"]["disk_mb"], 2048);
}

#[test]
fn a_restart_whose_start_is_refused_says_that_the_container_is_stopped() {
    let server = Server::start_with(&["--set", "admission.wait_seconds=0"]);
    let id =
        server.ask("POST", "/api/sandbox/create", "{}").json()["sandbox_id"].as_str().unwrap().to_owned();
    let path = format!("/api/sandbox/containers/{}", id.replace("sbx_", "container_"));
    // No machine has room for a sandbox's processes any more.
    let full = json!({"atoll": {"admission": {"cpu_ratio": 0.01}}}).to_string();
    assert_eq!(server.ask("PATCH", super::SETTINGS, &full).status, 200);
    let answer = server.ask("POST", &format!("{path}/restart"), "");
    assert!((400..600).contains(&answer.status), "{answer:?}");
    let told = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(told.contains("is stopped, and was not started again"), "{told}");
    assert_eq!(server.get(&path)["container"]["state"], "stopped");
}

/// Commands and cells come from two lists, which are read a page at a time.
#[test]
fn pages_of_the_audit_are_parts_of_one_list() {
    let server = Server::start();
    let path = server.create("{}");
    for number in 0..5 {
        server.says(&path, &format!("echo {number}"));
    }
    let page = |query: &str| {
        let list = server.get(&format!("/api/sandbox/audit{query}"));
        let command = |entry: &serde_json::Value| entry["command"].as_str().unwrap().to_owned();
        list["entries"].as_array().unwrap().iter().map(command).collect::<Vec<_>>()
    };
    let all = page("");
    assert_eq!(all, ["echo 4", "echo 3", "echo 2", "echo 1", "echo 0"]);
    assert_eq!(
        (page("?offset=1&limit=2"), page("?offset=4&limit=500")),
        (all[1..3].to_vec(), all[4..].to_vec())
    );
    assert!(page("?offset=5").is_empty());
}

#[test]
fn a_key_that_only_reads_changes_nothing() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let reader = server.key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let made = server.ask_as(&ann, "POST", "/api/sandbox/create", "{}").json();
    let id = made["sandbox_id"].as_str().unwrap();
    let container = id.replace("sbx_", "container_");
    let refused = |method: &str, path: &str, body: &str| {
        let answer = server.ask_as(&reader, method, &format!("/api/sandbox{path}"), body);
        assert_eq!(answer.status, 403, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
    };
    refused("POST", "/create", "{}");
    refused("POST", &format!("/{id}/run"), r#"{"code":"1"}"#);
    refused("POST", "/run", &json!({"code": "1", "sandbox_id": id}).to_string());
    refused("DELETE", &format!("/{id}"), "");
    refused("POST", &format!("/containers/{container}/stop"), "");
    refused("POST", &format!("/containers/{container}/restart"), "");
    refused("DELETE", &format!("/containers/{container}"), "");
    let state = || {
        let answer = server.ask_as(&reader, "GET", &format!("/api/sandbox/containers/{container}"), "");
        answer.json()["container"]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "running");
    let stop = format!("/api/sandbox/containers/{container}/stop");
    assert_eq!(server.ask_as(&ann, "POST", &stop, "").status, 200);
    refused("POST", "/containers/cleanup", "");
    assert_eq!(state(), "stopped");
}

#[test]
fn a_container_tells_when_it_was_started_and_how_it_ended() {
    let server = Server::start();
    let path = server.create("{}");
    let id = path.rsplit('/').next().unwrap().replace('-', "");
    let at = format!("/api/sandbox/containers/container_{id}");
    let seen = || server.get(&at)["container"].clone();
    // To the millisecond, which the API does not tell.
    let started = || {
        let id = id.parse().unwrap();
        server.core(async |core| {
            let caller = core.keys.authenticate(KEY).await.unwrap();
            core.sandboxes.started_at(&caller, id).await.unwrap().unwrap()
        })
    };
    let (first, began) = (seen(), started());
    assert!(first["started_at"].is_string() && first["running"] == true, "{first}");
    server.kill_inside(&path);
    let dead = seen();
    assert_eq!((&dead["exit_code"], &dead["oom_killed"]), (&json!(137), &json!(false)), "{dead}");
    assert!(dead["running"] == false && dead["finished_at"].is_string(), "{dead}");
    assert_eq!((&dead["started_at"], started()), (&first["started_at"], began));
    after(began);
    assert_eq!(server.ask("POST", &format!("{at}/restart"), "").status, 200);
    let again = seen();
    assert!(started() > began && again["started_at"].is_string(), "{again}");
    assert_eq!((&again["exit_code"], &again["finished_at"]), (&Value::Null, &Value::Null));
}

/// A moment after this one, which is over.
fn after(moment: i64) -> i64 {
    let later = loop {
        let now = now_ms();
        if now > moment {
            break now;
        }
    };
    while now_ms() <= later {}
    later
}

#[test]
fn the_audit_is_read_by_what_its_query_names() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let (path, other, hers) = (server.create("{}"), server.create("{}"), server.create_as(&ann, "{}"));
    let exec = |sandbox: &str, line: &str| server.exec(sandbox, &json!({ "command": line }));
    exec(&path, "echo one");
    exec(&path, "exit 3");
    let between = after(now_ms());
    exec(&other, "echo two");
    // A row is of who ran it.
    let body = json!({ "command": "exit 3" }).to_string();
    assert_eq!(server.ask_as(&ann, "POST", &format!("{hers}/exec"), &body).status, 200);
    let session = |path: &str| format!("container_{}", path.rsplit('/').next().unwrap().replace('-', ""));
    let found = |key: &str, query: &str| {
        let answer = server.ask_as(key, "GET", &format!("/api/sandbox/audit?{query}"), "");
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        let list = answer.json();
        let lines = list["entries"].as_array().unwrap().iter();
        lines.map(|entry| entry["command"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(KEY, &format!("session_id={}", session(&path))), ["exit 3", "echo one"]);
    assert_eq!(found(KEY, &format!("session_id={}&exit_code=0", session(&path))), ["echo one"]);
    assert_eq!(found(KEY, "exit_code=3"), ["exit 3", "exit 3"]);
    assert_eq!(found(KEY, "exit_code=3&user_id=ann"), ["exit 3"]);
    assert_eq!(found(&ann, ""), ["exit 3"], "of one's own alone");
    assert!(found(&ann, &format!("session_id={}", session(&path))).is_empty());
    assert!(found(KEY, "exit_code=4").is_empty());
    assert_eq!(found(KEY, &format!("since={between}")), ["exit 3", "echo two"]);
    assert_eq!(found(KEY, &format!("until={between}")), ["exit 3", "echo one"]);
    assert_eq!(found(KEY, "since=2000-01-01T00:00:00Z&until=2000-01-02T00:00:00Z"), [""; 0]);
    assert_eq!(found(KEY, "since=2000-01-01T00:00:00Z").len(), 4);
}

/// All of what ships, as the API tells it.
#[test]
fn the_templates_that_ship_are_told_in_their_shape() {
    let server = Server::start();
    let answer = server.ask("GET", "/api/sandbox/templates", "");
    assert_eq!(answer.status, 200);
    let mut list = answer.json();
    list.sort_all_objects();
    insta::assert_snapshot!(format!("{list:#}"));
}

/// Which processors there are is the machine's business, and the shape is not.
#[test]
fn graphics_processors_are_told_in_their_shape() {
    let server = Server::start();
    let told = server.get("/api/sandbox/gpu");
    let names =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
    let set = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(names(&told), set(&["supported", "gpu_count", "devices", "reason"]), "{told}");
    let devices = told["devices"].as_array().unwrap();
    assert!(told["gpu_count"] == devices.len() && told["reason"].is_string(), "{told}");
    assert!(told["supported"] == true || devices.is_empty(), "{told}");
    for device in devices {
        let wanted =
            ["index", "name", "memory_mb", "utilization_percent", "temperature_celsius", "driver_version"];
        assert_eq!(names(device), set(&wanted), "{device}");
    }
}
