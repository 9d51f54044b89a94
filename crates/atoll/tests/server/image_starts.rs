//! What the sandboxes of an image start by themselves, and when they are ready. The image is one that the test builds on busybox.

use super::{
    fixture::{KEY, Server},
    http::{Answer, request},
    image_builds::{begin_of, done, end, log, put_box},
    lifecycle_idle::{looking, status},
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{process::Command, thread};

const ROOT: &str = "/api/v1/sandbox-images";
const SANDBOXES: &str = "/api/v1/sandboxes";
const COMMAND: &str = "/bin/sh /opt/serve";

/// A template whose command fails, or is never up, where the sandbox's variables or files say so.
fn spec(id: &str, seconds: u32) -> Value {
    let serve = "[ \"$MODE\" = bad ] && { echo no such mode >&2; exit 3; }\n\
        [ -e /workspace/bad ] && { echo no such file >&2; exit 4; }\n\
        [ \"$MODE\" = slow ] && exec /usr/bin/busybox sleep 7653\n\
        /usr/bin/busybox sleep 1\necho $WHO > /tmp/up\nexec /usr/bin/busybox sleep 7653\n";
    json!({ "disk_mb": 64, "memory_mb": 256, "spec": { "id": id, "base": "box", "env": { "WHO": "served" },
        "files": [{ "path": "/opt/serve", "content": serve }], "start_command": COMMAND,
        "ready_check": "cat /tmp/up", "ready_timeout_seconds": seconds, "ready_interval_ms": 100 } })
}

/// The commands of a sandbox that run, but for the one that asks.
fn running(server: &Server, sandbox: &str) -> Vec<String> {
    let all = server.ask("GET", &format!("{sandbox}/execs"), "").json();
    let runs =
        all.as_array().unwrap_or_else(|| panic!("{all}")).iter().filter(|exec| exec["status"] == "running");
    runs.map(|exec| exec["command"].as_str().unwrap().to_owned()).collect()
}

/// A sandbox is ready: what its image starts runs once, and its check succeeded.
fn is_up(server: &Server, sandbox: &str) {
    let shown = server.ask("GET", sandbox, "").json();
    assert_eq!((&shown["status"], &shown["status_reason"]), (&json!("running"), &Value::Null), "{shown}");
    assert_eq!(server.says(sandbox, "cat /tmp/up"), "served");
    assert_eq!(running(server, sandbox), [COMMAND]);
}

fn post(server: &Server, path: &str, body: &str) -> Value {
    let answer = server.ask("POST", path, body);
    assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn path_of(sandbox: &Value) -> String {
    format!("{SANDBOXES}/{}", sandbox["id"].as_str().unwrap())
}

#[test]
fn what_an_image_starts_runs_in_every_new_container_of_its_sandboxes() {
    let pool = ["--set", "warm_pool_enabled=true", "--set", "pool.min=0", "--set", "pool.max=0"];
    let server = Server::start_with(&pool);
    put_box(&server);
    let build = begin_of(&server, &spec("served", 60));
    done(&server, &build);
    let said = log(&server, &build);
    assert!(said.contains("start command: ") && said.contains("ready check: cat /tmp/up"), "{said}");
    let image = server.ask("GET", &format!("{ROOT}/served"), "").json();
    assert_eq!(image["start_command"], COMMAND);
    assert_eq!((&image["ready_check"], &image["ready_timeout_seconds"]), (&json!("cat /tmp/up"), &json!(60)));
    let shown = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["image", "inspect", "served"])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(COMMAND) && shown.contains("cat /tmp/up, within 60 seconds"), "{shown}");

    let sandbox = server.create(r#"{"image":"served","session_key":"one"}"#);
    is_up(&server, &sandbox);
    let id = sandbox.rsplit('/').next().unwrap();
    let rows = server.ask("GET", &format!("/api/v1/audit?sandbox_id={id}&limit=100"), "").json().to_string();
    assert!(rows.contains(r#""mode":"start""#) && rows.contains(r#""mode":"ready_check""#), "{rows}");
    post(&server, &format!("{sandbox}/stop"), "");
    post(&server, &format!("{sandbox}/resume"), "");
    is_up(&server, &sandbox);
    // One that is there already is not started twice.
    post(&server, &format!("{sandbox}/resume"), "");
    is_up(&server, &sandbox);
    post(&server, &format!("{sandbox}/stop"), "");
    let again = server.create(r#"{"image":"served","session_key":"one"}"#);
    assert_eq!(again, sandbox);
    is_up(&server, &sandbox);
    let snapshot = post(&server, &format!("{sandbox}/snapshots"), "{}")["id"].as_str().unwrap().to_owned();
    post(&server, &format!("{sandbox}/snapshots/{snapshot}/rollback"), "{}");
    is_up(&server, &sandbox);
    let fork = path_of(&post(&server, &format!("{sandbox}/fork"), "{}"));
    is_up(&server, &fork);
    let archive = server.send("GET", &format!("{sandbox}/export"), b"").body;
    let imported = server.send("POST", &format!("{SANDBOXES}/import"), &archive);
    assert_eq!(imported.status, 201, "{}", String::from_utf8_lossy(&imported.body));
    is_up(&server, &path_of(&imported.json()["sandbox"]));

    // A container of the pool starts nothing until it is a sandbox's; an image on this one starts the same.
    let on = json!({ "name": "on", "dockerfile": "FROM served\nLABEL more=1\n", "warm_pool_min": 1, "warm_pool_max": 1 });
    done(&server, &begin_of(&server, &on));
    let warm = || {
        let keys = server.ask("GET", "/api/v1/pool", "").json()["keys"].clone();
        let own = keys.as_array().unwrap().iter().find(|key| key["image"] != "host").cloned();
        own.unwrap_or_default()
    };
    eventually("a container of the image", || warm()["ready"] == 1);
    let claimed = server.create(r#"{"image":"on"}"#);
    assert_eq!(warm()["hits"], 1, "{}", warm());
    is_up(&server, &claimed);
    // A label takes it away.
    let none = json!({ "name": "none", "dockerfile": "FROM served\nLABEL atoll.start_command=\"\"\n" });
    done(&server, &begin_of(&server, &none));
    let quiet = server.create(r#"{"image":"none"}"#);
    assert_eq!(running(&server, &quiet), [""; 0]);
}

fn error(answer: &Answer) -> (u16, String, String) {
    let error = answer.json()["error"].clone();
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    (answer.status, text("code"), text("message"))
}

#[test]
fn what_does_not_become_ready_is_told_with_its_output() {
    let server = Server::start();
    put_box(&server);
    // A build in which it fails makes no image.
    let mut bad = spec("bad", 5);
    bad["spec"]["env"] = json!({ "MODE": "bad" });
    let ended = end(&server, &begin_of(&server, &bad));
    let why = ended["error"].as_str().unwrap();
    assert!(ended["status"] == "failed" && why.contains("ended with exit code 3: no such mode"), "{ended}");
    assert_eq!(server.ask("GET", &format!("{ROOT}/bad"), "").status, 404);
    let mut wrong = spec("wrong", 1);
    wrong["spec"]["ready_check"] = json!("echo not yet; cat /nosuch");
    let ended = end(&server, &begin_of(&server, &wrong));
    let why = ended["error"].as_str().unwrap();
    assert!(why.contains("did not succeed within 1 seconds") && why.contains(": not yet"), "{ended}");
    let unchecked =
        json!({ "spec": { "id": "unchecked", "base": "box", "start_command": "nosuch-program" } });
    let ended = end(&server, &begin_of(&server, &unchecked));
    assert!(ended["error"].as_str().unwrap().contains("exit code 127"), "{ended}");

    // A create whose sandbox is not ready is refused, and leaves none.
    done(&server, &begin_of(&server, &spec("served", 3)));
    for (mode, says) in [
        ("bad", "the image's start command `/bin/sh /opt/serve` ended with exit code 3: no such mode"),
        (
            "slow",
            "the image's ready check `cat /tmp/up` did not succeed within 3 seconds; the last time it ended with exit code 1: cat:",
        ),
    ] {
        let body = json!({ "image": "served", "env_vars": { "MODE": mode }, "session_key": mode });
        let (status, code, message) = error(&server.ask("POST", SANDBOXES, &body.to_string()));
        assert_eq!((status, code.as_str()), (400, "exec_failed"), "{message}");
        assert!(message.contains(says), "{message}");
    }
    let body = json!({ "image": "served", "secrets": { "MODE": "bad", "WHO": "hidden-4711" } });
    assert!(!error(&server.ask("POST", SANDBOXES, &body.to_string())).2.contains("hidden-4711"));
    assert_eq!(server.ask("GET", SANDBOXES, "").json()["total"], 0);

    // One with files of its own runs, and says why it is not ready.
    let sandbox = server.create(r#"{"image":"served"}"#);
    is_up(&server, &sandbox);
    server.says(&sandbox, "touch /workspace/bad");
    post(&server, &format!("{sandbox}/stop"), "");
    let resumed = post(&server, &format!("{sandbox}/resume"), "");
    let reason = resumed["status_reason"].as_str().unwrap_or_default();
    assert_eq!(resumed["status"], "running");
    assert!(reason.starts_with("not ready: ") && reason.ends_with("exit code 4: no such file"), "{resumed}");
    assert_eq!(server.ask("GET", &sandbox, "").json()["status_reason"], resumed["status_reason"]);
    server.says(&sandbox, "/usr/bin/busybox rm /workspace/bad");
    post(&server, &format!("{sandbox}/stop"), "");
    post(&server, &format!("{sandbox}/resume"), "");
    is_up(&server, &sandbox);
}

#[test]
fn what_an_image_starts_does_not_keep_a_sandbox_awake() {
    let (mut server, _file) = looking(&["lifecycle.pause_seconds=600"]);
    put_box(&server);
    done(&server, &begin_of(&server, &spec("served", 60)));
    let body = r#"{"image":"served","idle_timeout_seconds":10}"#;
    let (sandbox, other) = (server.create(body), server.create(body));
    let begun = post(
        &server,
        &format!("{other}/exec"),
        r#"{"command":"/usr/bin/busybox sleep 7652","background":true}"#,
    );
    eventually("its pause", || status(&server, &sandbox) == "paused");
    assert_eq!(status(&server, &other), "running", "{begun}");
    // The next server knows it too.
    assert_eq!(server.says(&sandbox, "cat /tmp/up"), "served");
    server.kill();
    server.restart();
    eventually("its second pause", || status(&server, &sandbox) == "paused");
    assert_eq!(status(&server, &other), "running");
}

#[test]
fn a_start_that_a_killed_server_left_is_done_by_the_next() {
    let (mut server, _file) = looking(&[]);
    put_box(&server);
    let mut gated = spec("gated", 600);
    // In the build there is no such folder of a sandbox's own, and it is ready at once.
    gated["spec"]["ready_check"] = json!("cat /tmp/up && { [ -z \"$GATE\" ] || cat /workspace/go; }");
    done(&server, &begin_of(&server, &gated));
    let address = server.address;
    let asks = [(); 2].map(|()| {
        thread::spawn(move || {
            let key = format!("Bearer {KEY}");
            let body = br#"{"image":"gated","env_vars":{"GATE":"1"}}"#;
            let _ = request(address, "POST", SANDBOXES, &[("Authorization", &key)], body);
        })
    });
    let sandboxes = || server.ask("GET", SANDBOXES, "").json()["items"].as_array().unwrap().clone();
    let starting = || sandboxes().iter().filter(|one| one["status_reason"] == "starting").count();
    eventually("the sandboxes", || starting() == 2);
    let [runs, pauses] = [0, 1].map(|number| path_of(&sandboxes()[number]));
    for sandbox in [&runs, &pauses] {
        eventually("its command", || !running(&server, sandbox).is_empty());
    }
    post(&server, &format!("{pauses}/pause"), "");
    server.kill();
    asks.into_iter().for_each(|ask| ask.join().unwrap());
    server.restart();
    assert_eq!(status(&server, &pauses), "paused");
    for sandbox in [&runs, &pauses] {
        // Resumes the one that is paused, in which the start is still due.
        server.says(sandbox, "true");
        assert_eq!(server.ask("GET", sandbox, "").json()["status_reason"], "starting");
        server.says(sandbox, "echo > /workspace/go");
    }
    for sandbox in [&runs, &pauses] {
        eventually("it is ready", || server.ask("GET", sandbox, "").json()["status_reason"].is_null());
        is_up(&server, sandbox);
    }
}
