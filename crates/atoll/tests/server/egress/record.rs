//! Every decision is in the audit trail, under the operation that caused it.

use super::{curl, log, world::World};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::{Value, json};
use std::process::Command;

/// Runs a line in the background and returns the id of its operation.
fn background(server: &Server, sandbox: &str, line: &str) -> String {
    let body = json!({ "command": line, "background": true }).to_string();
    let exec = server.ask("POST", &format!("{sandbox}/exec"), &body).json()["exec_id"].clone();
    let of = |entry: &Value| entry["extra"]["exec_id"] == exec;
    let all = server.ask("GET", "/api/v1/audit?kind=exec&limit=500", "").json();
    let found = all["entries"].as_array().unwrap().iter().find(|entry| of(entry)).cloned();
    found.unwrap()["operation_id"].as_str().unwrap().to_owned()
}

fn atoll(server: &Server, arguments: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(arguments)
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", crate::server::fixture::KEY)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn a_decision_stands_under_the_command_that_asked() {
    let world = World::new();
    let mut server = Server::start_with(&world.arguments());
    let secret = "s3cret-of-a-path";
    let body = json!({ "egress": world.allow(&["a.test"]), "secrets": { "TOKEN": secret } });
    let sandbox = server.create(&body.to_string());
    // Two at once, so that only the socket can tell whose it is; each waits for its connection's end.
    let hold = |name: &str, stop: &str| {
        let page = world.page("a.test", &format!("/hold/{name}"));
        format!("curl -s -o /dev/null {page} & while ! [ -e {stop} ]; do sleep 0.05; done; kill $!; wait")
    };
    let one = background(&server, &sandbox, &hold("one", "stop"));
    let two = background(&server, &sandbox, &hold("two", "stop"));
    eventually("both connections", || world.held.load(std::sync::atomic::Ordering::SeqCst) == 2);
    // What a command leaves running belongs to it as well.
    let page = world.page("a.test", "/hold/left");
    let left = background(
        &server,
        &sandbox,
        &format!("setsid sh -c 'sleep 1; exec curl -s -o /dev/null {page}' & exit"),
    );
    eventually("the third", || world.held.load(std::sync::atomic::Ordering::SeqCst) == 3);
    server.says(&sandbox, "sleep 0.5; touch stop; pkill -x curl");
    let detail = |operation: &str| server.ask("GET", &format!("/api/v1/audit/{operation}"), "").json();
    for (operation, path) in [(&one, "/hold/one"), (&two, "/hold/two"), (&left, "/hold/left")] {
        eventually("the decision", || {
            let told = detail(operation)["egress"].as_array().unwrap().clone();
            !told.is_empty()
        });
        let told = detail(operation)["egress"].clone();
        assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
        let row = &told[0];
        assert_eq!((row["host"].as_str(), row["path"].as_str()), (Some("a.test"), Some(path)), "{row}");
        assert_eq!((row["verdict"].as_str(), row["via"].as_str()), (Some("allowed"), Some("http")));
        assert_eq!(row["address"], "127.0.0.1");
        assert!(row["bytes_received"].as_u64().unwrap() > 0 && row["duration_ms"].as_f64().unwrap() > 0.0);
    }
    // The only command that runs is the one, however short.
    curl(&server, &sandbox, &world.page("a.test", &format!("/{secret}")));
    curl(&server, &sandbox, &world.page("b.test", "/"));
    eventually("both rows", || log(&server, &sandbox, "").len() >= 5);
    let all = log(&server, &sandbox, "");
    assert!(all.iter().all(|row| row["operation_id"].is_string()), "{all:#?}");
    assert!(!format!("{all:?}").contains(secret) && format!("{all:?}").contains("[secret]"));
    assert_eq!(log(&server, &sandbox, "?verdict=refused").len(), 1);
    assert_eq!(log(&server, &sandbox, "?limit=2").len(), 2);
    let page = server.ask("GET", &format!("{sandbox}/egress/log?limit=2"), "").json();
    let rest = log(&server, &sandbox, &format!("?before={}", page["next_before"]));
    assert_eq!(rest.len(), all.len() - 2);

    let id = sandbox.rsplit('/').next().unwrap();
    let shown = atoll(&server, &["egress", "log", id]);
    assert!(
        shown.contains("refused") && shown.contains("b.test") && shown.contains("allow: a.test"),
        "{shown}"
    );
    let shown = atoll(&server, &["audit", "show", &one]);
    assert!(shown.contains("/hold/one"), "{shown}");
    let shown = atoll(&server, &["egress", "set", id, "--mode", "none"]);
    assert!(shown.contains("none"), "{shown}");
    let shown = atoll(&server, &["egress", "show", id]);
    assert!(shown.contains("b.test") && shown.contains("Transparent"), "{shown}");
    assert!(atoll(&server, &["egress", "presets"]).contains("github"));

    // The trail is sound, also by a later server, which still knows what was decided.
    let verify = || atoll(&server, &["audit", "verify", "--data-dir", server.data().to_str().unwrap()]);
    assert!(verify().starts_with("sound"));
    server.kill();
    server.restart();
    let shown = server.ask("GET", &format!("{sandbox}/egress"), "").json();
    assert!(shown["refused"].as_u64().unwrap() >= 1 && shown["allowed"].as_u64().unwrap() >= 4, "{shown}");
}

#[test]
fn while_nothing_can_be_told_nothing_gets_out() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let sandbox = server.create(&json!({ "egress": world.allow(&["a.test"]) }).to_string());
    let page = world.page("a.test", "/");
    background(&server, &sandbox, &format!("while :; do curl -s -o /dev/null {page}; sleep 0.05; done"));
    let seen = || world.seen.lock().unwrap().len();
    eventually("a page", || seen() > 0);
    let database = server.data().join("server/atoll.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Somebody else holds the database, and so the trail cannot be written.
    let mut held = runtime.block_on(async {
        use sqlx::{Connection, Executor};
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
        let mut conn = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        conn.execute("BEGIN IMMEDIATE").await.unwrap();
        conn
    });
    let problem = || server.ask("GET", &format!("{sandbox}/egress"), "").json()["problem"].clone();
    eventually("word of it", || problem().as_str().is_some_and(|text| text.contains("audit")));
    let before = seen();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(seen() <= before + 1, "at most one that was on its way");
    runtime.block_on(async { sqlx::Executor::execute(&mut held, "ROLLBACK").await.unwrap() });
    eventually("pages again", || seen() > before + 2);
    assert!(problem().is_null());
    // What was decided before and meanwhile is told, and the trail is whole.
    eventually("a row", || !log(&server, &sandbox, "?host=a.test&verdict=allowed").is_empty());
    let verify = atoll(&server, &["audit", "verify", "--data-dir", server.data().to_str().unwrap()]);
    assert!(verify.starts_with("sound"), "{verify}");
}

#[test]
fn decisions_of_another_owner_are_not_shown() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let body = json!({ "name": "u", "owner": "other", "scope": "user" }).to_string();
    let key = server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    for (method, path) in [("GET", "/egress"), ("GET", "/egress/log"), ("PUT", "/egress")] {
        let answer = server.ask_as(&key, method, &format!("{sandbox}{path}"), r#"{"mode":"none"}"#);
        assert_eq!(answer.status, 404, "{method} {path}");
    }
}
