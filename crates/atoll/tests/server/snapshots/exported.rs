//! Snapshots in the archive of a sandbox, on both storage drivers: out of one server, into another.

use super::{both, keep, listed, refused, roll_back};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Command, Stdio},
};
use tar::{EntryType, Header};

const ID: &str = "/api/v1/sandboxes";
/// All files with their modes and times.
const LIST: &str = "cd /workspace; find . ~ -not -path ~ -not -path . -printf '%p %m %Ts %l\\n' | sort; \
                    find . ~ -type f -print0 | sort -z | xargs -0r sha256sum";

fn export(server: &Server, sandbox: &str, query: &str) -> Vec<u8> {
    let answer = server.send("GET", &format!("{sandbox}/export{query}"), b"");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body
}

/// Imports an archive, and returns the sandbox's path and the answer.
fn import(server: &Server, archive: &[u8], query: &str) -> (String, Value) {
    let answer = server.send("POST", &format!("{ID}/import{query}"), archive);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    let answer = answer.json();
    (format!("{ID}/{}", answer["sandbox"]["id"].as_str().unwrap()), answer)
}

/// Where the snapshot with this label is.
fn labelled(server: &Server, sandbox: &str, label: &str) -> String {
    let all = listed(server, sandbox);
    let found = all.iter().find(|one| one["label"] == label).unwrap_or_else(|| panic!("{label}: {all:?}"));
    format!("{sandbox}/snapshots/{}", found["id"].as_str().unwrap())
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|found| found == text)
}

const FIRST: &str = "mkdir -p src ro gone; echo one > src/a; head -c 4000000 /dev/urandom > big; ln -s src/a link; \
                     echo r > ro/r; chmod 555 ro; echo g > gone/g; echo h > ~/.h; echo f > kind; printf x > \"$(printf 'b\\377d')\"";
const SECOND: &str = "echo two > src/a; chmod 755 ro; rm ro/r; chmod 555 ro; rm -r gone; ln -sfn big link; rm kind; mkdir -p kind/in; \
                      chmod 600 ~/.h; head -c 1000000 /dev/urandom > more";
const THIRD: &str =
    "echo three > src/a; rm more ~/.h; rm -r kind; echo again > kind; touch -d @1000000000 src";

#[test]
fn snapshots_go_with_their_sandbox() {
    for (here, there) in both(&[]).into_iter().zip(both(&[]).into_iter().rev()) {
        let sandbox = here.create(r#"{"disk_mb":64}"#);
        let mut states = Vec::new();
        for (label, change) in [("first", FIRST), ("second", SECOND)] {
            here.exec(&sandbox, change);
            states.push((label, here.says(&sandbox, LIST)));
            keep(&here, &sandbox, label);
        }
        roll_back(&here, &labelled(&here, &sandbox, "second"));
        here.exec(&sandbox, THIRD);
        let now = here.says(&sandbox, LIST);
        let archive = export(&here, &sandbox, "");
        // What snapshots share is in the archive once: 5 MB of it, and not 14.
        assert!((5_000_000..7_000_000).contains(&archive.len()), "{}", archive.len());
        let (copy, answer) = import(&there, &archive, "");
        assert_eq!((&answer["snapshots"], &answer["missing_kernels"]), (&json!(3), &json!([])), "{answer}");
        assert_eq!(answer["sandbox"]["status"], "running");
        let about = |server: &Server, sandbox: &str| {
            let fields = |one: &Value| ["kind", "label", "created_at"].map(|field| one[field].clone());
            listed(server, sandbox).iter().map(fields).collect::<Vec<_>>()
        };
        assert_eq!(about(&here, &sandbox), about(&there, &copy));
        // The one of before the rollback names the snapshot as it is called here.
        let second = labelled(&there, &copy, "second");
        let before = listed(&there, &copy)[0]["made_before"].as_str().unwrap().to_owned();
        assert_eq!(before.replace('-', ""), second.rsplit('/').next().unwrap().replace('-', ""));
        assert_eq!(there.says(&copy, LIST), now);
        assert_eq!(there.exec(&copy, "true")["files_changed"], json!([]));
        // Forks and rollbacks of what came.
        for (label, was) in &states {
            let snapshot = labelled(&there, &copy, label);
            let body = json!({ "snapshot": snapshot.rsplit('/').next().unwrap() }).to_string();
            let fork = there.ask("POST", &format!("{copy}/fork"), &body);
            assert_eq!(fork.status, 201, "{fork:?}");
            let fork = format!("{ID}/{}", fork.json()["id"].as_str().unwrap());
            assert_eq!(there.says(&fork, LIST), *was, "{label}");
            roll_back(&there, &snapshot);
            assert_eq!(there.says(&copy, LIST), *was, "{label}");
        }
        // A stopped one is exported as it is, and out of the archive of an archive all comes again.
        assert_eq!(there.ask("POST", &format!("{copy}/stop"), "").status, 200);
        let (again, answer) = import(&here, &export(&there, &copy, ""), "");
        assert_eq!(answer["snapshots"], 5, "{answer}");
        for (label, was) in states {
            roll_back(&here, &labelled(&here, &again, label));
            assert_eq!(here.says(&again, LIST), was, "{label}");
        }
    }
}

#[test]
fn snapshots_are_left_out_on_request_and_old_archives_are_read() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.exec(&sandbox, "echo of-the-snapshot-4711 > a");
    keep(&server, &sandbox, "kept");
    server.exec(&sandbox, "echo now > a");
    let without = export(&server, &sandbox, "?snapshots=false");
    assert!(contains(&without, b"\"version\": 1") && !contains(&without, b"of-the-snapshot-4711"));
    let (copy, answer) = import(&server, &without, "");
    assert_eq!((answer["snapshots"].clone(), listed(&server, &copy)), (json!(0), Vec::new()));
    let with = export(&server, &sandbox, "");
    assert!(contains(&with, b"\"version\": 2") && contains(&with, b"of-the-snapshot-4711"));
    let (copy, answer) = import(&server, &with, "?snapshots=false");
    assert_eq!((answer["snapshots"].clone(), listed(&server, &copy)), (json!(0), Vec::new()));
    assert_eq!(server.says(&copy, "cat a"), "now");
    // What is in the archive is in order for other programs: the present, and beside it what was.
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    let mut tar = tar.args(["-xf", "-"]).current_dir(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(&with).unwrap();
    assert!(tar.wait().unwrap().success());
    let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
    assert_eq!(read("workspace/a"), "now\n");
    assert_eq!(read("snapshots/000001/workspace/a"), "of-the-snapshot-4711\n");
    let script = "cat digests/* | sha256sum -c --quiet --strict";
    let ran = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let id = sandbox.rsplit('/').next().unwrap();
    let file = folder.path().join("sandbox.tar");
    let file = file.to_str().unwrap();
    assert_eq!(server.atoll(&["export", id, "--no-snapshots", "-o", file]).0, Some(0));
    assert!(!contains(&std::fs::read(file).unwrap(), b"of-the-snapshot-4711"));
}

#[test]
fn variables_of_kernels_stay_behind_and_that_is_said() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let run = json!({ "code": "n = 1", "language": "python" }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/run"), &run).status, 200);
    let body = json!({ "kernels": true, "label": "both" }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/snapshots"), &body).status, 201);
    let archive = export(&server, &sandbox, "");
    let (copy, answer) = import(&server, &archive, "");
    let snapshot = labelled(&server, &copy, "both");
    assert_eq!(answer["missing_kernels"], json!([snapshot.rsplit('/').next().unwrap()]), "{answer}");
    let refusal = refused(&server, "POST", &format!("{snapshot}/rollback"), r#"{"kernels":true}"#, 409);
    assert_eq!(refusal, "conflict");
    roll_back(&server, &snapshot);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sandbox.tar");
    std::fs::write(&file, archive).unwrap();
    let (code, _, err) = server.atoll(&["import", file.to_str().unwrap()]);
    assert!(code == Some(0) && err.contains("variables of kernels"), "{err}");
}

/// An archive with another middle, whose digest is right all the same.
fn with_middle(archive: &[u8], manifest: &dyn Fn(&mut Value), middle: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let size = archive[512..].windows(3).position(|bytes| bytes == b"\n}\0").unwrap() + 2;
    let rest = 512 + size.next_multiple_of(512);
    let mut json: Value = serde_json::from_slice(&archive[512..512 + size]).unwrap();
    manifest(&mut json);
    let json = serde_json::to_vec(&json).unwrap();
    let mut front = entry(EntryType::Regular, "atoll.json", &json);
    front.extend(middle(&archive[rest..archive.len() - 2048]));
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(&front).unwrap();
    let mut tail = archive[archive.len() - 2048..].to_vec();
    tail[512..576].copy_from_slice(&sum.wait_with_output().unwrap().stdout[..64]);
    [front, tail].concat()
}

fn entry(kind: EntryType, name: &str, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(body.len() as u64);
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    let mut entry = [header.as_bytes().as_slice(), body].concat();
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

#[test]
fn an_archive_whose_snapshots_are_not_as_they_should_be_leaves_nothing() {
    let server = Server::start_with(&["--set", "snapshots.max=3"]);
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    server.exec(&sandbox, "echo one > a");
    keep(&server, &sandbox, "kept");
    server.exec(&sandbox, "echo two > a");
    let archive = export(&server, &sandbox, "");
    let alive = || server.ask("GET", ID, "").json()["total"].as_u64().unwrap();
    let same = |_: &mut Value| {};
    let whole = |files: &[u8]| files.to_vec();
    let behind = |kind: EntryType, name: &'static str, body: &'static [u8]| {
        move |files: &[u8]| [files, &entry(kind, name, body)].concat()
    };
    let removed = |list: &'static [u8]| behind(EntryType::Regular, "snapshots/000001/removed/000001", list);
    let set = |field: &'static str, value: Value| {
        move |manifest: &mut Value| manifest["snapshots"][0][field] = value.clone()
    };
    let more = |count: usize| {
        move |manifest: &mut Value| {
            let one = manifest["snapshots"][0].clone();
            let all = (0..count).map(|n| {
                let mut one = one.clone();
                one["id"] = json!(format!("{n:032x}"));
                one
            });
            manifest["snapshots"] = all.collect();
        }
    };
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("a part too few", with_middle(&archive, &more(2), &whole), 422, "no part snapshots/000002"),
        ("a part too many", with_middle(&archive, &more(0), &whole), 422, "snapshots/000001"),
        ("too many", with_middle(&archive, &more(4), &whole), 429, "may have 3"),
        (
            "twice",
            with_middle(
                &archive,
                &|m| {
                    let one = m["snapshots"][0].clone();
                    m["snapshots"] = json!([one, one]);
                },
                &whole,
            ),
            422,
            "twice",
        ),
        ("a kind", with_middle(&archive, &set("kind", json!("odd")), &whole), 422, "odd"),
        ("a time", with_middle(&archive, &set("created_at", json!("soon")), &whole), 422, "soon"),
        ("a label", with_middle(&archive, &set("label", json!("\n")), &whole), 422, "1 to 200"),
        ("what to go", with_middle(&archive, &same, &removed(b"workspace/../../x\0")), 422, "leads out"),
        ("all to go", with_middle(&archive, &same, &removed(b"workspace\0")), 422, "whole folder"),
        ("no folder", with_middle(&archive, &same, &removed(b"etc/passwd\0")), 422, "etc/passwd"),
        (
            "outside",
            with_middle(&archive, &same, &behind(EntryType::Regular, "snapshots/000001/etc/x", b"")),
            422,
            "etc/x",
        ),
        (
            "climbs",
            with_middle(&archive, &same, &behind(EntryType::Regular, "snapshots/000001/home/../../x", b"")),
            422,
            "leads out",
        ),
        (
            "a device",
            with_middle(&archive, &same, &behind(EntryType::Char, "snapshots/000001/home/x", b"")),
            422,
            "device",
        ),
        (
            "no digest",
            with_middle(&archive, &same, &behind(EntryType::Regular, "snapshots/000001/home/x", b"x")),
            422,
            "no digest",
        ),
        ("cut", archive[..archive.len() - 3000].to_vec(), 422, "broke off"),
    ];
    for (what, archive, status, said) in cases {
        let answer = server.send("POST", &format!("{ID}/import"), &archive);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == status && text.contains(said), "{what}: {} {text}", answer.status);
        assert_eq!(alive(), 1, "{what}");
    }
    // A byte of a snapshot's file, under a digest of the whole that is right.
    let changed = |files: &[u8]| {
        let mut files = files.to_vec();
        let at = files.windows(4).position(|bytes| bytes == b"one\n").unwrap();
        files[at] = b'O';
        files
    };
    let answer = server.send("POST", &format!("{ID}/import"), &with_middle(&archive, &same, &changed));
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 422 && text.contains("digest of snapshots/000001/workspace/a"), "{text}");
    assert_eq!(alive(), 1);
    // The unchanged archive, taken apart and put together in the same way, is imported.
    let (copy, _) = import(&server, &with_middle(&archive, &same, &whole), "");
    assert_eq!(listed(&server, &copy).len(), 1);
}

#[test]
fn what_snapshots_keep_counts_in_the_imported_sandbox_too() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    for n in 0..3 {
        server.exec(&sandbox, "head -c 15000000 /dev/urandom > big && sync");
        keep(&server, &sandbox, &format!("s{n}"));
    }
    let archive = export(&server, &sandbox, "");
    let (copy, _) = import(&server, &archive, "");
    assert_ne!(
        server.exec(&copy, "head -c 30000000 /dev/urandom > more && sync")["exit_code"],
        0,
        "48 of 64 are taken"
    );
    // Snapshots that do not fit into the disk which the archive asks for are refused, and nothing is left.
    let small = with_middle(&archive, &|manifest| manifest["sandbox"]["disk_mb"] = json!(40), &|files| {
        files.to_vec()
    });
    let answer = server.send("POST", &format!("{ID}/import"), &small);
    assert_eq!(answer.status, 507, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(server.ask("GET", ID, "").json()["total"], 2);
    let (_, answer) = import(&server, &small, "?snapshots=false");
    assert_eq!(answer["snapshots"], 0);
}

/// An import holds the turn of its sandbox's snapshots while its client sends. Others are not kept waiting for that.
#[test]
fn a_client_that_sends_nothing_more_delays_no_other_sandboxs_retention() {
    let here = Server::start();
    let sandbox = here.create(r#"{"disk_mb":200,"auto_snapshot":"before_exec"}"#);
    for n in 0..3 {
        here.exec(&sandbox, &format!("rm -f f*; head -c 20000000 /dev/urandom > f{n}"));
    }
    here.exec(&sandbox, "rm f*");
    let archive = export(&here, &sandbox, "");
    let settings = [
        "snapshots.automatic_retention_seconds=1",
        "lifecycle.interval_seconds=1",
        "lifecycle.settle_seconds=0",
    ];
    let there = Server::start_with(&settings.map(|one| ["--set", one]).concat());
    let head = format!(
        "POST {ID}/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        super::KEY,
        archive.len()
    );
    let mut stream = std::net::TcpStream::connect(there.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&archive[..archive.len() / 2]).unwrap();
    let all = || there.ask("GET", ID, "").json()["items"].as_array().unwrap().clone();
    let copy = || Some(format!("{ID}/{}", all().first()?["id"].as_str()?));
    eventually("its first snapshot", || copy().is_some_and(|copy| !listed(&there, &copy).is_empty()));
    let other = there.create(r#"{"auto_snapshot":"before_exec"}"#);
    for _ in 0..3 {
        there.exec(&other, "true");
        eventually("retention", || listed(&there, &other).is_empty());
    }
    drop(stream);
    eventually("nothing of it", || all().len() == 1);
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_snapshots_leaves_no_half() {
    let mut server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":200}"#);
    for n in 0..3 {
        server.exec(&sandbox, &format!("head -c 20000000 /dev/urandom > f{n}"));
        keep(&server, &sandbox, &format!("s{n}"));
        server.exec(&sandbox, &format!("rm f{n}"));
    }
    let archive = export(&server, &sandbox, "");
    let (address, half) = (server.address, archive[..archive.len() / 2].to_vec());
    let head = format!(
        "POST {ID}/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        super::KEY,
        archive.len()
    );
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&half).unwrap();
    let alive = |server: &Server| server.ask("GET", ID, "").json()["total"].as_u64().unwrap();
    let newest = || {
        let all = server.ask("GET", ID, "").json();
        let other =
            all["items"].as_array()?.iter().find(|one| !sandbox.ends_with(one["id"].as_str().unwrap()))?;
        Some(format!("{ID}/{}", other["id"].as_str()?))
    };
    eventually("its first snapshot", || newest().is_some_and(|copy| !listed(&server, &copy).is_empty()));
    server.kill();
    server.restart();
    eventually("nothing of it", || alive(&server) == 1);
    drop(stream);
    // An export that its reader gives up leaves no copy; the fixture looks for what is left.
    roll_back(&server, &labelled(&server, &sandbox, "s1"));
}
