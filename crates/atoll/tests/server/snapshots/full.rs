//! A disk that is full: what is new is refused and leaves nothing, what is there stays, and what frees room works. The disk is a
//! small file system made for the test, whose pool or plain folders the sandboxes share.

use super::{keep, kernels, listed};
use crate::{
    engine::fixture::eventually,
    server::{brim::SmallDisk, fixture::Server},
};
use serde_json::{Value, json};
use std::{fs, path::Path};

const ID: &str = "/api/v1/sandboxes";

/// Writes until the disk is full; plain folders leave the server what its own database needs.
fn fill(server: &Server, sandbox: &str, disk: &Path, folders: bool) {
    let line = if folders {
        let stat = rustix::fs::statvfs(disk).unwrap();
        let room = (stat.f_bavail * stat.f_frsize).saturating_sub(40 << 20);
        format!("head -c {room} /dev/zero > fill && sync")
    } else {
        // With what is left of the volumes' share too, in ever smaller pieces.
        "head -c 2000000000 /dev/urandom > fill; n=0; while [ $n -lt 200 ]; do n=$((n+1)); \
         head -c 100000 /dev/urandom > small-$n || break; done; sync; true"
            .to_owned()
    };
    let body = json!({ "command": line, "timeout_seconds": 300 }).to_string();
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
}

/// Every object there is: sandboxes, their snapshots, volumes.
fn objects(server: &Server) -> Value {
    let ids = |items: &Value, name: &str| {
        let mut ids: Vec<String> =
            items.as_array().unwrap().iter().map(|one| one[name].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let sandboxes = ids(&server.ask("GET", ID, "").json()["items"], "id");
    let snapshots: Vec<_> =
        sandboxes.iter().map(|id| ids(&json!(listed(server, &format!("{ID}/{id}"))), "id")).collect();
    let volumes = ids(&server.ask("GET", "/api/v1/volumes", "").json()["items"], "name");
    json!([sandboxes, snapshots, volumes])
}

/// How many trees of volumes and of snapshots the storage has.
fn trees(server: &Server, folders: bool) -> (usize, usize) {
    let layout = atoll_launch_proto::Layout::new(&server.data().canonicalize().unwrap());
    let root = if folders { layout.data().join("storage/dir") } else { layout.run().join("pool") };
    let count = |name: &str| {
        fs::read_dir(root.join(name))
            .unwrap()
            .filter(|e| e.as_ref().is_ok_and(|e| e.file_name() != "none"))
            .count()
    };
    (count("volumes"), count("snapshots"))
}

fn a_full_disk(folders: bool) {
    let disk = SmallDisk::new();
    let one = ["--set", "snapshots.automatic_max=1"];
    let server = match folders {
        true => Server::start_on_folders_below(&disk.path(), &one),
        false => Server::start_below(&disk.path(), &one),
    };
    let kept = server.create(r#"{"disk_mb":100}"#);
    server.exec(&kept, "echo one > file; head -c 3000000 /dev/urandom > data");
    let first = keep(&server, &kept, "first");
    let variables = folders.then(|| kernels::keep_with(&server, &kept, "x = 'kept'"));
    server.exec(&kept, "echo two > file");
    // Its only automatic snapshot gives way to the next one, and to none that cannot be made.
    let automatic = server.create(r#"{"disk_mb":20,"auto_snapshot":"before_exec"}"#);
    server.exec(&automatic, "head -c 3000000 /dev/urandom > data");
    server.exec(&automatic, "true");
    assert_eq!(listed(&server, &automatic).len(), 1);
    assert_eq!(server.ask("POST", "/api/v1/volumes", r#"{"name":"there","disk_mb":10}"#).status, 201);
    let archive = server.send("GET", &format!("{kept}/export"), b"").body;
    let filler = server.create(r#"{"disk_mb":2000}"#);
    fill(&server, &filler, &disk.path(), folders);
    if !folders {
        // Another program of the machine takes half of what the disk below the pool has left: well below the bound under
        // which nothing new is made, also while the kernel still settles what was written.
        let stat = rustix::fs::statvfs(disk.path()).unwrap();
        let taken = vec![1; usize::try_from(stat.f_bavail * stat.f_frsize / 2).unwrap()];
        fs::write(disk.path().join("taken"), taken).unwrap();
    }
    let (before, there) = (objects(&server), trees(&server, folders));
    let running = json!({ "command": "sleep 1000", "background": true }).to_string();
    let exec = server.ask("POST", &format!("{kept}/exec"), &running);
    assert_eq!(exec.status, 202, "{exec:?}");
    let exec = format!("{kept}/execs/{}", exec.json()["exec_id"].as_str().unwrap());
    for (method, path, body) in [
        ("POST", format!("{kept}/snapshots"), b"{}".to_vec()),
        ("POST", format!("{filler}/snapshots"), b"{}".to_vec()),
        ("POST", format!("{first}/rollback"), Vec::new()),
        ("POST", format!("{kept}/fork"), b"{}".to_vec()),
        (
            "POST",
            format!("{kept}/fork"),
            json!({ "snapshot": first.rsplit('/').next().unwrap() }).to_string().into_bytes(),
        ),
        ("POST", format!("{automatic}/exec"), br#"{"command":"true"}"#.to_vec()),
        ("GET", format!("{kept}/export"), Vec::new()),
        ("POST", format!("{ID}/import"), archive.clone()),
        ("POST", "/api/v1/volumes".to_owned(), br#"{"name":"new","disk_mb":10}"#.to_vec()),
    ] {
        let answer = server.send(method, &path, &body);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        // A new sandbox or volume is refused as any that the machine has no room for.
        let new = path.ends_with("/import") || path.ends_with("/volumes");
        let (status, code) = if new { (429, "limit_exceeded") } else { (507, "disk_full") };
        assert!(
            answer.status == status && text.contains(code) && text.contains("disk"),
            "{method} {path}: {} {text}",
            answer.status
        );
        assert_eq!(objects(&server), before, "{method} {path}");
        eventually("nothing of it", || trees(&server, folders) == there);
        // Nothing ended, and nothing changed.
        assert_eq!(server.ask("GET", &exec, "").json()["status"], "running", "{method} {path}");
        assert_eq!(server.ask("GET", &format!("{kept}/files/file"), "").body, b"two\n", "{method} {path}");
    }
    if let Some(variables) = &variables {
        // Without a snapshot before, the copy of the files finds no room: that too is known before anything ends.
        let container = server.ask("GET", &kept, "").json()["container_id"].clone();
        for (snapshot, body) in
            [(&first, r#"{"keep_before":false}"#), (variables, r#"{"keep_before":false,"kernels":true}"#)]
        {
            let refused = server.ask("POST", &format!("{snapshot}/rollback"), body);
            assert_eq!(refused.status, 507, "{body}: {refused:?}");
            assert_eq!(server.ask("GET", &exec, "").json()["status"], "running", "{body}");
        }
        assert_eq!(kernels::value(&server, &kept, "x"), "'kept'");
        assert_eq!(server.ask("GET", &kept, "").json()["container_id"], container);
        assert_eq!(objects(&server), before);
    }
    // What frees room works, and what was refused works then.
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/there", "").status, 204);
    if !folders {
        let rolled = server.ask("POST", &format!("{first}/rollback"), r#"{"keep_before":false}"#);
        assert_eq!(rolled.status, 200, "{rolled:?}");
        // Not by a command: its output may find no room either.
        assert_eq!(server.ask("GET", &format!("{kept}/files/file"), "").body, b"one\n");
    }
    assert_eq!(server.ask("DELETE", &first, "").status, 204);
    assert_eq!(server.ask("DELETE", &filler, "").status, 204);
    eventually("room", || server.ask("POST", &format!("{kept}/snapshots"), "{}").status == 201);
    let again = format!("{kept}/snapshots/{}", listed(&server, &kept)[0]["id"].as_str().unwrap());
    eventually("a rollback", || server.ask("POST", &format!("{again}/rollback"), "").status == 200);
    eventually("a fork", || server.ask("POST", &format!("{kept}/fork"), "{}").status == 201);
    // The kernel frees what was deleted in the background, and until then a create may be refused, but not otherwise.
    eventually("an import", || {
        let imported = server.send("POST", &format!("{ID}/import"), &archive);
        assert!(matches!(imported.status, 201 | 429 | 507), "{}", String::from_utf8_lossy(&imported.body));
        imported.status == 201
    });
    let new = r#"{"name":"new","disk_mb":10}"#;
    eventually("a volume", || server.ask("POST", "/api/v1/volumes", new).status == 201);
    // The server ends before its disk does.
    drop(server);
    drop(disk);
}

#[test]
fn a_full_pool_refuses_what_is_new_and_frees_what_is_deleted() {
    a_full_disk(false);
}

#[test]
fn full_folders_refuse_what_is_new_and_free_what_is_deleted() {
    a_full_disk(true);
}
