//! The API of runs: create, run, poll, delete.

use super::{KEY, Server, told};
use crate::{engine::fixture::eventually, server::http};
use serde_json::{Value, json};

const PRINTED: &str = include_str!("../../../../front-compat/src/runs/printed_create.json");

/// Makes a sandbox and returns its id.
fn create(server: &Server, key: &str, config: &Value) -> String {
    let body = json!({ "agent_id": "tests", "config": config }).to_string();
    let made = server.compat(key, "POST", "/create", &body, 201);
    assert_eq!((&made["status"], &made["mode"]), (&json!("ready"), &json!("container")), "{made}");
    made["sandbox_id"].as_str().unwrap().to_owned()
}

fn run(server: &Server, key: &str, id: &str, body: &Value) -> Value {
    server.compat(key, "POST", &format!("/{id}/run"), &body.to_string(), 200)
}

fn status(server: &Server, key: &str, id: &str) -> Value {
    server.compat(key, "GET", &format!("/{id}"), "", 200)["status"].clone()
}

/// The path of a sandbox in the native API.
fn native(id: &str) -> String {
    let digits = id.strip_prefix("sbx_").unwrap();
    format!("/api/v1/sandboxes/{digits}")
}

/// What the printed calls are answered below this path, which is shown as the first one of both.
fn printed_calls(server: &Server, key: &str, base: &str) -> String {
    let mut golden = String::new();
    let mut ask = |method: &str, path: &str, body: &str| {
        // The header that this API's clients send.
        let headers = [("X-AgentCop-Key", key)];
        let whole = format!("{base}{path}");
        let answer = http::request(server.address, method, &whole, &headers, body.as_bytes()).unwrap();
        golden += &told(method, &format!("/api/sandbox{path}"), &answer);
        answer
    };
    // As printed, but for a timeout that this test could not keep up with.
    let long = PRINTED.replace("\"timeout\": 30", "\"timeout\": 3600");
    let made = ask("POST", "/create", &long).json();
    let path = format!("/{}", made["sandbox_id"].as_str().unwrap());
    ask("GET", &path, "");
    let agent = "class agent:\n    def run(task): return task.upper()";
    ask("POST", &format!("{path}/run"), &json!({ "code": agent }).to_string());
    let printed = r#"{"code": "result = agent.run('analyze sales data')", "timeout": 30}"#;
    ask("POST", &format!("{path}/run"), printed);
    ask("POST", &format!("{path}/run"), r#"{"code": "print('out'); raise ValueError('no')"}"#);
    let begun = ask("POST", &format!("{path}/run"), r#"{"code": "40 + 2", "async": true}"#).json();
    let poll = format!("{path}/runs/{}", begun["run_id"].as_str().unwrap());
    let whole = format!("{base}{poll}");
    let asked = || http::request(server.address, "GET", &whole, &[("X-AgentCop-Key", key)], b"").unwrap();
    eventually("its end", || asked().json()["status"] != "running");
    ask("GET", &poll, "");
    ask("DELETE", &path, "");
    ask("GET", &path, "");
    ask("POST", &format!("{path}/run"), printed);
    golden
}

#[test]
fn the_printed_calls_are_answered_as_printed() {
    let server = Server::start();
    let ann = server.key_of("ann", "user");
    let golden = printed_calls(&server, &ann, "/api/sandbox");
    insta::assert_snapshot!(golden);
    assert_eq!(printed_calls(&server, &ann, "/api/v1/sandbox"), golden);
}

#[test]
fn a_create_means_what_it_says() {
    let server = Server::start();
    let id = create(&server, KEY, &serde_json::from_str::<Value>(PRINTED).unwrap()["config"]);
    let seen = server.ask("GET", &native(&id), "").json();
    assert_eq!((&seen["cpu_cores"], &seen["memory_mb"]), (&json!(0.5), &json!(512)), "{seen}");
    assert_eq!(seen["max_lifetime_seconds"], 30, "{seen}");
    assert_eq!(seen["egress"], json!({"mode": "allowlist", "allow": ["api.company.com"]}), "{seen}");
    let id = create(
        &server,
        KEY,
        &json!({"filesystem": {"read_only": ["/workspace/data"], "read_write": ["/workspace/output"],
            "blocked": ["/etc", "/root"]}}),
    );
    let code = r#"
import os
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
result = [
    tried(lambda: open("/workspace/data/a", "w")),
    tried(lambda: open("/workspace/output/a", "w").write("x")),
    tried(lambda: os.listdir("/etc") or "PermissionError"),
]
"#;
    let ran = run(&server, KEY, &id, &json!({ "code": code }));
    assert_eq!(ran["result"], "['OSError', 1, 'PermissionError']", "{ran}");
    let seen = server.ask("GET", &native(&id), "").json();
    assert_eq!((&seen["network_enabled"], &seen["max_lifetime_seconds"]), (&json!(false), &json!(1800)));
    // As much as the key's tier allows, and a tier without a network allows none.
    let all = json!({"network": {"block_outbound": false}});
    let of_tier = |tier: &str| {
        let body = json!({"name": tier, "owner": tier, "scope": "user", "tier": tier}).to_string();
        server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
    };
    for (key, mode) in [(KEY.to_owned(), "full"), (of_tier("standard"), "allowlist")] {
        let open = create(&server, &key, &all);
        let seen = server.ask("GET", &native(&open), "").json();
        assert_eq!(seen["egress"]["mode"], mode, "{seen}");
    }
    let body = json!({ "config": all }).to_string();
    let refused = server.compat(&of_tier("sandbox"), "POST", "/create", &body, 403);
    assert!(refused["message"].as_str().unwrap().contains("tier"), "{refused}");
}

#[test]
fn result_is_the_last_expression_or_the_variable_of_that_name() {
    let server = Server::start();
    let id = create(&server, KEY, &json!({}));
    let result = |code: &str| {
        let ran = run(&server, KEY, &id, &json!({ "code": code }));
        assert_eq!((&ran["status"], &ran["exit_code"]), (&json!("completed"), &json!(0)), "{code}: {ran}");
        ran["result"].clone()
    };
    assert_eq!(result("result = 6 * 7"), "42");
    assert_eq!(result("x = 1"), Value::Null, "an earlier run's variable is not this one's result");
    assert_eq!(result("result = 1\n'last'"), "'last'");
    assert_eq!(result("for result in range(3): pass"), "2");
    assert_eq!(result("import asyncio\nawait asyncio.sleep(0)\nresult = 'awaited'"), "'awaited'");
    assert_eq!(result("del result"), Value::Null);
}

#[test]
fn a_run_in_the_background_is_polled_and_ends_with_its_sandbox() {
    let mut server = Server::start();
    let id = create(&server, KEY, &json!({}));
    let path = format!("/{id}/run");
    let background = |server: &Server, code: &str| {
        let body = json!({ "code": code, "async": true, "timeout": 600 }).to_string();
        let begun = server.compat(KEY, "POST", &path, &body, 202);
        assert_eq!(begun["status"], "running", "{begun}");
        format!("/{id}/runs/{}", begun["run_id"].as_str().unwrap())
    };
    let first = background(
        &server,
        "import time\nwhile not __import__('os').path.exists('/workspace/go'): time.sleep(.01)\nresult = 'went'",
    );
    assert_eq!(server.compat(KEY, "GET", &first, "", 200)["status"], "running");
    assert_eq!(status(&server, KEY, &id), "running");
    // The server may be killed meanwhile.
    server.kill();
    server.restart();
    assert_eq!(server.compat(KEY, "GET", &first, "", 200)["status"], "running");
    assert!(server.ask("PUT", &format!("{}/files/go", native(&id)), "").status < 300);
    eventually("its end", || server.compat(KEY, "GET", &first, "", 200)["status"] == "completed");
    assert_eq!(server.compat(KEY, "GET", &first, "", 200)["result"], "'went'");
    eventually("its rest", || status(&server, KEY, &id) == "ready");
    // A timeout ends the code and keeps the sandbox.
    let late = run(&server, KEY, &id, &json!({ "code": "while True: pass", "timeout": 1 }));
    assert_eq!((&late["status"], &late["exit_code"]), (&json!("timed_out"), &json!(124)), "{late}");
    let second = background(&server, "print('said')\nresult = 1");
    eventually("its end", || server.compat(KEY, "GET", &second, "", 200)["status"] == "completed");
    let endless = background(&server, "while True: pass");
    server.compat(KEY, "DELETE", &format!("/{id}"), "", 204);
    assert_eq!(status(&server, KEY, &id), "destroyed");
    // What the audit trail keeps of a run stays when its sandbox is gone.
    let kept = server.compat(KEY, "GET", &second, "", 200);
    assert_eq!((&kept["status"], &kept["exit_code"]), (&json!("completed"), &json!(0)), "{kept}");
    assert_eq!((&kept["stdout"], &kept["result"]), (&json!("said\n"), &Value::Null), "{kept}");
    eventually("the end of the other", || {
        let answer = server.ask("GET", &format!("/api/sandbox{endless}"), "");
        answer.status == 200 && answer.json()["status"] == "failed"
    });
    server.compat(&server.key_of("bob", "user"), "GET", &second, "", 404);
    let timed_out =
        server.compat(KEY, "GET", &format!("/{id}/runs/{}", late["run_id"].as_str().unwrap()), "", 200);
    assert_eq!((&timed_out["status"], &timed_out["exit_code"]), (&json!("timed_out"), &json!(124)));
    let unknown = format!("/{id}/runs/run_{}", "0".repeat(32));
    assert_eq!(server.compat(KEY, "GET", &unknown, "", 404)["error"], "not_found");
}

#[test]
fn a_sandbox_is_destroyed_when_its_timeout_elapses() {
    let server = Server::start();
    let id = create(&server, KEY, &json!({"resources": {"timeout": 1}}));
    eventually("its end", || status(&server, KEY, &id) == "destroyed");
    let seen = server.compat(KEY, "GET", &format!("/{id}"), "", 200);
    assert!(seen["expires_at"].is_string() && seen["agent_id"] == "tests", "{seen}");
}

#[test]
fn an_image_that_is_not_approved_is_refused_to_admins_too() {
    let server = crate::server::images::with_record(&[]);
    let body = json!({ "config": { "image": "team/app:1" } }).to_string();
    for key in [KEY.to_owned(), server.key_of("ann", "user")] {
        let refused = server.compat(&key, "POST", "/create", &body, 422);
        assert!(refused["message"].as_str().unwrap().contains("not approved"), "{refused}");
    }
}
