//! Files over the API.

use super::{AUTH, Server, http, refused};
use serde_json::json;

#[test]
fn a_file_goes_in_and_comes_out_whole_or_in_part() {
    let server = Server::start();
    let path = server.create("{}");
    let big = "0123456789".repeat(300_000);
    let file = format!("{path}/files/dir/data%20file");
    assert_eq!(server.ask("PUT", &file, &big).status, 204);
    assert_eq!(server.says(&path, "stat -c '%s %u' '/workspace/dir/data file'"), "3000000 1000");
    let whole = server.ask("GET", &file, "");
    assert_eq!((whole.body.len(), whole.header("content-disposition")), (big.len(), Some("attachment")));
    let part = http::request(server.address, "GET", &file, &[AUTH, ("Range", "bytes=12-15")], b"").unwrap();
    assert_eq!(
        (part.status, &part.body[..], part.header("content-range")),
        (206, &b"2345"[..], Some("bytes 12-15/3000000"))
    );
    assert_eq!(server.ask("GET", &format!("{path}/files/none"), "").status, 404);
}

#[test]
fn folders_are_made_listed_moved_and_removed() {
    let server = Server::start();
    let path = server.create("{}");
    let fs = |what: &str, body: &str| server.ask("POST", &format!("{path}/fs/{what}"), body);
    assert_eq!(fs("mkdir", r#"{"path":"a/b","parents":true}"#).status, 201);
    assert_eq!(server.ask("PUT", &format!("{path}/files/x"), "1234").status, 204);
    assert_eq!(fs("move", r#"{"from":"x","to":"a/b/y"}"#).json()["size"], 4);
    assert_eq!(server.get(&format!("{path}/fs/stat?path=a/b/y"))["type"], "file");
    let list = server.get(&format!("{path}/files?path=/workspace/a"));
    assert_eq!((&list[0]["name"], &list[0]["is_directory"]), (&json!("b"), &json!(true)));
    assert_eq!(fs("remove", r#"{"path":"a"}"#).status, 409, "it is not empty");
    assert_eq!(fs("remove", r#"{"path":"a","recursive":true}"#).status, 204);
    assert_eq!(server.get(&format!("{path}/files")), json!([]));
}

#[test]
fn no_path_leads_out() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "ln -s /etc/passwd out; ln -s .. up");
    for bad in ["..%2F..%2Fetc%2Fpasswd", "../../etc/passwd", "a/../../x", "out", "up/etc/passwd"] {
        let answer = server.ask("GET", &format!("{path}/files/{bad}"), "");
        assert!((400..500).contains(&answer.status), "{bad}: {answer:?}");
    }
    assert!((400..500).contains(&server.ask("PUT", &format!("{path}/files/up/x"), "x").status));
}

#[test]
fn the_programs_of_pid_1_find_and_pack() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "mkdir d; echo needle > d/a; echo hay > d/b");
    let found = server.ask("POST", &format!("{path}/fs/grep"), r#"{"path":"d","pattern":"needle"}"#);
    let text = String::from_utf8_lossy(&found.body).into_owned();
    assert!(found.status == 200 && text.contains("needle") && !text.contains("hay"), "{found:?}");
    let packed = server.ask("GET", &format!("{path}/fs/tar?path=d"), "");
    let text = String::from_utf8_lossy(&packed.body).into_owned();
    assert!(packed.status == 200 && text.contains("needle") && text.contains("hay"), "{}", packed.head);
}

#[test]
fn what_is_found_counts_for_its_owner() {
    let server = Server::start_with(&["--set", "http.owner_answers_mb=1"]);
    let path = server.create("{}");
    server.says(&path, "mkdir d; yes needle | head -c 8000 | tr -d '\\n' > line; yes \"$(head -c 200 line)\" | head -8000 > d/long");
    server.says(&path, "seq -f d/a-name-of-some-length-%g 1 9000 | xargs touch");
    for (tool, large, small) in [
        (
            "grep",
            r#"{"path":"d","pattern":"needle","max_matches":8000}"#,
            r#"{"path":"d","pattern":"needle","max_matches":100}"#,
        ),
        ("find", r#"{"path":"d","limit":9000}"#, r#"{"path":"d","limit":100}"#),
    ] {
        let ask = |body: &str| server.ask("POST", &format!("{path}/fs/{tool}"), body);
        let (code, details) = refused(&ask(large), 429);
        assert_eq!(
            (code.as_str(), &details["limit"]),
            ("limit_exceeded", &json!("http.owner_answers_mb")),
            "{tool}"
        );
        // What was refused holds nothing more.
        assert_eq!(ask(small).status, 200, "{tool}");
    }
}
