//! Files of the server's machine: uploads, and folders that the operator allows.

use super::{Server, Thread, key};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, os::unix::fs::symlink};

fn outcomes(answer: &Value) -> Vec<bool> {
    answer["files"].as_array().unwrap().iter().map(|file| file["success"] == true).collect()
}

#[test]
fn uploads_are_for_the_sessions_of_their_thread() {
    let server = Server::start_with(&["--set", "tool_sessions.uploads_mb=1"]);
    let thread = Thread::new(&server, "t1");
    let sent = thread.upload(&[("../../é data.csv", b"1,2\n"), (".bashrc", b"x")]);
    assert_eq!(sent.status, 200, "{}", String::from_utf8_lossy(&sent.body));
    assert_eq!(
        sent.json(),
        json!([{ "name": "é data.csv", "path": "é data.csv", "size": 4 },
            { "name": "_bashrc", "path": "_bashrc", "size": 1 }])
    );
    let id = thread.create(&json!({}));
    let done = thread
        .import(&id, json!([{ "source": "é data.csv", "destination": "in/" }, { "source": "_bashrc" }]));
    assert_eq!(outcomes(&done), [true, true], "{done}");
    assert_eq!(done["files"][0]["destination"], "/workspace/in/é data.csv");
    assert_eq!(thread.says(&id, "cat 'in/é data.csv'"), "1,2");
    // Somebody else's, another thread's, and what is not there look alike.
    let stranger = key(&server, "eve", "standard");
    for other in [Thread::new(&server, "t2"), Thread::of(&server, &stranger, "t1")] {
        let theirs = other.create(&json!({}));
        let sources = ["_bashrc", "../t1/_bashrc", "no such", "/etc/passwd", "../../../atoll.db", "."];
        let files: Vec<Value> =
            sources.iter().map(|source| json!({ "source": source, "destination": "x" })).collect();
        let done = other.import(&theirs, json!(files));
        assert_eq!(outcomes(&done), [false; 6], "{done}");
        for file in done["files"].as_array().unwrap() {
            assert!(file["error"].as_str().unwrap().starts_with("PermissionDenied: "), "{file}");
        }
    }
    // What is too large leaves nothing behind.
    let large = vec![b'x'; 2 << 20];
    assert_eq!(thread.upload(&[("large", &large)]).status, 413);
    let folder = server.data().join("server/uploads");
    let owner = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut names: Vec<_> = fs::read_dir(owner.join("t1")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["_bashrc", "é data.csv"]);
    let empty = thread.ask("POST", "/files/upload", "{}");
    assert_eq!(empty.status, 422, "{empty:?}");
    assert_eq!(thread.upload(&[]).status, 422);
    for wrong in ["..", ".x", "a%2Fb", "a%20b"] {
        let answer = server.ask("DELETE", &format!("/threads/{wrong}"), "");
        assert!(matches!(answer.status, 404 | 422), "{wrong}: {answer:?}");
    }
    assert_eq!(thread.ask("DELETE", "", "").status, 204);
    assert!(!owner.join("t1").exists());
    assert_eq!(thread.sessions(), []);
}

#[test]
fn host_files_come_only_from_allowed_folders() {
    let shared = tempfile::Builder::new().prefix("atoll-test-import-").tempdir().unwrap();
    let (allowed, secret) = (shared.path().join("allowed"), shared.path().join("secret"));
    fs::create_dir_all(allowed.join("tree/sub")).unwrap();
    fs::write(allowed.join("tree/sub/a.txt"), "a").unwrap();
    fs::write(allowed.join("file.txt"), "hello").unwrap();
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, allowed.join("link")).unwrap();
    symlink(shared.path(), allowed.join("tree/up")).unwrap();
    // The server is somebody else.
    for path in [shared.path(), &allowed] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let config = shared.path().join("atoll.toml");
    let text = format!("[tools]\nserver_url = \"https://atoll.example/\"\nimport_dirs = [{allowed:?}]\n");
    fs::write(&config, text).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let at = |name: &str| format!("{}/{name}", allowed.display());
    let done = thread.import(
        &id,
        json!([{ "source": at("file.txt") }, { "source": at("tree"), "destination": "tree" }, { "source": at("link") },
            { "source": at("../secret") }, { "source": secret.to_str().unwrap() }, { "source": "/etc/passwd" },
            { "source": at("tree/up/secret") }]),
    );
    assert_eq!(outcomes(&done), [true, true, false, false, false, false, false], "{done}");
    assert_eq!(
        thread.says(&id, "cat file.txt; find tree | sort"),
        "hellotree\ntree/sub\ntree/sub/a.txt\ntree/up"
    );
    assert!(!thread.says(&id, "cat tree/up/secret 2>/dev/null || echo none").contains("secret"));
    let exported = thread.export(&id, "file.txt");
    let url = format!(
        "https://atoll.example/threads/t1/files/download?session_id={id}&path=%2Fworkspace%2Ffile.txt"
    );
    assert_eq!(exported["files"][0]["download_url"], url.as_str(), "{exported}");
    let path = url.strip_prefix("https://atoll.example").unwrap();
    assert_eq!(server.ask("GET", path, "").body, b"hello");
}
