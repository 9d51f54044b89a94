//! A database under a write load: every snapshot by the API has it whole.

use super::{both, keep, listed};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::json;
use std::{fs, path::PathBuf, process::Command};

const WRITE: &str = "
import sqlite3
db = sqlite3.connect('/workspace/db', isolation_level=None)
db.execute('pragma journal_mode = wal')
db.execute('create table t (n integer primary key, pair integer, text text)')
n = 0
while True:
    n += 1
    db.execute('begin')
    db.executemany('insert into t (pair, text) values (?, ?)', [(n, 'x' * 500)] * 20)
    db.execute('delete from t where pair % 3 = 0')
    db.execute('commit')
";

/// Whether the database is whole and no transaction is there by half.
const CHECK: &str = "
import sqlite3
db = sqlite3.connect('/workspace/db')
print(db.execute('pragma integrity_check').fetchall(), db.execute('select count(*) % 20 from t').fetchall(),
      db.execute('select count(*) > 0 from t').fetchall())
";

/// Snapshots of a sandbox whose database is written to are each whole.
fn is_whole_in_every_snapshot(server: &Server) {
    let sandbox = server.create(r#"{"disk_mb":300}"#);
    let write = json!({ "arguments": ["python3", "-c", WRITE], "background": true }).to_string();
    let begun = server.ask("POST", &format!("{sandbox}/exec"), &write);
    assert!(begun.status / 100 == 2, "{begun:?}");
    let rows = "python3 -c \"import sqlite3; print(sqlite3.connect('db').execute('select max(pair) from t').fetchone()[0])\"";
    eventually("it writes", || server.says(&sandbox, rows).parse().unwrap_or(0) > 5);
    for number in 0..4 {
        keep(server, &sandbox, &number.to_string());
    }
    for snapshot in listed(server, &sandbox) {
        let body = json!({ "snapshot": snapshot["id"] }).to_string();
        let fork = server.ask("POST", &format!("{sandbox}/fork"), &body);
        assert_eq!(fork.status, 201, "{}", String::from_utf8_lossy(&fork.body));
        let fork = format!("/api/v1/sandboxes/{}", fork.json()["id"].as_str().unwrap());
        let check = json!({ "arguments": ["python3", "-c", CHECK] }).to_string();
        let said = server.ask("POST", &format!("{fork}/exec"), &check).json();
        assert_eq!(said["stdout"], "[('ok',)] [(0,)] [(1,)]\n", "{said}");
        assert_eq!(server.ask("DELETE", &fork, "").status, 204);
    }
}

#[test]
fn a_database_that_is_written_to_is_whole_in_every_snapshot() {
    for server in both(&[]) {
        is_whole_in_every_snapshot(&server);
    }
}

/// A disk with btrfs.
struct Disk(tempfile::TempDir);

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

impl Disk {
    /// With classic quotas, as kernels before 6.7 have them, or with none: the launcher then chooses simple ones where it can.
    fn new(classic: bool) -> Self {
        let disk = Self(tempfile::Builder::new().prefix("atoll-btrfs-").tempdir().unwrap());
        fs::File::create(disk.file()).unwrap().set_len(16 << 30).unwrap();
        fs::create_dir(disk.path()).unwrap();
        let (file, path) = (disk.file(), disk.path());
        let (file, path) = (file.to_str().unwrap(), path.to_str().unwrap());
        run("mkfs.btrfs", &["-q", file]);
        run("mount", &["-o", "loop", file, path]);
        if classic {
            run("btrfs", &["quota", "enable", path]);
            run("btrfs", &["quota", "rescan", "-w", path]);
        }
        disk
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("disk.img")
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Unmounts a disk and checks it; nothing where this machine's `btrfs` does not know what the kernel wrote.
fn check(disk: &Disk) -> Option<()> {
    run("umount", &[disk.path().to_str().unwrap()]);
    let checked = Command::new("btrfs").args(["check", "--readonly"]).arg(disk.file()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    if said.contains("unsupported option features") {
        return None;
    }
    assert!(checked.status.success(), "{said}");
    Some(())
}

#[test]
fn the_same_with_classic_quotas_and_the_disk_is_sound_afterwards() {
    let disk = Disk::new(true);
    is_whole_in_every_snapshot(&Server::start_below(&disk.path(), &[]));
    check(&disk).expect("every btrfs-progs knows classic quotas");
}

#[test]
fn the_same_with_simple_quotas_where_btrfs_progs_know_them() {
    let disk = Disk::new(false);
    is_whole_in_every_snapshot(&Server::start_below(&disk.path(), &[]));
    if check(&disk).is_none() {
        println!("btrfs-progs of this machine do not know simple quotas, so the disk is not checked");
    }
}
