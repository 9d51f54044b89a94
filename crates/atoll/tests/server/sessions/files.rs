//! Files in and out of sessions.

use super::{Server, Thread, key};
use serde_json::json;

#[test]
fn what_a_model_writes_arrives_byte_for_byte() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let done = thread.import(
        &id,
        json!([
            { "file_name": "naïve 文.txt", "file_content": "línea\n" },
            { "file_name": "deep/er/bytes.bin", "file_content": "AP+A", "encoding": "base64" },
            { "file_name": "empty", "file_content": "" },
            { "file_name": "bad", "file_content": "not base64!", "encoding": "base64" },
            { "file_name": "../out", "file_content": "x" },
            { "file_name": "/etc/passwd", "file_content": "x" },
        ]),
    );
    let files = done["files"].as_array().unwrap();
    let each: Vec<_> = files.iter().map(|f| (f["success"] == true, f["size"].as_u64())).collect();
    let good = |n| (true, Some(n));
    assert_eq!(each, [good(7), good(3), good(0), (false, None), (false, None), (false, None)], "{done}");
    assert_eq!(done["error"], "3 of 6 files could not be imported");
    assert_eq!(files[0]["destination"], "/workspace/naïve 文.txt");
    for (file, why) in [(3, "InvalidInput: "), (4, "PathOutsideWorkspace: "), (5, "PathOutsideWorkspace: ")] {
        assert!(files[file]["error"].as_str().unwrap().starts_with(why), "{}", files[file]);
    }
    assert_eq!(
        thread.says(&id, "cat 'naïve 文.txt'; od -An -tx1 deep/er/bytes.bin; stat -c %s empty"),
        "línea\n 00 ff 80\n0"
    );
}

#[test]
fn an_import_over_a_file_that_is_read_only_says_what_a_model_can_do() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    thread.says(&id, "echo mine >kept; chmod 444 kept");
    let done = thread.import(&id, json!([{ "file_name": "kept", "file_content": "theirs" }]));
    let error = done["files"][0]["error"].as_str().unwrap();
    assert!(error.contains("chmod u+w") && !error.contains("overwrite"), "{done}");
    assert_eq!(thread.says(&id, "cat kept"), "mine");
}

#[test]
fn only_what_is_exported_is_downloaded() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    thread.says(
        &id,
        "mkdir -p d/e && printf 'a\\0b' >d/f && echo deep >d/e/g && echo no >d-not && ln -s /etc/passwd link",
    );
    assert_eq!(thread.download(&id, "/workspace/d/f").status, 403);
    let exported = thread.call(
        "export_files",
        &json!({ "session_id": id, "files": [{ "source": "d/" }, { "source": "no such" }, { "source": "../etc" },
            { "source": "/etc/passwd" }, { "source": "link" }] }),
    );
    let files = exported["files"].as_array().unwrap();
    let each: Vec<bool> = files.iter().map(|f| f["success"] == true).collect();
    assert_eq!(each, [true, false, false, false, false], "{exported}");
    assert_eq!((&files[0]["path"], &files[0]["size"]), (&json!("/workspace/d"), &json!(null)));
    assert_eq!(exported["error"], "4 of 5 files could not be exported");
    let listed = thread.ask("GET", "/files", "").json();
    assert_eq!(
        (&listed[0]["path"], &listed[0]["is_directory"]),
        (&json!("/workspace/d"), &json!(true)),
        "{listed}"
    );
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let file = thread.download(&id, "d/./f");
    assert_eq!((file.status, file.body.as_slice()), (200, &b"a\0b"[..]));
    assert_eq!(file.header("content-length"), Some("3"));
    assert!(file.header("content-disposition").unwrap().starts_with("attachment; filename=\"f\""));
    // A folder is a real archive.
    let folder = thread.download(&id, "/workspace/d");
    assert_eq!(
        (folder.status, folder.header("content-type")),
        (200, Some("application/x-tar")),
        "{}",
        folder.head
    );
    let mut archive = tar::Archive::new(folder.body.as_slice());
    let names = archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with('/')).collect();
    names.sort();
    assert_eq!(names, ["d/e/g", "d/f"]);
    for (path, status) in [
        ("/workspace/d-not", 403),
        ("/workspace", 403),
        ("/workspace/d/../d-not", 403),
        ("/workspace/d/../../etc/passwd", 400),
        ("/etc/passwd", 400),
        ("..", 400),
        ("", 400),
        ("a%00b", 400),
        ("/workspace/d/no", 404),
    ] {
        assert_eq!(thread.download(&id, path).status, status, "{path}");
    }
    assert_eq!(thread.download("00000000", "/workspace/d").status, 403);
    assert_eq!(thread.ask("GET", "/files/download?session_id=x", "").status, 422);
    let stranger = key(&server, "eve", "standard");
    assert_eq!(Thread::of(&server, &stranger, "t1").download(&id, "/workspace/d/f").status, 403);
    assert_eq!(Thread::new(&server, "t2").download(&id, "/workspace/d/f").status, 403);
    assert_eq!(Thread::of(&server, "nonsense", "t1").download(&id, "/workspace/d/f").status, 401);
    thread.call("stop_session", &json!({ "session_id": id }));
    assert_eq!(thread.download(&id, "/workspace/d/f").status, 403);
    assert_eq!(thread.ask("GET", "/files", "").json(), json!([]));
}
