//! Builds and imports that fill the disk: they fail and say why, leave nothing, and work once there is room. The disk is a small file
//! system made for the test.

use super::{
    brim::SmallDisk,
    fixture::Server,
    image_imports::{ROOT, entry, import, left, root_filesystem},
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{thread, time::Duration};
use tar::{Builder, EntryType};

const MIB: usize = 1 << 20;

/// Bytes that no file system makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn ended(server: &Server, body: &Value) -> Value {
    let begun = server.ask("POST", ROOT, &body.to_string());
    assert_eq!(begun.status, 202, "{}", String::from_utf8_lossy(&begun.body));
    let build = format!("{ROOT}/builds/{}", begun.json()["build_id"].as_str().unwrap());
    loop {
        let seen = server.ask("GET", &build, "").json();
        if seen["status"] != "running" {
            return seen;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_build_and_an_import_that_fill_the_disk_leave_nothing() {
    let disk = SmallDisk::new();
    let server = Server::start_below(&disk.path(), &[]);
    let made = import(&server, "name=box", &root_filesystem("base"));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    // The image may hold more than the disk has.
    let line = "/usr/bin/busybox dd if=/dev/urandom of=/big bs=1M count=2000";
    let body = json!({ "name": "app", "disk_mb": 3000, "dockerfile": format!("FROM box\nRUN {line}\n") });
    let failed = ended(&server, &body);
    let why = failed["error"].as_str().unwrap_or_default();
    // What the command says of it may find no room either.
    assert!(failed["status"] == "failed" && why.starts_with("step 1: "), "{failed}");
    assert_eq!(left(&server), (json!(0), 0, 1));
    // What it took is free again: another build works.
    eventually("another build", || {
        let body = json!({ "name": "app", "replace": true, "disk_mb": 64, "dockerfile": "FROM box\nRUN echo works > /works\n" });
        ended(&server, &body)["status"] == "done"
    });
    let filler = server.create(r#"{"disk_mb":2000}"#);
    server.exec(&filler, "head -c 500000000 /dev/urandom > fill; sync");
    let mut archive = Builder::new(Vec::new());
    entry(&mut archive, "./", EntryType::Directory, 0o755, b"", "");
    entry(&mut archive, "big", EntryType::Regular, 0o644, &noise(60 * MIB), "");
    let archive = archive.into_inner().unwrap();
    let big = || server.send("POST", &format!("{ROOT}/import?name=big&disk_mb=200"), &archive);
    let refused = big();
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(matches!(refused.status, 429 | 507) && text.contains("disk"), "{} {text}", refused.status);
    assert_eq!(left(&server), (json!(1), 0, 2));
    assert_eq!(server.ask("DELETE", &filler, "").status, 204);
    // The kernel frees what was deleted in the background.
    eventually("the same import", || {
        let again = big();
        assert!(matches!(again.status, 201 | 429 | 507), "{}", String::from_utf8_lossy(&again.body));
        again.status == 201
    });
    // The server ends before its disk does.
    drop(server);
    drop(disk);
}
