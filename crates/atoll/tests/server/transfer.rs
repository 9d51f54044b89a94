//! Sandboxes as archives: out of one server and into another.

use super::{
    fixture::{KEY, Server},
    http, image_imports,
    preview::peak_memory,
};
use crate::engine::fixture::eventually;
use atoll_launch_proto::Layout;
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};
use tar::{EntryType, Header};

const ID: &str = "/api/v1/sandboxes";

fn export(server: &Server, sandbox: &str) -> Vec<u8> {
    let answer = server.send("GET", &format!("{sandbox}/export"), b"");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body
}

fn import(server: &Server, archive: &[u8]) -> http::Answer {
    server.send("POST", &format!("{ID}/import"), archive)
}

/// Every sandbox that is not destroyed.
fn alive(server: &Server) -> u64 {
    server.ask("GET", ID, "").json()["total"].as_u64().unwrap()
}

/// The manifest of an archive, as its first entry.
fn manifest(archive: &[u8]) -> &[u8] {
    let size = archive[512..].windows(3).position(|bytes| bytes == b"\n}\0").unwrap() + 2;
    &archive[..512 + size.next_multiple_of(512)]
}

/// An archive with another path of the same length in its manifest, whose digest is right all the same.
fn with_rule(archive: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let front = manifest(archive);
    let changed = String::from_utf8_lossy(front).replace(from, to).into_bytes();
    let rest = &archive[front.len()..archive.len() - 2048];
    with_front(archive, &[&changed, rest].concat())
}

/// An archive with other files, whose digest is right all the same.
fn with_files(archive: &[u8], files: &[u8]) -> Vec<u8> {
    with_front(archive, &[manifest(archive), files].concat())
}

fn with_front(archive: &[u8], front: &[u8]) -> Vec<u8> {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(front).unwrap();
    let mut tail = archive[archive.len() - 2048..].to_vec();
    tail[512..576].copy_from_slice(&sum.wait_with_output().unwrap().stdout[..64]);
    [front, &tail].concat()
}

const FILL: &str = "mkdir -p src/empty; echo one > src/a; printf 'x%.0s' $(seq 3000) > big; ln -s src/a link; \
    chmod 750 src/a; touch -d @1000000000 src/a; echo secret > ~/.token; chmod 600 ~/.token";
const LIST: &str = "cd /workspace; find . ~ -not -path ~ -printf '%p %m %s %l\\n' | sort; cat src/a ~/.token; \
    sha256sum big; stat -c %Y src/a; echo $PLAIN-$HIDDEN";

#[test]
fn a_sandbox_goes_to_another_server_as_it_was() {
    let (here, there) = (Server::start(), Server::start());
    let made = json!({ "memory_mb": 300, "cpu_cores": 0.5, "disk_mb": 200, "labels": { "team": "a" },
        "session_key": "s", "env_vars": { "PLAIN": "plain" }, "secrets": { "HIDDEN": "hidden-4711" } });
    let sandbox = here.create(&made.to_string());
    here.says(&sandbox, FILL);
    let archive = export(&here, &sandbox);
    assert!(!archive.windows(11).any(|bytes| bytes == b"hidden-4711"), "a secret is in the archive");
    let answer = import(&there, &archive);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    let answer = answer.json();
    assert_eq!((&answer["missing_secrets"], &answer["files"]), (&json!(["HIDDEN"]), &json!(6)), "{answer}");
    let new = &answer["sandbox"];
    for (field, value) in made.as_object().unwrap() {
        match field.as_str() {
            "env_vars" | "secrets" => {}
            "session_key" => assert_eq!(new[field], Value::Null),
            _ => assert_eq!(new[field], *value, "{field}"),
        }
    }
    let copy = format!("{ID}/{}", new["id"].as_str().unwrap());
    let (was, is) = (here.says(&sandbox, LIST), there.says(&copy, LIST));
    assert_eq!(was.replace("plain-hidden-4711", "plain-"), is);
    assert!(is.contains("1000000000") && is.ends_with("plain-"), "{is}");
    // What was unpacked is no command's change, and a stopped sandbox gives the same files.
    assert_eq!(there.exec(&copy, "true")["files_changed"], json!([]));
    assert_eq!(there.ask("POST", &format!("{copy}/stop"), "").status, 200);
    let again = import(&here, &export(&there, &copy));
    assert_eq!(again.status, 201, "{}", String::from_utf8_lossy(&again.body));
    let again = format!("{ID}/{}", again.json()["sandbox"]["id"].as_str().unwrap());
    assert_eq!(here.says(&again, LIST), is);
    // Both are in the audit trail.
    for (server, kind) in [(&here, "sandbox.export"), (&there, "sandbox.import")] {
        eventually("its end", || {
            let rows = server.ask("GET", &format!("/api/v1/audit?kind={kind}"), "").json();
            rows["entries"][0]["ended"]["bytes"].as_u64() == Some(archive.len() as u64)
                && rows["entries"][0]["ended"]["outcome"] == "ok"
        });
        let event = kind.trim_start_matches("sandbox.").to_owned() + "ed";
        let told = server.ask("GET", &format!("/api/v1/events?after=0&kind={event}"), "").json();
        assert!(!told["events"].as_array().unwrap().is_empty(), "{event}: {told}");
    }
}

#[test]
fn an_archive_names_the_content_of_its_image() {
    let server = Server::start();
    let images = "/api/v1/sandbox-images";
    let put = |mark: &str| {
        let made =
            image_imports::import(&server, "name=box&replace=true", &image_imports::root_filesystem(mark));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json()["digest"].as_str().unwrap().to_owned()
    };
    let first = put("first");
    let sandbox = server.create(r#"{"image":"box","disk_mb":64}"#);
    let archive = export(&server, &sandbox);
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    let imported = |archive: &[u8]| {
        let answer = import(&server, archive);
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        let answer = answer.json();
        let id = format!("{ID}/{}", answer["sandbox"]["id"].as_str().unwrap());
        let image = server.ask("GET", &id, "").json()["image"].clone();
        assert_eq!(server.ask("DELETE", &id, "").status, 204);
        (image, answer["left_out"].clone())
    };
    assert_eq!(imported(&archive), (json!("box"), json!([])));
    // Its name is another image's by now: it is found by its content, and where that is gone, this is said.
    let second = put("second");
    assert_eq!(imported(&archive), (json!(first), json!([])));
    assert_eq!(server.ask("DELETE", &format!("{images}/{first}"), "").status, 204);
    let (image, left_out) = imported(&archive);
    let said = left_out.to_string();
    assert!(image == "box" && said.contains(&first) && said.contains(&second), "{image} {said}");
}

#[test]
fn an_archive_is_checked_with_what_every_machine_has() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.says(&sandbox, FILL);
    let archive = export(&server, &sandbox);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sandbox.tar");
    std::fs::write(&file, &archive).unwrap();
    let script = "tar -xf sandbox.tar && head -c -2048 sandbox.tar | sha256sum | cut -c -64 | cmp - sha256 && \
                  cat digests/* | sha256sum -c --quiet --strict";
    let ran = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let manifest = std::fs::read(folder.path().join("atoll.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!((&manifest["format"], &manifest["version"]), (&json!("atoll-sandbox"), &json!(1)));
    assert!(sandbox.ends_with(manifest["sandbox"]["id"].as_str().unwrap()));
}

#[test]
fn an_archive_that_is_not_whole_leaves_nothing() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.says(&sandbox, FILL);
    let archive = export(&server, &sandbox);
    let at = |text: &[u8]| archive.windows(text.len()).position(|bytes| bytes == text).unwrap();
    let changed = |at: usize| {
        let mut changed = archive.clone();
        changed[at] ^= 1;
        changed
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "broke off"),
        ("no archive", vec![b'x'; 4096], "not a tar archive"),
        ("no archive, and short", b"{\"image\": \"host\"}".to_vec(), "no archive of a sandbox"),
        ("no archive, of some blocks", vec![b'x'; 1024], "no archive of a sandbox"),
        ("a file changed", changed(at(b"xxxxxxxx") + 4), "digest"),
        ("a name changed", changed(at(b"workspace/big") + 11), "archive"),
        ("the digest changed", changed(archive.len() - 1024 - 512), "changed on the way"),
        ("the manifest changed", changed(at(b"atoll-sandbox")), "atoll.json"),
        ("cut in the manifest", archive[..700].to_vec(), "broke off"),
        ("cut in the files", archive[..archive.len() / 2].to_vec(), "broke off"),
        ("cut before its digest", archive[..archive.len() - 2048].to_vec(), "broke off"),
        ("cut at its end", archive[..archive.len() - 1].to_vec(), "broke off"),
        ("something behind", [&archive[..], &[0; 512]].concat(), "broke off"),
    ];
    for (what, archive, said) in cases {
        let answer = import(&server, &archive);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 422 && text.contains(said), "{what}: {} {text}", answer.status);
        assert_eq!(alive(&server), 1, "{what}");
    }
    // Its client goes away.
    drop(import_by_half(&server, &archive));
    eventually("nothing of it", || alive(&server) == 1);
}

#[test]
fn a_hostile_archive_is_refused_by_its_entry() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    let archive = export(&server, &sandbox);
    let entry = |kind: EntryType, name: &str, target: &str| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(0);
        let fields = header.as_gnu_mut().unwrap();
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let through = [
        entry(EntryType::Symlink, "workspace/link", "/tmp"),
        entry(EntryType::Regular, "workspace/link/evil", ""),
    ];
    for (files, named) in [
        (entry(EntryType::Regular, "workspace/../../evil", ""), "workspace/../../evil"),
        (entry(EntryType::Regular, "/etc/evil", ""), "/etc/evil"),
        (entry(EntryType::Regular, "etc/evil", ""), "etc/evil"),
        (entry(EntryType::Link, "home/evil", "/etc/shadow"), "/etc/shadow"),
        (entry(EntryType::Char, "home/evil", ""), "evil"),
        (entry(EntryType::GNUSparse, "home/evil", ""), "sparse"),
        (entry(EntryType::Regular, "home/evil", ""), "home/evil has no digest"),
        (through.concat(), "link"),
    ] {
        let answer = import(&server, &with_files(&archive, &files));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            (400..423).contains(&answer.status) && text.contains(named),
            "{named}: {} {text}",
            answer.status
        );
        assert_eq!(alive(&server), 1, "{named}");
    }
}

/// Begins an import and sends all but the end of its archive. It goes on while the connection is held.
fn import_by_half(server: &Server, archive: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST {ID}/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        archive.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&archive[..archive.len() - 3000]).unwrap();
    eventually("its sandbox", || alive(server) == 2);
    stream
}

#[test]
fn a_killed_server_leaves_no_half_of_a_sandbox() {
    let mut server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.says(&sandbox, FILL);
    let archive = export(&server, &sandbox);
    let _stream = import_by_half(&server, &archive);
    server.kill();
    server.restart();
    eventually("nothing of it", || alive(&server) == 1);
    assert_eq!(server.says(&sandbox, "cat src/a"), "one");
}

/// What a start could not remove, the next one does, although the operation of the import is closed by then.
#[test]
fn half_of_a_sandbox_that_cannot_be_removed_is_removed_later() {
    let mut server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.says(&sandbox, FILL);
    let archive = export(&server, &sandbox);
    let _stream = import_by_half(&server, &archive);
    server.kill();
    let provider = |name: &str| {
        format!("UPDATE sandboxes SET provider = '{name}' WHERE seq = (SELECT max(seq) FROM sandboxes)")
    };
    server.tamper(&provider("another"));
    server.restart();
    eventually("the end of its operation", || {
        let rows = server.ask("GET", "/api/v1/audit?kind=sandbox.import", "").json();
        rows["entries"][0]["ended"].is_object()
    });
    assert_eq!(alive(&server), 2);
    server.kill();
    server.tamper(&provider("native"));
    server.restart();
    eventually("nothing of it", || alive(&server) == 1);
}

#[test]
fn path_rules_go_with_their_sandbox_and_volumes_where_they_are_asked_for() {
    let (here, there) = (Server::start(), Server::start());
    assert_eq!(here.ask("POST", "/api/v1/volumes", r#"{"name":"data","disk_mb":64}"#).status, 201);
    let rules = json!({ "blocked": ["/workspace/closed", "/home/user/.closed", "/opt/closed"],
        "read_only": ["/workspace/fixed"], "read_write": ["/workspace/fixed/open"] });
    let volumes = json!([{ "name": "data", "path": "/workspace/shared", "read_only": false }]);
    let body = json!({ "disk_mb": 64, "volumes": volumes, "filesystem": rules });
    let sandbox = here.create(&body.to_string());
    here.says(&sandbox, "echo own > own; echo of-the-volume-4711 > shared/f; echo x > fixed/open/f");
    assert_eq!(here.send("PUT", &format!("{sandbox}/files/fixed/f"), b"owners\n").status, 204);
    for stopped in [false, true] {
        if stopped {
            let made = here.ask("POST", &format!("{sandbox}/snapshots"), r#"{"label":"first"}"#);
            assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
            here.says(&sandbox, "echo later > own");
            assert_eq!(here.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
        }
        let archive = export(&here, &sandbox);
        assert!(!archive.windows(18).any(|bytes| bytes == b"of-the-volume-4711"), "a volume's file");
        // An older release would leave the rules out, and reads no such version.
        assert!(String::from_utf8_lossy(manifest(&archive)).contains("\"version\": 3"));
        for server in [&here, &there] {
            let answer = import(server, &archive);
            assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
            let imported = answer.json();
            let told = imported["left_out"].to_string();
            assert!(told.contains("the volume data at /workspace/shared"), "{told}");
            assert!(told.contains("what is kept for paths with a rule outside of /workspace"), "{told}");
            let copy = format!("{ID}/{}", imported["sandbox"]["id"].as_str().unwrap());
            let shown = server.ask("GET", &copy, "").json();
            assert_eq!((&shown["filesystem"], &shown["volumes"]), (&rules, &json!([])), "{shown}");
            let seen = "cat own fixed/f fixed/open/f; ls shared; touch fixed/x 2> /dev/null || echo fixed; \
                touch fixed/open/x && echo open; ls closed 2> /dev/null || echo closed";
            let own = if stopped { "later" } else { "own" };
            assert_eq!(server.says(&copy, seen), format!("{own}\nowners\nx\nfixed\nopen\nclosed"));
            if stopped {
                let all = server.ask("GET", &format!("{copy}/snapshots"), "").json();
                let id = all["items"][0]["id"].as_str().unwrap().to_owned();
                let rolled = server.ask("POST", &format!("{copy}/snapshots/{id}/rollback"), "");
                assert_eq!(rolled.status, 200, "{}", String::from_utf8_lossy(&rolled.body));
                assert_eq!(
                    server.says(&copy, "cat own; touch fixed/x 2> /dev/null || echo fixed"),
                    "own\nfixed"
                );
            }
        }
        // The importer's own volume of the name, where it has one and says so.
        let asked = here.send("POST", &format!("{ID}/import?volumes=true"), &archive);
        assert_eq!(asked.status, 201, "{}", String::from_utf8_lossy(&asked.body));
        let imported = asked.json();
        assert!(!imported["left_out"].to_string().contains("the volume"), "{imported}");
        let copy = format!("{ID}/{}", imported["sandbox"]["id"].as_str().unwrap());
        assert_eq!(here.ask("GET", &copy, "").json()["volumes"], volumes);
        assert_eq!(here.says(&copy, "cat shared/f"), "of-the-volume-4711");
        let none = there.send("POST", &format!("{ID}/import?volumes=true"), &archive).json();
        let told = none["left_out"].to_string();
        assert!(told.contains("the volume data at /workspace/shared: there is none of this name"), "{told}");
    }
    // Rules that cannot be are refused, and leave nothing.
    let before = alive(&there);
    let archive = export(&here, &sandbox);
    for place in ["/proc/closed/xxxx", "/workspace/../xxx"] {
        let refused = import(&there, &with_rule(&archive, "/workspace/closed", place));
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == 422 && said.contains("no place in a sandbox"), "{said}");
    }
    assert_eq!(alive(&there), before);
}

#[test]
fn what_a_writable_root_loses_is_said() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64,"profile":"root"}"#);
    server.says(&sandbox, "echo own > /opt/own");
    let exported = server.send("GET", &format!("{sandbox}/export"), b"");
    let told = exported.header("atoll-left-out").unwrap_or_default().to_owned();
    assert!(told.contains("the profile root"), "{told}");
    assert_eq!(import(&server, &exported.body).json()["left_out"], json!([told]));
    let plain = server.create(r#"{"disk_mb":64}"#);
    let exported = server.send("GET", &format!("{plain}/export"), b"");
    assert_eq!(exported.header("atoll-left-out"), None);
    assert_eq!(import(&server, &exported.body).json()["left_out"], json!([]));
}

#[test]
fn a_sandbox_that_is_nearly_full_is_exported() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    // Less than a mebibyte is left.
    assert_eq!(server.exec(&sandbox, "head -c 66400000 /dev/urandom > full && sync")["exit_code"], 0);
    assert!(export(&server, &sandbox).len() > 66_400_000);
    assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
    assert!(export(&server, &sandbox).len() > 66_400_000);
}

#[test]
fn what_cannot_be_read_is_named_before_the_first_byte() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    for (made, named) in [("echo x > z; chmod 0 z", "workspace/z"), ("rm -f z; mkdir -m 0 ~/z", "home/z")] {
        server.says(&sandbox, &format!("head -c 9000000 /dev/urandom > a; {made}"));
        let answer = server.send("GET", &format!("{sandbox}/export"), b"");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 403 && text.contains(named), "{} {text}", answer.status);
    }
}

#[test]
fn slow_readers_of_one_owner_leave_room_for_the_others() {
    let server = Server::start();
    let [ann, bob] = ["ann", "bob"].map(|owner| server.key_of(owner, "user"));
    let make = |key: &str| {
        let made = server.ask_as(key, "POST", ID, r#"{"disk_mb":100}"#);
        assert_eq!(made.status, 201, "{made:?}");
        format!("{ID}/{}", made.json()["id"].as_str().unwrap())
    };
    let (anns, bobs) = (make(&ann), make(&bob));
    let fill = json!({ "command": "head -c 60000000 /dev/urandom > big" }).to_string();
    assert_eq!(server.ask_as(&ann, "POST", &format!("{anns}/exec"), &fill).status, 200);
    let slow = |_| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = format!("GET {anns}/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ann}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let slow = [0, 1].map(slow);
    let refused = server.ask_as(&ann, "GET", &format!("{anns}/export"), "");
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 429 && text.contains("2 exports of this owner"), "{} {text}", refused.status);
    assert_eq!(server.ask_as(&bob, "GET", &format!("{bobs}/export"), "").status, 200);
    drop(slow);
    eventually("a place", || server.ask_as(&ann, "GET", &format!("{anns}/export"), "").status == 200);
}

#[test]
fn an_import_is_bound_as_a_create_is() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":4000,"disk_mb":64}"#);
    server.says(&sandbox, "head -c 3000000 /dev/urandom > data");
    let archive = export(&server, &sandbox);
    let [ann, reader] =
        [("ann", "user"), ("ann", "read_only")].map(|(owner, scope)| server.key_of(owner, scope));
    let ask = |key: &str, method: &str, path: &str, body: &[u8]| {
        let authorization = format!("Bearer {key}");
        http::request(server.address, method, path, &[("Authorization", &authorization)], body).unwrap()
    };
    // Above the tier, with a key that only reads, of another owner.
    let refused = ask(&ann, "POST", &format!("{ID}/import"), &archive);
    assert_eq!(refused.status, 403, "{}", String::from_utf8_lossy(&refused.body));
    assert!(String::from_utf8_lossy(&refused.body).contains("memory_mb"));
    assert_eq!(ask(&reader, "POST", &format!("{ID}/import"), &archive).status, 403);
    assert_eq!(ask(&ann, "GET", &format!("{sandbox}/export"), b"").status, 404);
    assert_eq!(alive(&server), 1);
    // Files that do not fit into the disk which the archive itself asks for.
    let small = server.create(r#"{"disk_mb":1}"#);
    let files = &archive[manifest(&archive).len()..archive.len() - 2048];
    let answer = import(&server, &with_files(&export(&server, &small), files));
    assert_eq!(answer.status, 507, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(alive(&server), 2);
}

#[test]
fn the_command_line_exports_and_imports() {
    let server = Server::start();
    let sandbox = server.create(r#"{"secrets":{"HIDDEN":"hidden-4711"}}"#);
    server.says(&sandbox, FILL);
    let id = sandbox.rsplit('/').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sandbox.tar");
    let file = file.to_str().unwrap();
    let (code, out, err) = server.atoll(&["export", id, "-o", file]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let (code, out, err) = server.atoll(&["import", file]);
    assert!(code == Some(0) && err.contains("HIDDEN") && !err.contains("hidden-4711"), "{err}");
    let copy = format!("{ID}/{}", out.trim());
    assert_eq!(server.says(&copy, "cat src/a ~/.token"), "one\nsecret");
    let (code, _, err) = server.atoll(&["export", "nothing", "-o", &format!("{file}.2")]);
    assert!(code == Some(1) && !err.is_empty());
    // What is there may be all that is left of a sandbox.
    let before = std::fs::read(file).unwrap();
    let (code, _, err) = server.atoll(&["export", id, "-o", file]);
    assert!(code != Some(0) && err.contains("writes over no file"), "{err}");
    assert_eq!(std::fs::read(file).unwrap(), before);
    let (code, _, err) = server.atoll(&["import", "/dev/null"]);
    assert!(code == Some(1) && err.contains("broke off"), "{err}");
    // From one server to another through a pipe.
    let atoll = env!("CARGO_BIN_EXE_atoll");
    let ran = Command::new("sh")
        .args(["-c", &format!("{atoll} export {id} | {atoll} import --json")])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(json["missing_secrets"], json!(["HIDDEN"]));
}

#[test]
fn an_archive_is_held_in_neither_direction() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":400}"#);
    server.exec(&sandbox, "head -c 100M /dev/zero > big");
    let (atoll, id) = (env!("CARGO_BIN_EXE_atoll"), sandbox.rsplit('/').next().unwrap());
    let before = peak_memory(server.child.id());
    let ran = Command::new("sh")
        .args(["-c", &format!("{atoll} export {id} | {atoll} import")])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let grew = peak_memory(server.child.id()) - before;
    assert!(grew < 32 << 10, "the server held {grew} KiB of 100 MiB");
    let copy = format!("{ID}/{}", String::from_utf8(ran.stdout).unwrap().trim());
    assert_eq!(server.says(&copy, "wc -c < big"), "104857600");
}

#[test]
fn a_repeated_import_makes_one_sandbox() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    let archive = export(&server, &sandbox);
    let authorization = format!("Bearer {KEY}");
    let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", "k")];
    let ask = || http::request(server.address, "POST", &format!("{ID}/import"), &headers, &archive).unwrap();
    let (first, again) = (ask(), ask());
    assert_eq!((first.status, again.status), (201, 201), "{again:?}");
    assert_eq!(first.json()["sandbox"]["id"], again.json()["sandbox"]["id"]);
    assert_eq!(alive(&server), 2);
}

/// Writes the same number to two files, far apart in an archive, again and again with a rename each.
const WRITE: &str = "head -c 20000000 /dev/urandom > m; n=0; while :; do n=$((n+1)); for f in a z; do \
    echo $n > .new; mv .new $f; done; done";

#[test]
fn the_files_of_a_running_sandbox_are_of_one_moment() {
    for server in super::snapshots::both(&[]) {
        exports_are_of_one_moment(&server);
    }
}

fn exports_are_of_one_moment(server: &Server) {
    let sandbox = server.create(r#"{"disk_mb":200}"#);
    let body = json!({ "command": WRITE, "background": true }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/exec"), &body).status, 202);
    eventually("its files", || server.ask("GET", &format!("{sandbox}/fs/stat?path=z"), "").status == 200);
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let storage = layout.data().join("storage");
    let trees = [layout.run().join("pool"), storage.join("subvolumes"), storage.join("dir")];
    let volumes = || {
        let folders = trees.iter().filter_map(|tree| std::fs::read_dir(tree.join("volumes")).ok());
        folders.map(Iterator::count).sum::<usize>()
    };
    let before = volumes();
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar")
            .args(["-xf", "-"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&export(server, &sandbox)).unwrap();
        assert!(tar.wait().unwrap().success());
        let number = |name: &str| -> u64 {
            let text = std::fs::read_to_string(folder.path().join("workspace").join(name)).unwrap();
            text.trim().parse().unwrap()
        };
        let (first, last) = (number("a"), number("z"));
        assert!(first == last || first == last + 1, "{first} {last}");
    }
    eventually("no copy", || volumes() == before);
}
