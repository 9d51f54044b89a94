//! The API of containers: configuration, containers, snapshots and what the server knows.

use super::{KEY, Server, told};
use crate::{
    engine::fixture::eventually,
    server::{
        http,
        image_imports::{import, root_filesystem},
    },
};
use serde_json::{Value, json};

fn configured(server: &Server, key: &str, config: &Value) -> Value {
    server.compat(key, "PUT", "/config", &config.to_string(), 200)
}

/// Makes a sandbox by the other API of `/api/sandbox` and returns its id here.
fn create(server: &Server, key: &str, body: &Value) -> String {
    let made = server.compat(key, "POST", "/create", &body.to_string(), 201);
    made["sandbox_id"].as_str().unwrap().replace("sbx_", "container_")
}

fn run(server: &Server, key: &str, body: &Value) -> Value {
    let ran = server.compat(key, "POST", "/run", &body.to_string(), 200);
    assert_eq!(ran["status"], "completed", "{ran}");
    ran
}

fn native(server: &Server, id: &str) -> Value {
    let digits = id.strip_prefix("container_").unwrap();
    server.ask("GET", &format!("/api/v1/sandboxes/{digits}"), "").json()
}

#[test]
fn every_call_answers_in_its_shape() {
    let server = Server::start();
    let mut golden = String::new();
    let mut ask = |method: &str, path: &str, body: &str| {
        let answer = server.ask(method, &format!("/api/sandbox{path}"), body);
        let mut text = told(method, path, &answer);
        // What the machine does at the moment.
        for name in ["cpu_percent", "memory_mb", "size_bytes", "total_duration_ms", "avg_duration_ms"] {
            let lines =
                text.lines().map(|line| match line.trim_start().strip_prefix(&format!("\"{name}\": ")) {
                    Some(rest) if path.starts_with("/containers") || path.starts_with("/audit") => {
                        let comma = if rest.ends_with(',') { "," } else { "" };
                        format!(
                            "{}\"{name}\": <figure>{comma}",
                            " ".repeat(line.len() - line.trim_start().len())
                        )
                    }
                    _ => line.to_owned(),
                });
            text = lines.collect::<Vec<_>>().join("\n") + "\n";
        }
        golden += &text;
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    };
    ask("GET", "/config", "");
    let printed = r#"{"mode":"all","network_policy":{"enabled":true,"allowed_domains":["api.github.com","registry.example"]}}"#;
    ask("PUT", "/config", printed);
    let ran = ask(
        "POST",
        "/run",
        r#"{"code":"print('out')\nresult = 6 * 7","session_id":"s1","agent_id":"agent_123"}"#,
    );
    let container = format!("/containers/{}", ran["container_id"].as_str().unwrap());
    ask("GET", "/status", "");
    ask("GET", "/containers", "");
    ask("GET", &container, "");
    let snapshot = ask("POST", &format!("{container}/snapshots"), r#"{"label":"before"}"#);
    let snapshots = format!("{container}/snapshots/{}", snapshot["id"].as_str().unwrap());
    ask("GET", &format!("{container}/snapshots"), "");
    ask("POST", &format!("{snapshots}/rollback"), "");
    ask("DELETE", &snapshots, "");
    let audit = ask("GET", "/audit?limit=1", "");
    ask("GET", &format!("/audit/{}/output", audit["entries"][0]["id"].as_str().unwrap()), "");
    ask("GET", "/audit/summary", "");
    ask("POST", "/audit/cleanup", r#"{"retention_days":3650}"#);
    ask("POST", &format!("{container}/stop"), "");
    ask("POST", &format!("{container}/restart"), "");
    ask("DELETE", &container, "");
    ask("GET", &container, "");
    ask("POST", "/containers/cleanup", "");
    ask("GET", "/pool", "");
    ask("POST", "/pool/drain", "");
    ask("GET", "/tiers", "");
    ask("POST", "/templates", r#"{"name":"Mine","dockerfile":"FROM base\nRUN true\n"}"#);
    ask("POST", "/templates/mine/build", "");
    ask("POST", "/templates/mine/pull", "");
    ask("DELETE", "/templates/mine", "");
    ask("POST", "/templates/nosuch/pull", "");
    ask("DELETE", "/templates/base", "");
    insta::assert_snapshot!(golden);
    // Which of both is the machine's business.
    let gpu = server.compat(KEY, "GET", "/gpu", "", 200);
    let count = gpu["devices"].as_array().unwrap().len();
    assert!(gpu["gpu_count"] == count && gpu["reason"].is_string(), "{gpu}");
    assert!(gpu["supported"] == true || count == 0, "{gpu}");
    let templates = server.compat(KEY, "GET", "/templates", "", 200);
    let first = &templates["templates"][0];
    assert!(first["id"].is_string() && first["is_builtin"] == true && first["built"] == false, "{first}");
}

#[test]
fn the_mode_decides_whether_and_where_a_call_runs() {
    let server = Server::start();
    let ann = server.key_of("ann", "user");
    let bob = server.key_of("bob", "user");
    let session =
        |id: &str| json!({ "code": "result = open('/workspace/a', 'a').write('x')", "session_id": id });
    // selective, as it is at first: a call has to name its sandbox.
    let refused = server.compat(&ann, "POST", "/run", &session("s").to_string(), 400);
    assert!(refused["error"].as_str().unwrap().contains("selective"), "{refused}");
    let own = create(&server, &ann, &json!({}));
    assert_eq!(run(&server, &ann, &json!({"code": "1", "sandbox_id": own}))["container_id"], own);
    server.compat(&bob, "POST", "/run", &json!({"code": "1", "sandbox_id": own}).to_string(), 404);
    // all: it gets one by the scope.
    configured(&server, &ann, &json!({"mode": "all"}));
    let first = run(&server, &ann, &session("s1"))["container_id"].clone();
    assert_eq!(run(&server, &ann, &session("s1"))["container_id"], first, "a session has one");
    let refused = server.compat(&ann, "POST", "/run", r#"{"code":"1"}"#, 400);
    assert!(refused["error"].as_str().unwrap().contains("session_id"), "{refused}");
    configured(&server, &ann, &json!({"scope_mode": "shared"}));
    let shared = run(&server, &ann, &json!({"code": "1"}))["container_id"].clone();
    assert_ne!(shared, first);
    assert_eq!(run(&server, &ann, &session("other"))["container_id"], shared, "all share one");
    server.compat(&ann, "DELETE", &format!("/containers/{}", shared.as_str().unwrap()), "", 200);
    configured(&server, &ann, &json!({"scope_mode": "agent"}));
    let agent = run(&server, &ann, &json!({"code": "1", "agent_id": "a1", "session_id": "s9"}));
    assert!(agent["container_id"] != first && agent["container_id"] != shared, "{agent}");
    let list = server.compat(&ann, "GET", "/containers", "", 200);
    let scopes: Vec<_> = list["containers"].as_array().unwrap().iter().map(|c| c["scope"].clone()).collect();
    assert!(scopes.contains(&json!("agent")) && scopes.contains(&json!("session")), "{list}");
    // off: nothing is made and nothing runs, wherever it would.
    configured(&server, &ann, &json!({"mode": "off"}));
    let before = server.compat(&ann, "GET", "/audit/summary", "", 200);
    for (method, path, body) in [
        ("POST", "/create", "{}".to_owned()),
        ("POST", "/run", session("s1").to_string()),
        ("POST", &format!("/{}/run", own.replace("container_", "sbx_")), r#"{"code":"1"}"#.to_owned()),
        ("POST", &format!("/containers/{own}/restart"), String::new()),
    ] {
        server.compat(&ann, method, path, &body, 503);
    }
    assert_eq!(server.compat(&ann, "GET", "/audit/summary", "", 200), before, "nothing ran");
    assert_eq!(
        server.compat(&bob, "GET", "/config", "", 200)["mode"],
        "selective",
        "a configuration is one owner's"
    );
    assert_eq!(create(&server, &bob, &json!({})).len(), 42);
    assert!(!server.logged().contains("a request failed"), "an owner's choice is no failure of the server");
}

#[test]
fn a_repeated_run_runs_once() {
    let server = Server::start();
    configured(&server, KEY, &json!({"mode": "all", "scope_mode": "shared"}));
    let authorization = format!("Bearer {KEY}");
    let id = create(&server, KEY, &json!({}));
    for (keys, named) in [(["a", "a", "b"], None), (["c", "c", "d"], Some(&id))] {
        let mut body = json!({"code": "n = globals().get('n', 0) + 1\nn"});
        if let Some(id) = named {
            body["sandbox_id"] = json!(id);
        }
        let run = |key: &str| {
            let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", key)];
            let body = body.to_string();
            let path = "/api/sandbox/run";
            let ran = http::request(server.address, "POST", path, &headers, body.as_bytes()).unwrap().json();
            (ran["run_id"].as_str().unwrap().to_owned(), ran["result"].as_str().unwrap().to_owned())
        };
        let [first, again, other] = keys.map(run);
        assert_eq!((first.1.as_str(), other.1.as_str()), ("1", "2"));
        assert_eq!(first, again);
    }
}

#[test]
fn the_workspace_is_what_the_configuration_says() {
    let mut server = Server::start();
    let code = r#"
def tried(write):
    try:
        return open(write, "w").write("x")
    except OSError as error:
        return error.strerror
result = [tried("/workspace/a"), tried("/tmp/a")]
"#;
    let access = |server: &Server, access: &str| {
        configured(server, KEY, &json!({"mode": "all", "scope_mode": "shared", "workspace_access": access}));
        let ran = run(server, KEY, &json!({ "code": code }));
        let id = ran["container_id"].as_str().unwrap().to_owned();
        (ran["result"].as_str().unwrap().to_owned(), id)
    };
    let (rw, first) = access(&server, "rw");
    assert_eq!(rw, "[1, 1]");
    // The same files, which commands may not write any more, and then may again.
    let (ro, second) = access(&server, "ro");
    assert_eq!(ro, "['Read-only file system', 1]");
    let read = json!({ "code": "result = open('/workspace/a').read()" });
    assert_eq!((run(&server, KEY, &read)["result"].as_str(), &second), (Some("'x'"), &first));
    // A create that has a rule for the folder itself decides: the same one, and the other.
    for (rule, writes) in [("read_only", &ro), ("read_write", &rw)] {
        let made = create(&server, KEY, &json!({ "config": { "filesystem": { rule: ["/workspace"] } } }));
        let ran = run(&server, KEY, &json!({ "code": code, "sandbox_id": made }));
        assert_eq!(ran["result"].as_str(), Some(writes.as_str()), "{ran}");
        server.compat(KEY, "DELETE", &format!("/containers/{made}"), "", 200);
    }
    let (rw, again) = access(&server, "rw");
    assert_eq!((rw.as_str(), &again), ("[1, 1]", &first));
    let (none, third) = access(&server, "none");
    assert_eq!(none, "[1, 1]");
    assert_ne!(third, first, "files in memory are another sandbox's");
    let mounts = "result = [l.split()[2] for l in open('/proc/mounts') if l.split()[1] == '/workspace']";
    assert_eq!(run(&server, KEY, &json!({ "code": mounts }))["result"], "['tmpfs']");
    // What is stored outlives the server.
    server.kill();
    server.restart();
    assert_eq!(server.compat(KEY, "GET", "/config", "", 200)["workspace_access"], "none");
}

#[test]
fn limits_and_network_are_the_defaults_of_later_creates() {
    let server = Server::start();
    let before = create(&server, KEY, &json!({}));
    configured(
        &server,
        KEY,
        &json!({"resource_limits": {"cpu_cores": 0.5, "memory_mb": 300, "disk_mb": 100, "max_processes": 40},
            "network_policy": {"enabled": true, "allowed_domains": ["a.example"], "blocked_domains": ["b.example"]}}),
    );
    let seen = native(&server, &before);
    assert_eq!((&seen["memory_mb"], &seen["processes"]), (&json!(512), &json!(50)), "{seen}");
    let seen = native(&server, &create(&server, KEY, &json!({})));
    assert_eq!(
        (&seen["cpu_cores"], &seen["memory_mb"], &seen["disk_mb"], &seen["processes"]),
        (&json!(0.5), &json!(300), &json!(100), &json!(40)),
        "{seen}"
    );
    assert_eq!(
        seen["egress"],
        json!({"mode": "allowlist", "allow": ["a.example"], "deny": ["b.example"]}),
        "{seen}"
    );
    let named = json!({"config": {"resources": {"memory": "200m"}, "network": {}}});
    let seen = native(&server, &create(&server, KEY, &named));
    assert_eq!((&seen["memory_mb"], &seen["network_enabled"]), (&json!(200), &json!(false)), "{seen}");
    // A default above the key's tier is as much as the tier allows.
    let made = server
        .ask("POST", "/api/v1/keys", r#"{"name":"l","owner":"low","scope":"user","tier":"sandbox"}"#)
        .json();
    let low = made["key"].as_str().unwrap();
    configured(&server, low, &json!({"network_policy": {"enabled": true, "allowed_domains": ["a.example"]}}));
    let seen = native(&server, &create(&server, low, &json!({})));
    assert_eq!((&seen["memory_mb"], &seen["network_enabled"]), (&json!(128), &json!(false)), "{seen}");
}

#[test]
fn a_run_that_names_no_timeout_has_that_of_the_configuration() {
    let server = Server::start();
    configured(
        &server,
        KEY,
        &json!({"mode": "all", "scope_mode": "shared", "resource_limits": {"timeout_seconds": 2}}),
    );
    let ran = |body: Value| server.compat(KEY, "POST", "/run", &body.to_string(), 200);
    let late = ran(json!({ "code": "import time\ntime.sleep(600)" }));
    assert_eq!(late["status"], "timed_out", "{late}");
    let named = ran(json!({ "code": "import time\ntime.sleep(3)\nresult = 1", "timeout": 60 }));
    assert_eq!((&named["status"], &named["result"]), (&json!("completed"), &json!("1")), "{named}");
}

#[test]
fn a_container_that_goes_on_after_a_pause_was_not_started_again() {
    let server = Server::start();
    let id = create(&server, KEY, &json!({}));
    let started = || {
        let seen = server.compat(KEY, "GET", &format!("/containers/{id}"), "", 200);
        seen["container"]["started_at"].as_str().unwrap().to_owned()
    };
    let first = started();
    // Times are told in seconds.
    std::thread::sleep(std::time::Duration::from_secs(2));
    for call in ["pause", "resume"] {
        let path = format!("/api/v1/sandboxes/{}/{call}", id.strip_prefix("container_").unwrap());
        assert_eq!(server.ask("POST", &path, "").status, 200, "{call}");
    }
    assert_eq!(started(), first);
}

#[test]
fn a_network_is_what_the_policy_names() {
    let server = Server::start();
    let key =
        server.ask("POST", "/api/v1/keys", r#"{"name":"k","owner":"ann","scope":"user","tier":"standard"}"#);
    let key = key.json()["key"].as_str().unwrap().to_owned();
    let made = |policy: Value| {
        configured(&server, &key, &json!({ "network_policy": policy }));
        let id = create(&server, &key, &json!({}));
        let seen = native(&server, &id);
        server.compat(&key, "DELETE", &format!("/containers/{id}"), "", 200);
        (seen["network_enabled"].clone(), seen["egress"].clone())
    };
    let off = made(json!({"enabled": false, "allowed_domains": ["a.example"]}));
    assert_eq!((off.0, &off.1["mode"]), (json!(false), &json!("none")), "what is not enabled lists in vain");
    let tier = made(json!({"enabled": true, "allowed_domains": []}));
    assert_eq!((&tier.0, &tier.1["mode"]), (&json!(true), &json!("allowlist")), "what the tier allows");
    assert!(tier.1["presets"].as_array().is_some_and(|presets| !presets.is_empty()), "{tier:?}");
    let blocked = made(json!({"blocked_domains": ["b.example"]}));
    assert_eq!((&blocked.1["presets"], &blocked.1["deny"]), (&tier.1["presets"], &json!(["b.example"])));
    let both = made(json!({"allowed_domains": ["a.example"]}));
    assert_eq!(both.1, json!({"mode": "allowlist", "allow": ["a.example"], "deny": ["b.example"]}));
}

#[test]
fn a_template_of_an_owner_is_built_by_an_admin() {
    let server = Server::start();
    let imported = import(&server, "name=box", &root_filesystem("base"));
    assert_eq!(imported.status, 201, "{}", String::from_utf8_lossy(&imported.body));
    let ann = server.key_of("ann", "user");
    let template = json!({"name": "Mine", "image": "box", "setup_commands": ["echo made > /made"], "env": {"WORD": "w"}});
    server.compat(&ann, "POST", "/templates", &template.to_string(), 201);
    server.compat(&ann, "POST", "/templates/mine/build", "", 403);
    let built = server.compat(KEY, "POST", "/templates/mine/build?owner=ann", "", 200);
    assert_eq!(built["status"], "ok", "{built}");
    let list = server.compat(&ann, "GET", "/templates", "", 200);
    let mine = list["templates"].as_array().unwrap().iter().find(|one| one["id"] == "mine").unwrap();
    assert!(mine["built"] == true && mine["built_at"].is_string() && mine["size_mb"].is_number(), "{mine}");
    let sandbox = server.create(r#"{"image":"mine"}"#);
    assert_eq!(server.says(&sandbox, "cat /made; echo $WORD"), "made\nw");
}

#[test]
fn containers_are_their_owners_and_idle_ones_are_cleaned_up() {
    let server = Server::start();
    let (ann, bob) = (server.key_of("ann", "user"), server.key_of("bob", "user"));
    let (first, second) =
        (create(&server, &ann, &json!({"agent_id": "a"})), create(&server, &ann, &json!({})));
    let of_bob = create(&server, &bob, &json!({}));
    let ids = |key: &str| {
        let list = server.compat(key, "GET", "/containers", "", 200);
        let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
        list["containers"].as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!((ids(&ann).len(), ids(&bob), ids(KEY).len()), (2, vec![of_bob.clone()], 0));
    eventually("its figures", || {
        let list = server.compat(&ann, "GET", "/containers", "", 200);
        list["containers"][0]["cpu_percent"].is_number() && list["containers"][0]["memory_mb"].is_number()
    });
    let snapshot = server.compat(&ann, "POST", &format!("/containers/{first}/snapshots"), "", 201);
    let of_it = format!("/containers/{first}/snapshots/{}", snapshot["id"].as_str().unwrap());
    for (method, path) in [
        ("GET", format!("/containers/{first}")),
        ("DELETE", format!("/containers/{first}")),
        ("POST", format!("/containers/{first}/stop")),
        ("POST", format!("/containers/{first}/restart")),
        ("GET", format!("/containers/{first}/snapshots")),
        ("POST", format!("/containers/{first}/snapshots")),
        ("POST", format!("{of_it}/rollback")),
        ("DELETE", of_it),
    ] {
        let answer = server.compat(&bob, method, &path, "", 404);
        assert!(answer["error"].is_string() && answer.as_object().unwrap().len() == 1, "{answer}");
    }
    for (method, path) in [("GET", "/pool"), ("POST", "/pool/drain")] {
        server.compat(&bob, method, path, "", 403);
    }
    server.compat(&bob, "POST", "/audit/cleanup", r#"{"retention_days":1}"#, 403);
    let run = json!({"code": "1", "sandbox_id": second}).to_string();
    server.compat(&ann, "POST", "/run", &run, 200);
    let seen = |key: &str, query: &str| {
        server.compat(key, "GET", &format!("/audit{query}"), "", 200)["entries"].as_array().unwrap().len()
    };
    assert_eq!((seen(&ann, ""), seen(&bob, ""), seen(&bob, "?user_id=ann")), (1, 0, 0));
    assert_eq!((seen(&ann, "?offset=1"), seen(&ann, &format!("?session_id={first}"))), (0, 0));
    // A sandbox of the native API is nothing that this one cleans up, nor is a fork of one that this API made, nor one with
    // the label's old name, which forks had too. Each is stopped at once: the plan has three that run.
    let made = |path: &str, body: &str| {
        let answer = server.ask_as(&ann, "POST", &format!("/api/v1/sandboxes{path}"), body);
        let id = answer.json()["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
        let stopped = server.ask_as(&ann, "POST", &format!("/api/v1/sandboxes/{id}/stop"), "");
        assert_eq!(stopped.status, 200, "{stopped:?}");
        id
    };
    let old = made("", r#"{"labels":{"sandbox-api.scope":"agent"}}"#);
    let old_container = format!("/containers/container_{}", old.replace('-', ""));
    let scope = server.compat(&ann, "GET", &old_container, "", 200)["container"]["scope"].clone();
    assert_eq!(scope, "agent");
    let mut kept = vec![made("", "{}"), old];
    for source in [first.strip_prefix("container_").unwrap().to_owned(), kept[1].clone()] {
        kept.push(made(&format!("/{source}/fork"), "{}"));
    }
    server.compat(&ann, "POST", &format!("/containers/{first}/stop"), "", 200);
    assert_eq!(
        server.compat(&ann, "POST", "/containers/cleanup", "", 200),
        json!({"status": "ok", "removed": 1})
    );
    server.compat(&ann, "GET", &format!("/containers/{first}"), "", 404);
    for id in kept {
        let record = server.ask_as(&ann, "GET", &format!("/api/v1/sandboxes/{id}"), "").json();
        assert_eq!(record["status"], "stopped", "{record}");
        assert!(record["labels"].get("atoll.sandbox_api_scope").is_none(), "{record}");
    }
    assert_eq!((ids(&ann), ids(&bob)), (vec![second], vec![of_bob]));
}
