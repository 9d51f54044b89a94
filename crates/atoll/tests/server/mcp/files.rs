//! Files in and out: inline, between sessions, as resources; and what may not be reached.

use super::{
    super::fixture::{KEY, Server},
    Wire,
    stdio::Place,
    web::Web,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

fn import(wire: &mut impl Wire, session: &str, files: Value) -> Value {
    wire.value("import_files", json!({ "session_id": session, "files": files }))
}

fn export(wire: &mut impl Wire, session: &str, sources: &[&str]) -> Value {
    let files: Vec<Value> = sources.iter().map(|source| json!({ "source": source })).collect();
    wire.value("export_files", json!({ "session_id": session, "files": files }))
}

fn says(wire: &mut impl Wire, session: &str, command: &str) -> String {
    let ran = wire.value("execute_terminal", json!({ "session_id": session, "command": command }));
    ran["stdout"].as_str().unwrap().trim_end().to_owned()
}

fn list(wire: &mut impl Wire) -> Vec<Value> {
    wire.ask("resources/list", json!({}))["result"]["resources"].as_array().unwrap().clone()
}

fn read(wire: &mut impl Wire, uri: &Value) -> Value {
    wire.ask("resources/read", json!({ "uri": uri }))
}

fn files_in_and_out(wire: &mut impl Wire) {
    let (one, two) = (wire.session("python"), wire.session("python"));
    let bytes = STANDARD.encode([0_u8, 159, 255, 10]);
    let done = import(
        wire,
        &one,
        json!([
            { "file_name": "ünïcode 世界.txt", "file_content": "héllo\n" },
            { "file_name": "deep/er/bytes.bin", "file_content": bytes, "encoding": "base64" },
            { "file_name": "../../etc/escape", "file_content": "x" },
            { "file_name": "bad.bin", "file_content": "not base64!", "encoding": "base64" },
            { "source": "/etc/passwd" },
        ]),
    );
    assert_eq!(done["success"], false, "{done}");
    let each: Vec<bool> = done["files"].as_array().unwrap().iter().map(|f| f["success"] == true).collect();
    assert_eq!(each, [true, true, false, false, false], "each for itself: {done}");
    assert!(done["files"][2]["error"].is_string() && done["error"].is_string(), "{done}");
    assert_eq!(
        says(wire, &one, "cat 'ünïcode 世界.txt'; od -An -tu1 deep/er/bytes.bin"),
        "héllo\n   0 159 255  10"
    );

    let out = export(wire, &one, &["ünïcode 世界.txt", "deep", "nosuch", "/etc/passwd", "../../etc/shadow"]);
    let each: Vec<bool> = out["files"].as_array().unwrap().iter().map(|f| f["success"] == true).collect();
    assert_eq!(each, [true, true, false, false, false], "{out}");
    let resources = list(wire);
    assert_eq!(resources.len(), 2, "{resources:?}");
    let text = resources.iter().find(|r| r["name"] == "ünïcode 世界.txt").unwrap();
    assert_eq!((&text["mimeType"], &text["size"]), (&json!("text/plain"), &json!(7)));
    assert_eq!(read(wire, &text["uri"])["result"]["contents"][0]["text"], "héllo\n");
    let folder = resources.iter().find(|r| r["name"] == "deep.tar").unwrap();
    let tar = read(wire, &folder["uri"])["result"]["contents"][0].clone();
    assert_eq!(tar["mimeType"], "application/x-tar");
    let tar = STANDARD.decode(tar["blob"].as_str().unwrap()).unwrap();
    assert!(tar.len() % 512 == 0 && tar.windows(9).any(|w| w == b"bytes.bin"));
    let below = format!("atoll://session/{one}/workspace/deep/er/bytes.bin");
    assert_eq!(read(wire, &below.into())["result"]["contents"][0]["blob"], bytes);
    for bad in [
        "/workspace/other.txt",
        "/workspace/deep/../../etc/passwd",
        "/etc/passwd",
        "/workspace/deep%2f..%2f..%2fetc/passwd",
    ] {
        let refused = read(wire, &format!("atoll://session/{one}{bad}").into());
        assert!(refused["error"]["code"].is_number(), "{bad}: {refused}");
    }

    let across = import(
        wire,
        &two,
        json!([
            { "session_id": one, "path": "/workspace/deep/er/bytes.bin", "destination": "copied.bin" },
            { "session_id": one, "path": "/workspace/never-exported", "destination": "x" },
            { "session_id": "00000000", "path": "/workspace/deep", "destination": "y" },
        ]),
    );
    let each: Vec<bool> = across["files"].as_array().unwrap().iter().map(|f| f["success"] == true).collect();
    assert_eq!(each, [true, false, false], "{across}");
    assert_eq!(says(wire, &two, "od -An -tu1 copied.bin"), "   0 159 255  10");
    wire.value("stop_session", json!({ "session_id": one }));
    assert!(list(wire).is_empty(), "exports go with their session");
    wire.value("stop_session", json!({ "session_id": two }));
}

#[test]
fn files_over_http() {
    let server = Server::start();
    files_in_and_out(&mut Web::open(&server));
}

#[test]
fn files_over_stdio() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    files_in_and_out(&mut stdio);
    let told =
        stdio.notes().into_iter().filter(|note| note["method"] == "notifications/resources/list_changed");
    assert_eq!(told.count(), 3, "one export and two stops");
}

#[test]
fn a_listener_hears_that_exports_changed() {
    let server = Server::start();
    let (mut one, other) =
        (Web::open_as(&server, KEY, Some("shared")), Web::open_as(&server, KEY, Some("shared")));
    let session = one.session("python");
    says(&mut one, &session, "echo hi > a.txt");
    let (mut own, mut shared) = (one.listen(&[]), other.listen(&[]));
    assert_eq!(export(&mut one, &session, &["a.txt"])["success"], true);
    for events in [&mut own, &mut shared] {
        let note = loop {
            let note = events.next().unwrap();
            if note["method"] != "notifications/message" {
                break note;
            }
        };
        assert_eq!(note["method"], "notifications/resources/list_changed");
    }
}

#[test]
fn a_thread_is_what_its_header_says_and_otherwise_the_session() {
    let server = Server::start();
    let mut first = Web::open_as(&server, KEY, Some("mine"));
    let session = first.session("python");
    let mut second = Web::open_as(&server, KEY, Some("mine"));
    assert_eq!(says(&mut second, &session, "echo same"), "same");
    let mut stranger = Web::open(&server);
    let refused = stranger.call("execute_terminal", json!({ "session_id": session, "command": "true" }));
    assert_eq!(refused["isError"], true, "{refused}");
    // A session of a thread that nobody could reach again goes with its MCP session.
    stranger.session("python");
    let sandboxes = || server.ask("GET", "/api/v1/sandboxes", "").json()["items"].as_array().unwrap().len();
    assert_eq!(sandboxes(), 2);
    let headers = stranger.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let ended =
        super::super::http::request(server.address, "DELETE", super::web::PATH, &headers, b"").unwrap();
    assert!((200..300).contains(&ended.status), "{ended:?}");
    assert_eq!(sandboxes(), 1, "the named thread stays");
}
