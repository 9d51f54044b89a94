//! What a model does in a conversation, from the first session to the last.

use super::{Server, Thread};
use crate::engine::fixture::eventually;
use serde_json::json;

#[test]
fn a_session_keeps_its_variables_and_files() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let made = thread.call("create_session", &json!({}));
    let id = made["session_id"].as_str().unwrap();
    assert!(id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{made}");
    let wanted = json!({ "success": true, "session_id": id, "runtime": "python", "status": "running", "dependencies": {} });
    assert_eq!(made, wanted);
    let first = thread.code(id, "x = 20\nprint('hé')");
    assert_eq!(
        first,
        json!({ "success": true, "stdout": "hé\n", "stderr": "", "result": null, "error": null,
            "display_outputs": [] })
    );
    let second = thread.code(id, "x + 22");
    assert_eq!(second["result"]["text/plain"], "42", "{second}");
    let ran = thread.terminal(id, "pwd; echo err >&2; echo one >a.txt; exit 3");
    assert_eq!(ran, json!({ "exit_code": 3, "stdout": "/workspace\n", "stderr": "err\n" }));
    assert_eq!(thread.code(id, "open('/workspace/a.txt').read()")["result"]["text/plain"], "'one\\n'");
    let failed = thread.code(id, "1/0");
    assert_eq!((&failed["success"], &failed["error"]["type"]), (&json!(false), &json!("ZeroDivisionError")));
    assert!(failed["error"]["traceback"].as_str().unwrap().contains("ZeroDivisionError"), "{failed}");
    assert_eq!(thread.sessions(), [(id.to_owned(), "running".to_owned())]);
    assert_eq!(thread.call("stop_session", &json!({ "session_id": id })), json!({ "success": true }));
    assert_eq!(thread.call("stop_session", &json!({ "session_id": id })), json!({ "success": false }));
    assert_eq!(thread.sessions(), []);
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    assert_eq!(listed["total"], 0, "nothing is left of it: {listed}");
}

#[test]
fn node_goes_by_two_names_and_await_works() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({ "runtime": "node" }));
    thread.code(&id, "const a = 40; let later = async () => a + 2");
    let ran = thread.code(&id, "await later()");
    assert_eq!(ran["result"]["text/plain"], "42", "{ran}");
    let promised = thread.code(&id, "later()");
    assert_eq!(promised["result"]["text/plain"], "42", "{promised}");
    let other = thread.create(&json!({ "language": "python" }));
    let ran = thread.code(&other, "async def f():\n    return 7\nf()");
    assert_eq!(ran["result"]["text/plain"], "7", "a coroutine is awaited: {ran}");
}

#[test]
fn r_keeps_its_variables_and_shows_plots() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({ "language": "r" }));
    thread.code(&id, "x <- 41");
    let ran = thread.code(&id, "x + 1");
    assert!(ran["result"]["text/plain"].as_str().unwrap().contains("42"), "{ran}");
    let plot = thread.code(&id, "plot(1:3)");
    let shown = plot["display_outputs"].as_array().unwrap();
    assert!(
        shown.iter().any(|d| d["type"] == "image/png" && d["data"].as_str().unwrap().len() > 100),
        "{plot}"
    );
}

#[test]
fn a_client_that_disconnects_leaves_no_code_running() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    thread.code(&id, "x = 1");
    let body = json!({ "session_id": id, "code": "x = 2\nimport time\ntime.sleep(300)", "timeout": 300 });
    let body = body.to_string();
    let head = format!(
        "POST /threads/t1/tools/execute_code HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        server.address,
        thread.key,
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut stream, (head + &body).as_bytes()).unwrap();
    let kernel = || {
        let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
        let sandbox = listed["items"][0]["id"].as_str().unwrap().to_owned();
        let kernels = server.ask("GET", &format!("/api/v1/sandboxes/{sandbox}/kernels"), "").json();
        let kernels = kernels.as_array().or(kernels["kernels"].as_array()).cloned().unwrap();
        kernels[0]["status"].as_str().unwrap().to_owned()
    };
    eventually("the code runs", || kernel() == "busy");
    drop(stream);
    let ran = thread.code(&id, "x");
    assert_eq!(ran["result"]["text/plain"], "2", "{ran}");
}

#[test]
fn a_package_that_cannot_be_installed_fails_no_session() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let wanted = json!({ "dependencies": { "no-such-package-of-anybody-0": "" } });
    let made = thread.call("create_session", &wanted);
    assert_eq!((&made["success"], &made["status"]), (&json!(true), &json!("running")), "{made}");
    assert_eq!(made["dependencies"], wanted["dependencies"]);
    assert!(!made["stderr"].as_str().unwrap().is_empty(), "{made}");
    let id = made["session_id"].as_str().unwrap();
    assert_eq!(thread.code(id, "1")["result"]["text/plain"], "1");
}

#[test]
fn what_goes_from_session_to_session_was_exported_first() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let (a, b) = (thread.create(&json!({})), thread.create(&json!({ "language": "node" })));
    thread
        .says(&a, "mkdir -p out/deep && echo 1,2 >out/data.csv && echo x >out/deep/é.txt && echo s >secret");
    let from = |path: &str| json!([{ "session_id": a, "path": path, "destination": "in.csv" }]);
    let denied = thread.import(&b, from("/workspace/out/data.csv"));
    assert_eq!(denied["success"], false);
    let why = denied["files"][0]["error"].as_str().unwrap();
    assert!(why.starts_with("PermissionDenied: ") && why.contains("not exported"), "{denied}");
    let exported = thread.export(&a, "./out//data.csv");
    let url = exported["files"][0]["download_url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap();
    assert_eq!(server.ask("GET", path, "").body, b"1,2\n", "it leads to the file: {url}");
    let file = json!({ "session_id": a, "path": "/workspace/out/data.csv", "success": true, "size": 4,
        "error": null, "download_url": url });
    assert_eq!(exported, json!({ "success": true, "files": [file], "error": null }));
    let done = thread.import(&b, from("out/data.csv"));
    let file = json!({ "source": format!("{a}:out/data.csv"), "destination": "/workspace/in.csv", "success": true,
        "size": 4, "error": null });
    assert_eq!(done, json!({ "success": true, "files": [file], "error": null }));
    assert_eq!(thread.says(&b, "cat in.csv"), "1,2");
    // A folder covers what is in it, and comes as a folder.
    assert_eq!(thread.export(&a, "out")["files"][0]["size"], json!(null));
    let done = thread.import(
        &b,
        json!([{ "session_id": a, "path": "/workspace/out/deep" },
        { "session_id": a, "path": "/workspace/out", "destination": "all/" },
        { "session_id": a, "path": "/workspace/secret" }]),
    );
    let each: Vec<bool> = done["files"].as_array().unwrap().iter().map(|f| f["success"] == true).collect();
    assert_eq!((each, &done["success"]), (vec![true, true, false], &json!(false)), "{done}");
    assert_eq!(done["error"], "1 of 3 files could not be imported");
    assert_eq!(
        thread.says(&b, "cat deep/é.txt; find all -type f | sort"),
        "x\nall/out/data.csv\nall/out/deep/é.txt"
    );
    // Another conversation, and what was stopped, exports nothing.
    let other = Thread::new(&server, "t2");
    let theirs = other.create(&json!({}));
    let stolen = other.import(&theirs, json!([{ "session_id": a, "path": "/workspace/out/data.csv" }]));
    assert_eq!(stolen["files"][0]["success"], false, "{stolen}");
    thread.call("stop_session", &json!({ "session_id": a }));
    let late = thread.import(&b, from("/workspace/out/data.csv"));
    assert_eq!(late["files"][0]["success"], false, "{late}");
}
