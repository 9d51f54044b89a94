//! Create a sandbox, work in it, stop it, come back to it.

use super::fixture::Server;
use crate::engine::fixture::eventually;
use std::{fs, process::Command, thread};

#[test]
fn create_work_stop_and_come_back() {
    let server = Server::start();
    let made = server.ask("POST", "/api/v1/sandboxes", r#"{"memory_mb": 256, "labels": {"team": "a"}}"#);
    assert_eq!(made.status, 201);
    let made = made.json();
    assert_eq!(
        (&made["status"], &made["memory_mb"], &made["workspace_path"]),
        (&"running".into(), &256.into(), &"/workspace".into())
    );
    let path = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let ran = server.exec(&path, "echo out; echo err >&2; exit 3");
    assert_eq!(
        (&ran["exit_code"], &ran["stdout"], &ran["stderr"]),
        (&3.into(), &"out\n".into(), &"err\n".into())
    );
    assert_eq!(server.ask("PUT", &format!("{path}/files/dir/data%20file.csv"), "1,2\n").status, 204);
    assert_eq!(server.says(&path, "cat '/workspace/dir/data file.csv'; pwd; id -u"), "1,2\n/workspace\n1000");

    let stopped = server.ask("POST", &format!("{path}/stop"), "").json();
    assert_eq!((&stopped["status"], &stopped["container_id"]), (&"stopped".into(), &serde_json::Value::Null));
    let refused = server.ask("POST", &format!("{path}/exec"), r#"{"command":"true"}"#);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("not_running")));
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200, "stopping twice is fine");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").json()["status"], "running");
    let back = server.ask("GET", &format!("{path}/files/dir/data%20file.csv"), "");
    assert_eq!((back.status, &back.body[..]), (200, &b"1,2\n"[..]));
    assert_eq!(back.header("content-disposition"), Some("attachment"));

    let activity = server.ask("GET", &format!("{path}/activity"), "").json();
    let kinds: Vec<&str> = activity.as_array().unwrap().iter().map(|a| a["kind"].as_str().unwrap()).collect();
    for kind in ["start", "exec", "upload", "stop", "resume"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    assert_eq!(server.ask("GET", &path, "").json()["exec_count"], 2);
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(server.ask("GET", &path, "").json()["status"], "destroyed");
    assert_eq!(server.ask("DELETE", &path, "").status, 404);
}

#[test]
fn one_session_key_is_one_sandbox() {
    let server = Server::start();
    let ids: Vec<String> = thread::scope(|scope| {
        let asks: Vec<_> =
            (0..12).map(|_| scope.spawn(|| server.create(r#"{"session_key":"agent-1"}"#))).collect();
        asks.into_iter().map(|a| a.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    server.says(&ids[0], "echo kept > /workspace/x");
    server.ask("POST", &format!("{}/stop", ids[0]), "");
    let again = server.ask("POST", "/api/v1/sandboxes", r#"{"session_key":"agent-1"}"#);
    assert_eq!((again.status, again.json()["status"].as_str()), (200, Some("running")));
    assert_eq!(server.says(&ids[0], "cat /workspace/x"), "kept");
    assert_ne!(server.create(r#"{"session_key":"agent-2"}"#), ids[0]);
    assert_ne!(
        server.create(r#"{"session_key":"agent-1","image":"mcpgateway/sandbox-python:3.12"}"#),
        ids[0]
    );
    // A destroyed one frees its key.
    server.ask("DELETE", &ids[0], "");
    assert_ne!(server.create(r#"{"session_key":"agent-1"}"#), ids[0]);
}

#[test]
fn lists_are_filtered_sorted_paged_and_counted() {
    let server = Server::start();
    let all: Vec<String> = (0..5)
        .map(|n| server.create(&format!(r#"{{"labels":{{"n":"{n}"}},"session_key":"key-{n}"}}"#)))
        .collect();
    server.ask("POST", &format!("{}/stop", all[4]), "");
    let list = |query: &str| server.ask("GET", &format!("/api/v1/sandboxes?{query}"), "").json();
    let page = list("page=2&page_size=2&sort_order=asc");
    assert_eq!((&page["total"], page["items"].as_array().unwrap().len()), (&5.into(), 2));
    assert_eq!(page["status_counts"], serde_json::json!({ "running": 4, "stopped": 1 }));
    assert!(all[2].ends_with(page["items"][0]["id"].as_str().unwrap()));
    assert_eq!(list("status=stopped")["total"], 1);
    assert_eq!(list("status=stopped,running")["total"], 5);
    assert_eq!(list("search=KEY-3")["items"][0]["labels"]["n"], "3");
    assert_eq!(list("labels=n%3D2")["total"], 1);
    assert_eq!(list("image=nosuch")["total"], 0);
    for query in [
        "page=0",
        "page_size=0",
        "page_size=201",
        "status=odd",
        "sort_by=x",
        "sort_order=x",
        "labels=x",
        "nosuch=1",
        "page=x",
    ] {
        let answer = server.ask("GET", &format!("/api/v1/sandboxes?{query}"), "");
        assert_eq!(answer.status, 422, "{query}: {answer:?}");
        let field = query.split('=').next().unwrap();
        assert_eq!(answer.json()["detail"][0]["loc"], serde_json::json!(["query", field]), "{query}");
    }
}

#[test]
fn a_repeated_request_is_carried_out_once() {
    let server = Server::start();
    let path = server.create("{}");
    let once = |key: &str, body: &str| {
        let headers = [("Authorization", "Bearer bootstrap-key-of-a-test"), ("Idempotency-Key", key)];
        super::http::request(server.address, "POST", &format!("{path}/exec"), &headers, body.as_bytes())
            .unwrap()
    };
    let body = r#"{"command":"echo once >> /workspace/log; cat /workspace/log"}"#;
    let first = once("k1", body);
    let second = once("k1", body);
    assert_eq!((first.status, second.status, &first.body), (200, 200, &second.body));
    assert_eq!(second.header("idempotent-replay"), Some("true"));
    assert_eq!(server.says(&path, "wc -l < /workspace/log"), "1");
    assert_eq!(once("k1", r#"{"command":"true"}"#).status, 422, "the key was used for another request");
    assert_eq!(once("k2", body).status, 200);
    assert_eq!(server.says(&path, "wc -l < /workspace/log"), "2");
    // What failed may be tried again.
    assert_eq!(once("k3", r#"{"command":""}"#).status, 422);
    assert_eq!(once("k3", body).status, 200);
}

#[test]
fn patches_obey_the_state() {
    let server = Server::start();
    let path = server.create(r#"{"env_vars":{"A":"1"}}"#);
    assert_eq!(server.says(&path, "echo $A"), "1");
    let patch = |body: &str| server.ask("PATCH", &path, body);
    assert_eq!(patch(r#"{"labels":{"x":"y"},"idle_timeout_seconds":60}"#).json()["labels"]["x"], "y");
    for body in [r#"{"memory_mb":128}"#, r#"{"cpu_cores":0.5}"#, r#"{"env_vars":{"A":"2"}}"#] {
        assert_eq!(patch(body).status, 409, "{body}");
    }
    assert_eq!(patch(r#"{"disk_mb":900}"#).json()["disk_mb"], 900);
    server.ask("POST", &format!("{path}/stop"), "");
    let patched = patch(r#"{"memory_mb":128,"cpu_cores":0.5,"env_vars":{"A":"2"}}"#).json();
    assert_eq!((&patched["memory_mb"], &patched["cpu_cores"]), (&128.into(), &0.5.into()));
    assert!(patched.get("env_vars").is_none() && !patched.to_string().contains("\"A\""));
    server.ask("POST", &format!("{path}/resume"), "");
    assert_eq!(server.says(&path, "echo $A; nproc"), "2\n1");
}

#[test]
fn commands_take_input_directory_environment_and_time() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = |body: &str| server.ask("POST", &format!("{path}/exec"), body).json();
    let body = r#"{"arguments":["sh","-c","cat; pwd; echo $X"],"stdin":"in\n","working_directory":"/tmp","env_vars":{"X":"y"}}"#;
    assert_eq!(exec(body)["stdout"], "in\n/tmp\ny\n");
    let late = exec(r#"{"command":"sleep 100","timeout_seconds":1}"#);
    assert_eq!((&late["exit_code"], &late["timed_out"]), (&124.into(), &true.into()));
    assert_eq!(exec(r#"{"arguments":["no-such-program"]}"#)["exit_code"], 127);
    let odd =
        server.ask("POST", &format!("{path}/exec"), r#"{"command":"true","working_directory":"/nowhere"}"#);
    assert_eq!(
        (odd.status, odd.json()["error"]["details"]["field"].as_str()),
        (400, Some("working_directory"))
    );
    // A caller that goes away takes its command along.
    let hurried = std::net::TcpStream::connect(server.address).unwrap();
    let body = r#"{"command":"sleep 4567"}"#;
    let text = format!(
        "POST {path}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bootstrap-key-of-a-test\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut &hurried, text.as_bytes()).unwrap();
    let seen = |wanted: &str| {
        eventually(wanted, || server.says(&path, "pgrep -fc '[s]leep 4567' || true") == wanted);
    };
    seen("1");
    drop(hurried);
    seen("0");
}

#[test]
fn files_of_any_size_and_every_operation() {
    let server = Server::start();
    let path = server.create("{}");
    let big = "x".repeat(20 << 20);
    assert_eq!(server.ask("PUT", &format!("{path}/files/big"), &big).status, 204);
    assert_eq!(server.ask("GET", &format!("{path}/files/big"), "").body.len(), 20 << 20);
    let part = super::http::request(
        server.address,
        "GET",
        &format!("{path}/files/big"),
        &[("Authorization", "Bearer bootstrap-key-of-a-test"), ("Range", "bytes=10-19")],
        b"",
    );
    let part = part.unwrap();
    assert_eq!(
        (part.status, part.body.len(), part.header("content-range")),
        (206, 10, Some("bytes 10-19/20971520"))
    );
    let fs = |what: &str, body: &str| server.ask("POST", &format!("{path}/fs/{what}"), body);
    assert_eq!(fs("mkdir", r#"{"path":"a/b","parents":true}"#).status, 201);
    assert_eq!(fs("move", r#"{"from":"big","to":"a/b/stat"}"#).json()["size"], 20 << 20);
    assert_eq!(server.ask("GET", &format!("{path}/fs/stat?path=a/b/stat"), "").json()["type"], "file");
    assert_eq!(
        server.ask("GET", &format!("{path}/files/a/b/stat"), "").body.len(),
        20 << 20,
        "no name is shadowed"
    );
    let list = server.ask("GET", &format!("{path}/files?path=/workspace/a"), "").json();
    assert_eq!((&list[0]["name"], &list[0]["is_directory"]), (&"b".into(), &true.into()));
    assert_eq!(fs("remove", r#"{"path":"a"}"#).status, 409);
    assert_eq!(fs("remove", r#"{"path":"a","recursive":true}"#).status, 204);
    assert_eq!(server.ask("GET", &format!("{path}/files"), "").json(), serde_json::json!([]));
    for bad in ["..%2F..%2Fetc%2Fpasswd", "../../etc/passwd", "a/../../x"] {
        let answer = server.ask("GET", &format!("{path}/files/{bad}"), "");
        assert!(matches!(answer.status, 400 | 404), "{bad}: {answer:?}");
    }
    assert_eq!(server.ask("GET", &format!("{path}/files/nothing"), "").status, 404);
}

/// The files that an exec changed, as `action path size`.
fn changed(answer: &serde_json::Value) -> Vec<String> {
    assert_eq!(answer["files_changed_truncated"], false, "{answer}");
    let line = |f: &serde_json::Value| {
        format!("{} {} {}", f["action"].as_str().unwrap(), f["path"].as_str().unwrap(), f["size_bytes"])
    };
    answer["files_changed"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn files_changed_are_the_commands_and_told_once() {
    let mut server = Server::start();
    let path = server.create("{}");
    assert_eq!(changed(&server.exec(&path, "true")), Vec::<String>::new());
    let made = server
        .exec(&path, "mkdir -p out; echo hello > out/a.txt; echo x > b; rm b; head -c 5000 /dev/zero > c");
    assert_eq!(changed(&made), ["created c 5000", "created out/a.txt 6"]);
    assert_eq!(changed(&server.exec(&path, "true")), Vec::<String>::new());
    let program = "import mmap,os\nf=open('c','r+b')\nm=mmap.mmap(f.fileno(),0)\nm[0]=1\nm.flush()";
    let line = format!("python3 -c \"{program}\"; mv out new; chmod 600 new/a.txt");
    assert_eq!(
        changed(&server.exec(&path, &line)),
        ["modified c 5000", "created new/a.txt 6", "deleted out/a.txt 0"]
    );
    // What is uploaded is nobody's command's; what a background process writes is the next one's.
    let later = |server: &Server, name: &str| {
        let wait = format!("until [ -e /tmp/{name} ]; do sleep 0.05; done");
        server.exec(&path, &format!("(setsid sh -c '{wait}; echo late > {name}' >/dev/null 2>&1 &)"));
    };
    // Not by a command: the change would be that command's.
    let pid = server.pid_1(&path);
    let written = |name: &str| {
        let touch = ["--target", &pid, "--user", "--mount", "touch", &format!("/tmp/{name}")];
        assert!(Command::new("nsenter").args(touch).status().unwrap().success());
        let file = format!("/proc/{pid}/root/workspace/{name}");
        eventually("the file", || fs::read(&file).is_ok_and(|text| text == b"late\n"));
    };
    later(&server, "late");
    written("late");
    server.ask("PUT", &format!("{path}/files/up.bin"), "uploaded");
    assert_eq!(changed(&server.exec(&path, "true")), ["created late 5"]);
    assert_eq!(changed(&server.exec(&path, "echo more >> up.bin")), ["modified up.bin 13"]);
    // And a server that was killed between loses nothing of it.
    later(&server, "meanwhile");
    server.kill();
    written("meanwhile");
    server.restart();
    assert_eq!(changed(&server.exec(&path, "true")), ["created meanwhile 5"]);
}
