//! Tools beyond the six, which are there only where they are wanted.

use super::{
    super::{
        coverage::{MCP, MCP_READS},
        fixture::Server,
    },
    Wire,
    web::Web,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::fs;

fn with_extra_tools() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("atoll.toml");
    fs::write(&file, "[mcp]\nextra_tools = true\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), None).unwrap();
    Server::start_with(&["--config", file.to_str().unwrap()])
}

#[test]
fn commands_in_the_background_and_addresses_where_they_are_wanted() {
    let server = with_extra_tools();
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
        "fork_session",
        "create_volume",
        "list_volumes",
        "delete_volume",
        "resize_volume",
        "create_session_with_volumes",
        "diff_snapshot",
        "delete_snapshot",
        "label_snapshot",
        "file_history",
    ];
    assert_eq!(names[6..], extra);
    let mut listed: Vec<&str> = MCP.iter().map(|(_, tool)| *tool).chain(MCP_READS).collect();
    let mut all = names.clone();
    for names in [&mut listed, &mut all] {
        names.sort_unstable();
        names.dedup();
    }
    assert_eq!(listed, all, "each tool is an operation of the table of coverage, or only looks");
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
    let server = with_extra_tools();
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
    assert_eq!((&all["snapshots"].as_array().unwrap().len(), &all["next_offset"]), (&2, &json!(null)));
    let rest = web.value("list_snapshots", json!({ "session_id": session, "offset": 1 }));
    assert_eq!(rest["snapshots"], json!([all["snapshots"][1]]), "{rest}");
    let missing = web.call("roll_back", json!({ "session_id": session, "snapshot_id": "nosuch" }));
    assert_eq!(missing["isError"], true, "{missing}");
    // Its label, and what changed a file.
    let label =
        json!({ "session_id": session, "snapshot_id": made["snapshot"]["snapshot_id"], "label": "best" });
    assert_eq!(web.value("label_snapshot", label)["snapshot"]["label"], "best");
    let mut story = Value::Null;
    eventually("what the code changed", || {
        story = web.value("file_history", json!({ "session_id": session, "path": "file" }));
        story["entries"].as_array().unwrap().iter().any(|one| one["made_by"] == "kernel.execute")
    });
    // What differs, and a rollback that keeps nothing of before.
    let (good, before) = (made["snapshot"]["snapshot_id"].clone(), rolled["before"]["snapshot_id"].clone());
    let between = json!({ "session_id": session, "snapshot_id": good, "to_snapshot_id": before });
    let differ = web.value("diff_snapshot", between);
    assert_eq!(
        (&differ["files"][0]["path"], &differ["files"][0]["action"]),
        (&json!("/workspace/file"), &json!("modified")),
        "{differ}"
    );
    let same = web.value("diff_snapshot", json!({ "session_id": session, "snapshot_id": good }));
    assert_eq!(same["files"], json!([]), "{same}");
    let back = json!({ "session_id": session, "snapshot_id": before, "keep_before": false });
    assert_eq!(web.value("roll_back", back)["before"], json!(null));
    let read = web.value("execute_code", code("print(open('file').read())"));
    assert!(read.to_string().contains("two"), "{read}");
    let gone = json!({ "session_id": session, "snapshot_id": good });
    assert_eq!(web.value("delete_snapshot", gone.clone())["success"], true);
    assert_eq!(web.call("delete_snapshot", gone)["isError"], true);
    let all = web.value("list_snapshots", json!({ "session_id": session }));
    assert_eq!(all["total"], 1, "{all}");
}

#[test]
fn a_session_is_made_of_another_one_and_goes_its_own_way() {
    let server = with_extra_tools();
    let mut web = Web::open(&server);
    let first = web.session("python");
    let run = |web: &mut Web, session: &str, code: &str| {
        web.value("execute_code", json!({ "session_id": session, "code": code })).to_string()
    };
    run(&mut web, &first, "x = 1; open('file', 'w').write('one')");
    let made = web.value("create_snapshot", json!({ "session_id": first }));
    run(&mut web, &first, "open('file', 'w').write('two')");
    let fork = |web: &mut Web, arguments: serde_json::Value| {
        let made = web.value("fork_session", arguments);
        assert_eq!((&made["success"], &made["runtime"]), (&json!(true), &json!("python")), "{made}");
        made["session_id"].as_str().unwrap().to_owned()
    };
    let now = fork(&mut web, json!({ "session_id": first }));
    let then = json!({ "session_id": first, "snapshot_id": made["snapshot"]["snapshot_id"] });
    let then = fork(&mut web, then);
    assert!(run(&mut web, &now, "print(open('file').read())").contains("two"));
    assert!(run(&mut web, &then, "print(open('file').read())").contains("one"));
    assert!(run(&mut web, &now, "print('x' in globals())").contains("False"), "variables are not copied");
    run(&mut web, &now, "open('file', 'w').write('three')");
    assert!(run(&mut web, &first, "print(open('file').read())").contains("two"));
    for (session, snapshot) in
        [("00000000", None), (first.as_str(), Some("nosuch")), (first.as_str(), Some(&"0".repeat(32)[..]))]
    {
        let refused = web.call("fork_session", json!({ "session_id": session, "snapshot_id": snapshot }));
        assert_eq!(refused["isError"], true, "{refused}");
    }
    // It ends as any other.
    let stopped = web.value("stop_session", json!({ "session_id": now }));
    assert_eq!(stopped["success"], true, "{stopped}");
    // Another conversation sees none of them.
    let mut other = Web::open(&server);
    let refused = other.call("fork_session", json!({ "session_id": first }));
    assert_eq!(refused["isError"], true, "{refused}");
}

#[test]
fn a_session_has_a_tenants_storage_path_rules_and_snapshots_of_its_own() {
    let server = with_extra_tools();
    let mut web = Web::open(&server);
    let made = web.value(
        "create_session_with_volumes",
        json!({ "tenant_id": "t", "read_only": ["/workspace/fixed"], "auto_snapshot": "before_exec" }),
    );
    let session = made["session_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let line = "touch fixed/x; echo kept > /mnt/user-data/outputs/notes && cat /mnt/user-data/outputs/notes";
    let ran = web.value("execute_terminal", json!({ "session_id": session, "command": line })).to_string();
    assert!(ran.contains("Read-only") && ran.contains("kept"), "{ran}");
    let all = web.value("list_snapshots", json!({ "session_id": session }));
    assert_eq!(all["snapshots"][0]["kind"], "automatic", "{all}");
    let refused = web.call("create_session_with_volumes", json!({ "language": "python" }));
    assert_eq!(refused["isError"], true, "{refused}");
}

#[test]
fn volumes_are_made_attached_and_deleted() {
    let server = with_extra_tools();
    let mut web = Web::open(&server);
    let made = web.value("create_volume", json!({ "name": "data", "disk_mb": 64 }));
    assert_eq!((&made["success"], &made["volume"]["disk_mb"]), (&json!(true), &json!(64)), "{made}");
    let again = web.call("create_volume", json!({ "name": "data" }));
    assert_eq!(again["isError"], true, "{again}");
    let all = web.value("list_volumes", json!({}));
    assert_eq!((&all["total"], &all["volumes"][0]["name"]), (&json!(1), &json!("data")), "{all}");
    let with = |read_only: bool| json!({ "language": "python", "volumes": [{ "name": "data", "path": "/mnt/data", "read_only": read_only }] });
    let [writer, reader] = [false, true].map(|read_only| {
        let made = web.value("create_session_with_volumes", with(read_only));
        made["session_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    });
    web.value(
        "execute_code",
        json!({ "session_id": writer, "code": "open('/mnt/data/f', 'w').write('shared')" }),
    );
    let read = web
        .value("execute_code", json!({ "session_id": reader, "code": "print(open('/mnt/data/f').read())" }));
    assert!(read.to_string().contains("shared"), "{read}");
    let refused =
        web.value("execute_code", json!({ "session_id": reader, "code": "open('/mnt/data/f', 'w')" }));
    assert!(refused.to_string().contains("Read-only"), "{refused}");
    let kept = web.call("delete_volume", json!({ "name": "data" }));
    assert_eq!(kept["isError"], true, "{kept}");
    for session in [writer, reader] {
        web.value("stop_session", json!({ "session_id": session }));
    }
    assert_eq!(web.value("delete_volume", json!({ "name": "data" }))["success"], true);
    assert_eq!(web.value("list_volumes", json!({}))["total"], 0);
    for wrong in [json!({ "volumes": [] }), json!({ "volumes": [{ "name": "nosuch", "path": "/mnt/x" }] })] {
        let refused = web.call("create_session_with_volumes", wrong);
        assert_eq!(refused["isError"], true, "{refused}");
    }
}
