//! Skills through the API: made, uploaded, changed, deleted, and installed in sandboxes by their user.

use super::{
    fixture::{KEY, Server},
    http::{self, Answer},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Cursor, Write},
    thread,
    time::Duration,
};
use zip::{ZipWriter, write::SimpleFileOptions};

fn skill_md(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}\nlicense: MIT\n---\n# {name}\n")
}

/// A package with these files.
fn package(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, body) in files {
        let mode = if path.ends_with(".sh") { 0o755 } else { 0o644 };
        writer.start_file(*path, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
        writer.write_all(body.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn upload_as(server: &Server, key: &str, query: &str, bytes: &[u8]) -> Answer {
    let head = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"s.zip\"\r\n\r\n";
    let body = [&head[..], bytes, b"\r\n--b--\r\n"].concat();
    let authorization = format!("Bearer {key}");
    let headers =
        [("Authorization", authorization.as_str()), ("Content-Type", "multipart/form-data; boundary=b")];
    http::request(server.address, "POST", &format!("/api/v1/skills/upload{query}"), &headers, &body).unwrap()
}

fn upload(server: &Server, bytes: &[u8]) -> String {
    let made = upload_as(server, KEY, "", bytes);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

fn install(server: &Server, sandbox: &str, ids: &[&str]) -> Value {
    let answer = server.ask("POST", &format!("{sandbox}/skills"), &json!({"skill_ids": ids}).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn outcome(installed: &[&str], already: &[&str]) -> Value {
    json!({"installed": installed, "already_installed": already, "not_found": [], "extraction_errors": []})
}

fn names(server: &Server, sandbox: &str) -> Vec<String> {
    let skills = server.ask("GET", sandbox, "").json()["skills"].clone();
    let names = skills.as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// The files of the folder of packages.
fn stored(server: &Server) -> Vec<String> {
    let Ok(folder) = fs::read_dir(server.data().join("server/skills")) else { return Vec::new() };
    folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_skill_is_uploaded_installed_changed_and_deleted() {
    let server = Server::start();
    let bytes = package(&[
        ("tables/SKILL.md", &skill_md("tables")),
        ("tables/scripts/run.sh", "#!/bin/sh\necho ran\n"),
        ("tables/data/a b.txt", "text"),
    ]);
    let id = upload(&server, &bytes);
    let again = upload_as(&server, KEY, "", &bytes);
    assert_eq!((again.status, &again.json()["error"]["details"]["skill_id"]), (409, &json!(id)), "{again:?}");
    let path = format!("/api/v1/skills/{id}");
    let one = server.ask("GET", &path, "").json();
    assert_eq!((&one["name"], &one["description"]), (&json!("tables"), &json!("Does tables")), "{one}");
    assert_eq!((&one["skill_md_content"], &one["files"]), (&json!(skill_md("tables")), &json!(3)), "{one}");
    assert_eq!(one["skill_metadata"], json!({"license": "MIT"}));
    let download = server.ask("GET", &format!("{path}/package"), "");
    assert!(download.status == 200 && download.body == bytes, "{}", download.head);
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    assert_eq!(install(&server, &sandbox, &[&id]), outcome(&["tables"], &[]));
    let line =
        "cd skills/tables && stat -c %u:%a SKILL.md && ./scripts/run.sh && cat 'data/a b.txt'; ls -A ..";
    assert_eq!(server.says(&sandbox, line), "1000:644\nran\ntexttables");
    let shown = server.ask("GET", &sandbox, "").json()["skills"].clone();
    assert_eq!((&shown[0]["id"], &shown[0]["name"]), (&json!(id), &json!("tables")), "{shown}");
    assert!(shown[0]["installed_at"].is_string() && shown[0].as_object().unwrap().len() == 3, "{shown}");
    assert_eq!(install(&server, &sandbox, &[&id, &id]), outcome(&[], &["tables"]));
    // What was removed inside is installed again, and so is another version, without what the former had.
    server.exec(&sandbox, "rm -r skills/tables");
    assert_eq!(install(&server, &sandbox, &[&id]), outcome(&["tables"], &[]));
    let change = json!({"description": "Reads: \"tables\""}).to_string();
    let changed = server.ask("PATCH", &path, &change);
    assert_eq!(
        (changed.status, &changed.json()["description"]),
        (200, &json!("Reads: \"tables\"")),
        "{changed:?}"
    );
    assert_eq!(install(&server, &sandbox, &[&id]), outcome(&["tables"], &[]));
    assert!(
        server.says(&sandbox, "cat skills/tables/SKILL.md; ls skills/tables/scripts").ends_with("run.sh")
    );
    let smaller = package(&[("SKILL.md", &skill_md("tables"))]);
    let replaced = upload_as(&server, KEY, "?replace=true", &smaller);
    assert_eq!((replaced.status, &replaced.json()["id"]), (200, &json!(id)), "{replaced:?}");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    assert_eq!(install(&server, &sandbox, &[&id]), outcome(&["tables"], &[]), "also while it is stopped");
    server.ask("POST", &format!("{sandbox}/resume"), "");
    assert_eq!(
        server.says(&sandbox, "ls -A skills skills/tables"),
        "skills:\ntables\n\nskills/tables:\nSKILL.md"
    );
    assert_eq!(stored(&server).len(), 1, "former packages are gone");
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(server.ask("DELETE", &path, "").status, 404);
    assert_eq!(stored(&server), Vec::<String>::new());
    let gone = install(&server, &sandbox, &[&id]);
    assert_eq!(gone["not_found"], json!([id]), "{gone}");
    assert_eq!(
        (server.says(&sandbox, "ls skills"), names(&server, &sandbox)),
        ("tables".into(), vec!["tables".into()])
    );
    let events = server.ask("GET", "/api/v1/events?limit=1000", "").json();
    let kinds = events["events"].as_array().unwrap().iter().filter_map(|event| event["kind"].as_str());
    let kinds: Vec<&str> = kinds.filter(|kind| kind.starts_with("skill")).collect();
    let (installed, updated) = ("skills.installed", "skill.updated");
    let expected =
        ["skill.created", installed, installed, updated, installed, updated, installed, "skill.deleted"];
    assert_eq!(kinds, expected);
}

#[test]
fn forks_exports_and_rollbacks_say_which_skills_their_files_have() {
    let server = Server::start();
    let (first, second) = (
        upload(&server, &package(&[("SKILL.md", &skill_md("first"))])),
        upload(&server, &package(&[("SKILL.md", &skill_md("second"))])),
    );
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    install(&server, &sandbox, &[&first]);
    let snapshot = server.ask("POST", &format!("{sandbox}/snapshots"), "{}").json();
    let snapshot = snapshot["id"].as_str().unwrap().to_owned();
    thread::sleep(Duration::from_millis(20));
    install(&server, &sandbox, &[&second]);
    let fork = |body: Value| {
        let made = server.ask("POST", &format!("{sandbox}/fork"), &body.to_string()).json();
        format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap())
    };
    let (now, then) = (fork(json!({})), fork(json!({ "snapshot": snapshot })));
    assert_eq!(names(&server, &now), ["first", "second"]);
    assert_eq!(names(&server, &then), ["first"]);
    assert_eq!(install(&server, &now, &[&first, &second]), outcome(&[], &["first", "second"]));
    assert_eq!(install(&server, &then, &[&first, &second]), outcome(&["second"], &["first"]));
    let archive = server.ask("GET", &format!("{sandbox}/export"), "").body;
    let authorization = format!("Bearer {KEY}");
    let headers = [("Authorization", authorization.as_str())];
    let imported =
        http::request(server.address, "POST", "/api/v1/sandboxes/import", &headers, &archive).unwrap().json();
    let imported = format!("/api/v1/sandboxes/{}", imported["sandbox"]["id"].as_str().unwrap());
    assert_eq!(names(&server, &imported), ["first", "second"]);
    let rolled = server.ask("POST", &format!("{sandbox}/snapshots/{snapshot}/rollback"), "");
    assert_eq!(rolled.status, 200, "{rolled:?}");
    assert_eq!(names(&server, &sandbox), ["first"]);
    // The rollback is undone, and so the files of the second are back.
    let before = rolled.json()["before"]["id"].as_str().unwrap().to_owned();
    assert_eq!(names(&server, &fork(json!({ "snapshot": before }))), ["first", "second"]);
    let undone = server.ask("POST", &format!("{sandbox}/snapshots/{before}/rollback"), "");
    assert_eq!(undone.status, 200, "{undone:?}");
    assert_eq!(names(&server, &sandbox), ["first", "second"]);
    assert_eq!(install(&server, &sandbox, &[&first, &second]), outcome(&[], &["first", "second"]));
    server.ask("POST", &format!("{sandbox}/snapshots/{snapshot}/rollback"), "");
    assert_eq!(install(&server, &sandbox, &[&first, &second]), outcome(&["second"], &["first"]));
}

#[test]
fn an_owners_skills_are_hidden_from_others() {
    let server = Server::start();
    let key = |owner: &str| {
        let body = json!({"name": "k", "owner": owner, "tier": "standard"}).to_string();
        server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let bytes = package(&[("SKILL.md", &skill_md("secret-skill"))]);
    let id = upload_as(&server, &ann, "", &bytes).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/skills/{id}");
    for (method, path, body) in [
        ("GET", path.as_str(), ""),
        ("PATCH", &path, r#"{"description":"x"}"#),
        ("DELETE", &path, ""),
        ("GET", &format!("{path}/package"), ""),
        ("GET", "/api/v1/skills?owner=ann", ""),
    ] {
        assert_eq!(server.ask_as(&bob, method, path, body).status, 404, "{method} {path}");
    }
    let list =
        |key: &str, query: &str| server.ask_as(key, "GET", &format!("/api/v1/skills{query}"), "").json();
    assert_eq!(list(&bob, "")["total"], 0);
    let made = server.ask_as(&bob, "POST", "/api/v1/sandboxes", r#"{"disk_mb":64}"#).json();
    let sandbox = format!("/api/v1/sandboxes/{}/skills", made["id"].as_str().unwrap());
    let asked = server.ask_as(&bob, "POST", &sandbox, &json!({"skill_ids": [id]}).to_string()).json();
    assert_eq!((&asked["not_found"], &asked["installed"]), (&json!([id]), &json!([])), "{asked}");
    assert_eq!(server.ask_as(&ann, "POST", &sandbox, &json!({"skill_ids": [id]}).to_string()).status, 404);
    // The same name is each owner's own; an admin sees both.
    assert_eq!(upload_as(&server, &bob, "", &bytes).status, 201);
    assert_eq!(list(KEY, "")["total"], 2);
    assert_eq!(list(KEY, "?owner=ann&search=SECRET")["items"][0]["id"], json!(id));
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(stored(&server).len(), 1, "the package is another skill's too");
}

#[test]
fn skills_count_towards_the_plan() {
    let server = Server::start_with(&["--set", "plan.skills=2", "--set", "plan.skills_mb=1"]);
    let body = r#"{"name":"k","owner":"ann","tier":"standard"}"#;
    let key = server.ask("POST", "/api/v1/keys", body).json()["key"].as_str().unwrap().to_owned();
    let named = |name: &str| package(&[("SKILL.md", &skill_md(name))]);
    let first = upload_as(&server, &key, "", &named("one")).json()["id"].as_str().unwrap().to_owned();
    // Bytes that cannot be compressed.
    let mut seed = 1_u32;
    let noise: String = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'!' + ((seed >> 16) % 90) as u8)
    })
    .take(1_500_000)
    .collect();
    let large = package(&[("SKILL.md", &skill_md("large")), ("noise", &noise)]);
    let refused = upload_as(&server, &key, "", &large);
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["resource"]),
        (429, &json!("skills_mb")),
        "{refused:?}"
    );
    assert_eq!(upload_as(&server, &key, "", &named("two")).status, 201);
    let refused = upload_as(&server, &key, "", &named("three"));
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["resource"]),
        (429, &json!("skills")),
        "{refused:?}"
    );
    let replaced =
        upload_as(&server, &key, "?replace=true", &package(&[("SKILL.md", &(skill_md("one") + "x"))]));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert_eq!(server.ask_as(&key, "DELETE", &format!("/api/v1/skills/{first}"), "").status, 204);
    assert_eq!(upload_as(&server, &key, "", &named("three")).status, 201);
    assert_eq!(stored(&server).len(), 2);
}

#[test]
fn what_is_wrong_with_a_package_is_said_and_nothing_is_left() {
    let server = Server::start();
    let code = |bytes: &[u8]| {
        let answer = upload_as(&server, KEY, "", bytes);
        (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let expected = |code: &str| (422, code.to_owned());
    assert_eq!(code(&package(&[("README.md", "x")])), expected("skill-file-missing"));
    let two = package(&[("a/SKILL.md", &skill_md("a")), ("b/SKILL.md", &skill_md("b"))]);
    assert_eq!(code(&two), expected("skill-file-ambiguous"));
    assert_eq!(code(&package(&[("SKILL.md", "---\n: [\n---\n")])), expected("skill-malformed-frontmatter"));
    let lacking = package(&[("SKILL.md", "---\nname: a\n---\n")]);
    assert_eq!(code(&lacking), expected("skill-frontmatter-missing-field"));
    assert_eq!(code(b"no archive"), expected(""));
    assert_eq!(code(&package(&[("SKILL.md", &skill_md("a")), ("../../etc/passwd", "x")])), expected(""));
    assert_eq!(code(&vec![0; (10 << 20) + 1]).0, 413);
    let no_form = server.ask("POST", "/api/v1/skills/upload", "{}");
    assert_eq!(no_form.status, 422, "{no_form:?}");
    assert_eq!(stored(&server), Vec::<String>::new());
    assert_eq!(server.ask("GET", "/api/v1/skills", "").json()["total"], 0);
    // What the sandbox has no room for is told, and leaves nothing by half.
    let large = "a".repeat(30 << 20);
    let id = upload(&server, &package(&[("SKILL.md", &skill_md("large")), ("a", &large)]));
    let sandbox = server.create(r#"{"disk_mb":16}"#);
    let full = install(&server, &sandbox, &[&id]);
    let error = &full["extraction_errors"][0];
    assert_eq!((&error["name"], &error["code"]), (&json!("large"), &json!("disk_full")), "{full}");
    assert_eq!((server.says(&sandbox, "ls -A skills"), names(&server, &sandbox)), (String::new(), vec![]));
}

#[test]
fn a_skill_is_installed_where_commands_only_read() {
    let server = Server::start();
    let id = upload(
        &server,
        &package(&[("SKILL.md", &skill_md("tables")), ("bin/run.sh", "#!/bin/sh\necho ran\n")]),
    );
    let sandbox = server.create(r#"{"disk_mb":64,"filesystem":{"read_only":["/workspace"]}}"#);
    assert_eq!(install(&server, &sandbox, &[&id]), outcome(&["tables"], &[]));
    let seen = "skills/tables/bin/run.sh; touch skills/tables/x 2>/dev/null || echo no";
    assert_eq!(server.says(&sandbox, seen), "ran\nno");
}

#[test]
fn two_installs_at_once_install_once() {
    let server = Server::start();
    let files: Vec<(String, String)> = (0..60).map(|n| (format!("f{n}"), "x".repeat(10_000))).collect();
    let mut all = vec![("SKILL.md".to_owned(), skill_md("tables"))];
    all.extend(files);
    let all: Vec<(&str, &str)> = all.iter().map(|(path, body)| (path.as_str(), body.as_str())).collect();
    let id = upload(&server, &package(&all));
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    let mut outcomes: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| install(&server, &sandbox, &[&id]))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    outcomes.sort_by_key(|one| one["installed"].as_array().unwrap().len());
    assert_eq!(outcomes.pop(), Some(outcome(&["tables"], &[])));
    assert_eq!(outcomes, vec![outcome(&[], &["tables"]); 3]);
    assert_eq!(server.says(&sandbox, "ls skills/tables | wc -l; ls -A skills"), "61\ntables");
}

#[test]
fn a_server_killed_between_two_steps_leaves_nothing_by_half() {
    let mut server = Server::start();
    let large = "x".repeat(20 << 20);
    let bytes = package(&[("SKILL.md", &skill_md("tables")), ("data", &large)]);
    let id = upload(&server, &bytes);
    let sandbox = server.create(r#"{"disk_mb":128}"#);
    // What a kill between the package and its record leaves, and one in the middle of an upload.
    let folder = server.data().join("server/skills");
    for name in [".part-0".to_owned(), format!("{}.zip", "0".repeat(64))] {
        fs::write(folder.join(name), b"x").unwrap();
    }
    for pause in [0, 5, 20, 60, 120] {
        thread::scope(|scope| {
            let address = server.address;
            let (sandbox, id) = (&sandbox, &id);
            let body = json!({"skill_ids": [id]}).to_string();
            scope.spawn(move || {
                let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
                let _ =
                    http::request(address, "POST", &format!("{sandbox}/skills"), &headers, body.as_bytes());
            });
            thread::sleep(Duration::from_millis(pause));
            server.kill();
        });
        server.restart();
        let there = server.says(&sandbox, "test -e skills/tables && stat -c %s skills/tables/data || true");
        assert!(matches!(there.as_str(), "" | "20971520"), "{there}");
    }
    assert_eq!(stored(&server).len(), 1, "{:?}", stored(&server));
    let done = install(&server, &sandbox, &[&id]);
    assert!(done["not_found"] == json!([]) && done["extraction_errors"] == json!([]), "{done}");
    assert_eq!(server.says(&sandbox, "ls -A skills; stat -c %s skills/tables/data"), "tables\n20971520");
    assert_eq!(names(&server, &sandbox), ["tables"]);
}
