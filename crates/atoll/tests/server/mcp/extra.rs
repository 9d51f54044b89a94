//! Tools beyond the six, which are there only where they are wanted.

use super::{super::fixture::Server, Wire, web::Web};
use crate::engine::fixture::eventually;
use serde_json::json;
use std::fs;

#[test]
fn commands_in_the_background_and_addresses_where_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("atoll.toml");
    fs::write(&file, "[mcp]\nextra_tools = true\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), None).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    let mut web = Web::open(&server);
    let tools = web.ask("tools/list", json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let extra = [
        "create_snapshot",
        "list_snapshots",
        "roll_back",
        "start_command",
        "command_output",
        "kill_command",
        "preview_url",
    ];
    assert_eq!(names[6..], extra);
    let session = web.session("python");
    let line =
        "mkdir -p site && echo hello > site/index.html && echo begun && python3 -m http.server 8080 -d site";
    let begun = web.value("start_command", json!({ "session_id": session, "command": line }));
    assert_eq!((&begun["success"], &begun["running"]), (&json!(true), &json!(true)), "{begun}");
    let id = begun["command_id"].clone();
    let mut seen = String::new();
    eventually("output", || {
        let out =
            web.value("command_output", json!({ "session_id": session, "command_id": id, "offset": 0 }));
        seen = out["stdout"].as_str().unwrap().to_owned();
        seen.contains("begun") && out["running"] == true
    });
    let made = web.value("preview_url", json!({ "session_id": session, "port": 8080 }));
    let url = made["url"].as_str().unwrap();
    let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap_or_else(|| panic!("{made}"));
    eventually("the page", || {
        let page = super::super::http::request(server.address, "GET", path, &[], b"").unwrap();
        page.status == 200 && page.body == b"hello\n"
    });
    let killed = web.value("kill_command", json!({ "session_id": session, "command_id": id }));
    assert_eq!(killed["success"], true, "{killed}");
    eventually("its end", || {
        web.value("command_output", json!({ "session_id": session, "command_id": id }))["running"] == false
    });
    let missing = web.call("command_output", json!({ "session_id": session, "command_id": "nosuch" }));
    assert_eq!(missing["isError"], true, "{missing}");
    let wrong = web.call("preview_url", json!({ "session_id": session, "port": 0 }));
    assert_eq!(wrong["structuredContent"]["error"], "INVALID_INPUT", "{wrong}");
}

#[test]
fn a_session_returns_to_the_files_that_it_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("atoll.toml");
    fs::write(&file, "[mcp]\nextra_tools = true\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), None).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    let mut web = Web::open(&server);
    let session = web.session("python");
    let code = |text: &str| json!({ "session_id": session, "code": text });
    web.value("execute_code", code("x = 1; open('file', 'w').write('one')"));
    let made = web.value("create_snapshot", json!({ "session_id": session, "label": "good" }));
    assert_eq!((&made["success"], &made["snapshot"]["label"]), (&json!(true), &json!("good")), "{made}");
    web.value("execute_code", code("open('file', 'w').write('two')"));
    let back = json!({ "session_id": session, "snapshot_id": made["snapshot"]["snapshot_id"] });
    let rolled = web.value("roll_back", back);
    assert_eq!(rolled["before"]["kind"], "before_rollback", "{rolled}");
    let read = web.value("execute_code", code("print(open('file').read())"));
    assert!(read.to_string().contains("one"), "{read}");
    let all = web.value("list_snapshots", json!({ "session_id": session }));
    assert_eq!(all["total"], 2, "{all}");
    let missing = web.call("roll_back", json!({ "session_id": session, "snapshot_id": "nosuch" }));
    assert_eq!(missing["isError"], true, "{missing}");
}
